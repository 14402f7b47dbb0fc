"""``kprobe hist``: histograms, made in the kernel."""

from __future__ import annotations

from kprobe.cli.front import FRONT
from usdt.engine.cli.aggregates import hist_command

__all__ = ("hist",)

_EXAMPLES = """
kprobe hist 'syscall:write(count)' --by comm
kprobe hist 'tracepoint:block:block_rq_issue(bytes)' -d 10
"""

hist = hist_command(FRONT, _EXAMPLES)
