"""The switch by which grace periods are hurried is turned back, however we end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from usdt.bpf.link import Link, close_links
from usdt.bpf.rcu import RCU_EXPEDITED, expedited_rcu

_HURRIES = """
import time
from usdt.bpf.rcu import expedited_rcu
with expedited_rcu():
    print("in", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def switch() -> Path:
    """It, turned off."""
    path = Path(RCU_EXPEDITED)
    if not os.access(path, os.W_OK):
        pytest.skip(f"needs root: {path} is not ours to write")
    limit = time.monotonic() + 60
    while path.read_text().strip() != "0" and time.monotonic() < limit:
        time.sleep(0.05)  # another test detaches from many places
    assert path.read_text().strip() == "0"
    return path


def test_it_is_on_meanwhile(switch: Path) -> None:
    with expedited_rcu():
        assert switch.read_text().strip() == "1"
        with expedited_rcu():  # whoever turned it on turns it off
            pass
        assert switch.read_text().strip() == "1"
    assert switch.read_text().strip() == "0"


class Watched(Link):
    """A link that notes the switch when it is first closed."""

    def __init__(self) -> None:
        self.seen = ""

    def close(self) -> None:
        """Note it."""
        self.seen = self.seen or Path(RCU_EXPEDITED).read_text().strip()


@pytest.mark.parametrize(("links", "value"), [(63, "0"), (64, "1")])
def test_it_is_on_while_many_links_are_closed(switch: Path, links: int, value: str) -> None:
    watched = [Watched() for _ in range(links)]
    close_links(watched)
    assert {link.seen for link in watched} == {value}
    assert switch.read_text().strip() == "0"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=lambda one: one.name)
def test_it_is_turned_back_after_a_signal_to_the_group(
    switch: Path, number: signal.Signals
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HURRIES],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"in\n"
        assert switch.read_text().strip() == "1"
        os.killpg(process.pid, number)
    limit = time.monotonic() + 20
    while switch.read_text().strip() != "0" and time.monotonic() < limit:
        time.sleep(0.01)
    assert switch.read_text().strip() == "0"
