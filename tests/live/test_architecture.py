"""docs/architecture.md: the walks name files in the order in which a run calls them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from fixtures import build, start
from house import ROOT
from skips import requires_root

if TYPE_CHECKING:
    from pathlib import Path

_PAGE = (ROOT / "docs" / "architecture.md").read_text()

# Notes each change of file while the command runs; what imports run does not count.
_WALK = """
import json, os, sys
root, out, program, *words = sys.argv[1:]
calls = []

def profile(frame, event, argument):
    name = frame.f_code.co_filename
    if event != "call" or not name.startswith((f"{root}/usdt/", f"{root}/kprobe/")):
        return
    outer = frame
    while outer is not None:
        if outer.f_code.co_name == "<module>" and outer.f_code.co_filename.startswith(root):
            return
        outer = outer.f_back
    if not calls or calls[-1] != name:
        calls.append(name)

sys.path.insert(0, root)
sys.argv = [program, *words]
from usdt.cli import main
sys.setprofile(profile)
try:
    main()
except SystemExit as end:
    code = end.code
finally:
    sys.setprofile(None)
    with open(out, "w") as file:
        json.dump([os.path.relpath(call, root) for call in calls], file)
sys.exit(code)
"""


def _walk(title: str) -> list[str]:
    """The files that a section of the page names, in order."""
    section = _PAGE.partition(f"\n### {title}\n")[2].partition("\n#")[0]
    return re.findall(r"`((?:usdt|kprobe)/[\w/]+\.py)`", section)


def _calls(tmp_path: Path, *words: str) -> list[str]:
    out = tmp_path / "calls"
    done = subprocess.run(
        [sys.executable, "-c", _WALK, str(ROOT), str(out), "usdt", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert not done.returncode, done.stderr
    calls: list[str] = json.loads(out.read_text())
    return calls


def _missed(walk: list[str], calls: list[str]) -> list[str]:
    """What cannot be met in this order."""
    left = iter(calls)
    return [name for name in walk if name not in left]


def test_no_file_is_met_twice() -> None:
    for title in ("`usdt list FILE`", "`usdt trace -p PID 'p:n(str(arg0), arg1 > 5)'`"):
        walk = _walk(title)
        assert len(walk) > 5
        assert len(set(walk)) == len(walk)


def test_the_walk_of_a_listing(tmp_path: Path) -> None:
    calls = _calls(tmp_path, "list", str(build("default", "strings")))
    assert not _missed(_walk("`usdt list FILE`"), calls)


@requires_root
def test_the_walk_of_a_trace(tmp_path: Path) -> None:
    walk = _walk("`usdt trace -p PID 'p:n(str(arg0), arg1 > 5)'`")
    probe = "strings:literal(str(arg0), arg0 > 5)"
    with start(build("default", "strings"), "-w") as fixture:
        pid = str(fixture.wait_ready().pid)
        threading.Timer(2.0, fixture.fire).start()
        assert not _missed(walk, _calls(tmp_path, "trace", "-n", "1", "-p", pid, probe))


def test_every_file_that_the_page_names_is_there() -> None:
    names = set(re.findall(r"`((?:usdt|kprobe|tests|docs)/[\w/.-]+)`", _PAGE))
    assert len(names) > 50
    assert not [name for name in names if not (ROOT / name).exists() and "CPU" not in name]
