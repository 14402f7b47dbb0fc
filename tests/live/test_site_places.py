"""Sites of one file that a program tells apart, with or without the attach cookie."""

from __future__ import annotations

import re

import pytest
from fixtures import build
from tracing_tools import run_usdt

from usdt.base.machine import KERNEL_MACHINE

pytestmark = pytest.mark.usefixtures("ringbuf", "uprobe_multi")


def traced(name: str, probes: str, *options: object) -> tuple[str, bool]:
    """What a trace of a program prints, and whether its own program asks for cookies."""
    command = " ".join(map(str, (build("default", name), *options)))
    done = run_usdt("trace", "-v", "-v", "-c", command, probes)
    assert done.returncode == 0, done.stderr
    return done.stdout, "bpf_get_attach_cookie" in done.stderr


def test_a_few_sites_are_told_apart_without_their_cookies() -> None:
    text, asks = traced("loop", "loop:hit(arg0, arg1)", "-n", 3, "-q")
    assert asks is (KERNEL_MACHINE != "x86_64")
    assert re.findall(r"arg0=(.*?)  arg1=(.*)", text) == [("0", "0"), ("1", "-1"), ("2", "-2")]


def test_many_sites_are_told_apart_by_their_cookies() -> None:
    text, asks = traced("args", "args:*", "-n", 1)
    assert asks
    assert "args:count12" in text
