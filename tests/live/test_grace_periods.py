"""The switch by which grace periods are hurried is turned back, however we end.

It is one for the machine, and other tests turn it as well. So a process here has a file of its own
in the place of the kernel's, by a mount that it alone sees.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from house import ROOT
from skips import need_program
from tracing_tools import until

from usdt.bpf.rcu import RCU_EXPEDITED, expedited_rcu

_MOUNT = f'mount --bind "$0" {RCU_EXPEDITED}; exec "$@"'
_MEANWHILE = f"""
from pathlib import Path
from usdt.bpf.rcu import expedited_rcu

switch = Path({RCU_EXPEDITED!r})
with expedited_rcu():
    print(switch.read_text().strip())
    with expedited_rcu():  # whoever turned it on turns it off
        pass
    print(switch.read_text().strip())
print(switch.read_text().strip())
"""
_LINKS = f"""
import sys
from pathlib import Path
from usdt.bpf.link import Link, close_links

class Watched(Link):
    # It notes the switch when it is first closed.
    def __init__(self):
        self.seen = ""

    def close(self):
        self.seen = self.seen or Path({RCU_EXPEDITED!r}).read_text().strip()

watched = [Watched() for _ in range(int(sys.argv[1]))]
close_links(watched)
print(*{{link.seen for link in watched}})
"""
_HURRIES = """
import time
from usdt.bpf.rcu import expedited_rcu

with expedited_rcu():
    print("in", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def switch(tmp_path: Path) -> Path:
    """The file that processes of :func:`_started` have for it, turned off."""
    if os.geteuid() != 0 or not Path(RCU_EXPEDITED).exists():
        pytest.skip(f"needs root, and {RCU_EXPEDITED}")
    path = tmp_path / "switch"
    path.write_text("0\n")
    return path


def _started(switch: Path, source: str, *words: str) -> subprocess.Popen[str]:
    unshare = need_program("unshare", "util-linux")
    return subprocess.Popen(
        [unshare, "--mount", "sh", "-ec", _MOUNT, switch, sys.executable, "-c", source, *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def _printed(switch: Path, source: str, *words: str) -> list[str]:
    with _started(switch, source, *words) as process:
        output, _ = process.communicate(timeout=100)
    assert process.returncode == 0
    return output.split()


def test_it_is_on_meanwhile(switch: Path) -> None:
    assert _printed(switch, _MEANWHILE) == ["1", "1", "0"]


@pytest.mark.parametrize(("links", "value"), [(63, "0"), (64, "1")])
def test_it_is_on_while_many_links_are_closed(switch: Path, links: int, value: str) -> None:
    assert _printed(switch, _LINKS, str(links)) == [value]
    assert switch.read_text().strip() == "0"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=lambda one: one.name)
def test_it_is_turned_back_after_a_signal_to_the_group(
    switch: Path, number: signal.Signals
) -> None:
    with _started(switch, _HURRIES) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in\n"
        assert switch.read_text().strip() == "1"
        os.killpg(process.pid, number)
    until(lambda: switch.read_text().strip() == "0", "the switch to be turned back")


def test_the_kernel_has_it(switch: Path) -> None:
    del switch

    def on() -> bool:  # but for others, who turn it back when they end
        with expedited_rcu():
            return Path(RCU_EXPEDITED).read_text().strip() == "1"

    until(on, "the kernel's switch to be on")
