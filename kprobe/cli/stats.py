"""``kprobe stats``: numbers about a value, made in the kernel."""

from __future__ import annotations

from kprobe.cli.front import FRONT
from usdt.engine.cli.aggregates import stats_command

__all__ = ("stats",)

_EXAMPLES = """
kprobe stats 'syscall:read(return, return >= 0)' --by comm
kprobe stats 'tracepoint:net:net_dev_queue(len)' --by name
"""

stats = stats_command(FRONT, _EXAMPLES)
