"""``usdt top``: rates and latencies of probes, live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from usdt.engine.cli.top import top_command

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("top",)

# \b keeps click from filling the paragraph below it.
_HELP = """Show rate, history and total of each PROBE (default: all), every second until ^C.

Hits are counted in the kernel. With --latency, the times of pairs (X__start and X__done, X__entry
and X__return, X__begin and X__end) and of functions are measured as well, of those with most hits.
The first line says what this costs the traced programs: an estimate, hits times measured
nanoseconds. On a terminal the table has a screen of its own, with keys if Textual is installed (?
shows them); what was there before comes back.

\b
usdt top -p 1234
usdt top -p 1234 --latency --sort p99
usdt top -p 1234 'uprobe:libc:mem*' -b -n 1
"""


def _show(probes: Sequence[str], values: dict[str, Any]) -> int:
    from usdt.engine.api.sessions import Session  # noqa: PLC0415 - not for --help
    from usdt.engine.top.display import run_top  # noqa: PLC0415

    return run_top(Session, probes, values)


top = top_command("*:*", _HELP, _show)
