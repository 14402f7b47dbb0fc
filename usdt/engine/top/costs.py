"""What the traced programs pay for a view, estimated: hits x nanoseconds of each, as measured.

The kernel does not know the time of the trap into it, most of what a probe of a file costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ("cost_text", "nanoseconds_of")

_KERNEL = 150  # nanoseconds of a hit: tracepoints, system calls, functions of the kernel
_FILE = 1200  # of a USDT probe, or of a function of a program: the trap, then the program
_KERNEL_KINDS = ("syscall:", "tracepoint:", "rawtp:", "kprobe:", "fentry:")


def nanoseconds_of(probe: str) -> int:
    """Return the estimated nanoseconds of one hit that is counted."""
    return _KERNEL if probe.startswith(_KERNEL_KINDS) or ":" not in probe else _FILE


def cost_text(rates: Mapping[str, float], programs: Mapping[str, int]) -> str:
    """Return an estimate for some probes: ``~0.60% of a CPU (5000 hits/s x 1200 ns)``.

    Args:
        rates: the hits per second of each probe.
        programs: how many programs run at a hit of a probe, if more than one.
    """
    hits = sum(rates.values())
    spent = sum(
        rate * nanoseconds_of(probe) * programs.get(probe, 1) for probe, rate in rates.items()
    )
    each = spent / hits if hits else 0
    return f"~{spent / 1e7:.2f}% of a CPU ({hits:.0f} hits/s x {each:.0f} ns)"
