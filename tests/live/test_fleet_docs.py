"""The examples of docs/fleet.md: ``ssh`` is a shell here, and two machines have an old Python."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from fleets import run_once
from house import ROOT
from test_readme import consoles, run, shape

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.root

_EXAMPLES = consoles((ROOT / "docs/fleet.md").read_text())
_SSH = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
export XDG_CACHE_HOME={folder}/$2
there=$XDG_CACHE_HOME/usdt-fleet
[ -d $there ] || {{ mkdir -p $there; cp -al {unpacked} $there; }}
case $2 in old*) echo "$3" | PATH={folder}/old /bin/sh ;; *) exec sh -c "$3" ;; esac
"""
_OLD_PYTHON = "#!/bin/sh\ncase $2 in *version_info*) exit 1 ;; esac\necho 3.9.2\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("ClusterShell", reason="needs ClusterShell: pip install ClusterShell")
    folder = tmp_path_factory.mktemp("fleet")
    (folder / "bin").mkdir()
    (folder / "old").mkdir()
    # An old machine has no other Python: /usr/bin/python3 is taken out of the command.
    text = _SSH.replace('echo "$3"', 'echo "$3" | sed "s,/usr/bin/python3 ,,"')
    commands = ["kprobe count syscall:openat -d 0.1", "kprobe list syscall:openat*"]
    unpacked = run_once(folder / "first", *map(str.split, commands))
    for path, content in (
        (folder / "bin/ssh", text.format(folder=folder, unpacked=unpacked)),
        (folder / "old/python3", _OLD_PYTHON),
    ):
        path.write_text(content)
        path.chmod(0o755)
    (folder / "old/sh").symlink_to("/bin/sh")
    return folder


@pytest.fixture(scope="module", autouse=True)
def opens() -> object:
    """A process that opens files all the time, so that every machine counts some."""
    import subprocess

    with subprocess.Popen(["sh", "-c", "while true; do /bin/true; sleep 0.1; done"]) as child:
        yield
        child.kill()


# The examples run in their order: the first one sends the toolkit, --clean removes it.
@pytest.mark.parametrize(("command", "shown"), _EXAMPLES, ids=[c for c, _ in _EXAMPLES])
def test_examples_print_what_is_shown(
    command: str, shown: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")
    lines, code = run(command)
    assert sorted(map(told, lines)) == sorted(map(told, shown))
    assert code == int(any(line.startswith("failed:") for line in shown))


def told(line: str) -> str:
    """A line without numbers, and without the hash of the toolkit."""
    words = line.split()
    if words[:1] == ["toolkit"]:
        words[1] = "HASH"
    return shape(" ".join(words))
