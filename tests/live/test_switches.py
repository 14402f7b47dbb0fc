"""Switches of the whole machine are turned back, however we end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bpf import switches

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

_TURNS = """
import time
from bpf.switches import {name}
with {name}():
    print("in", flush=True)
    time.sleep(60)
"""
# Who turns it; the switch, its usual value, the other, what kernels without it lack.
_SWITCHES = {
    "hurried": (switches.EXPEDITED, "0", "1", "writable (root)"),
}


def _value(name: str) -> str:
    return Path(_SWITCHES[name][0]).read_text().strip()


@pytest.fixture(params=_SWITCHES)
def name(request: pytest.FixtureRequest) -> str:
    """Who turns a switch that is there, at its usual value."""
    path, usual, _, needs = _SWITCHES[request.param]
    if not os.access(path, os.W_OK):
        pytest.skip(f"needs {path}, {needs}")
    assert _value(request.param) == usual
    return str(request.param)


def test_it_is_turned_meanwhile(name: str) -> None:
    turn: Callable[[], AbstractContextManager[None]] = getattr(switches, name)
    _, usual, other, _ = _SWITCHES[name]
    with turn():
        assert _value(name) == other
        with turn():  # whoever turned it turns it back
            pass
        assert _value(name) == other
    assert _value(name) == usual


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=lambda one: one.name)
def test_it_is_turned_back_after_a_signal_to_the_group(name: str, number: signal.Signals) -> None:
    _, usual, other, _ = _SWITCHES[name]
    with subprocess.Popen(
        [sys.executable, "-c", _TURNS.format(name=name)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"in\n"
        assert _value(name) == other
        os.killpg(process.pid, number)
    limit = time.monotonic() + 20
    while _value(name) != usual and time.monotonic() < limit:
        time.sleep(0.01)
    assert _value(name) == usual
