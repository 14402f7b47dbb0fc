"""``kprobe count``: count hits in the kernel."""

from __future__ import annotations

from kprobe.cli.front import FRONT
from usdt.engine.cli.aggregates import count_command

__all__ = ("count",)

_EXAMPLES = """
kprobe count 'syscall:*' -c 'ls -l'
kprobe count 'tracepoint:sched:*' -d 5 --top 10
kprobe count tracepoint:skb:kfree_skb --by 'location,reason' -i 1
"""

count = count_command(FRONT, _EXAMPLES)
