"""What tests of many functions share: calls whose number is known, and what a run leaves."""

from __future__ import annotations

import re
from pathlib import Path

from usdt.bpf.rcu import RCU_EXPEDITED
from usdt.tracefs.mount import tracefs

__all__ = ("calls", "complaints", "left_behind", "sites_of")

_BAD = ("WARNING:", "BUG:", "Oops", "stall", "hung", "general protection")


def calls(number: int, process: int = 0) -> str:
    """Source that calls getpgid() so often."""
    return (
        "import os\n"
        f"for _ in range({number}):\n"
        "    try:\n"
        f"        os.getpgid({process})\n"
        "    except ProcessLookupError:\n"
        "        pass\n"
    )


def left_behind() -> list[str]:
    """Definitions in tracefs, kprobes that are armed, and whether the kernel hurries."""
    found = []
    for path in (
        tracefs() / "kprobe_events",
        Path("/sys/kernel/debug/kprobes/list"),
        Path(RCU_EXPEDITED),
    ):
        if path.exists():
            found += path.read_text().splitlines()
    return found


def sites_of(said: str) -> int:
    """How many places a command said that it traces."""
    match = re.search(r"^tracing (\d+) sites?;", said, re.MULTILINE)
    assert match, said
    return int(match[1])


def complaints(log: str) -> list[str]:
    """Lines of the kernel's log that name a defect."""
    return [line for line in log.splitlines() if any(word in line for word in _BAD)]
