"""What the traced programs pay for a view, estimated: hits x nanoseconds of each, as measured.

The kernel does not know the time of the trap into it, most of what a probe of a file costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ("MORE", "STACK", "cost_text", "counted")

#: Nanoseconds of a hit that is counted: of tracepoints, system calls and functions of the kernel.
_KERNEL = 150
#: The same of a USDT probe, or of a function of a program: the trap, then the program.
_FILE = 1200
#: Of a further program at the same hit: a time, a value, a bucket of a histogram.
MORE = 500
#: Of a further program that walks a stack.
STACK = 5000
_KERNEL_KINDS = ("syscall:", "tracepoint:", "rawtp:", "kprobe:", "fentry:")


def counted(probe: str) -> int:
    """Return the estimated nanoseconds of one hit that is counted."""
    return _KERNEL if probe.startswith(_KERNEL_KINDS) or ":" not in probe else _FILE


def cost_text(rates: Mapping[str, float], nanoseconds: Mapping[str, int]) -> str:
    """Return an estimate for some probes: ``~0.60% of a CPU (5000 hits/s x 1200 ns)``.

    Args:
        rates: the hits per second of each probe.
        nanoseconds: those of a hit of each probe; by default those of counting it.
    """
    hits = sum(rates.values())
    spent = sum(
        rate * nanoseconds.get(probe, counted(probe)) for probe, rate in rates.items() if rate
    )
    each = spent / hits if hits else 0
    return f"~{spent / 1e7:.2f}% of a CPU ({hits:.0f} hits/s x {each:.0f} ns)"
