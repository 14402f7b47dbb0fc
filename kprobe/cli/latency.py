"""``kprobe latency``: times between two probes."""

from __future__ import annotations

from kprobe.cli.front import FRONT
from usdt.engine.cli.aggregates import latency_command

__all__ = ("latency",)

_EXAMPLES = """
kprobe latency vfs_fsync_range --unit us --by comm
kprobe latency syscall:fsync 'syscall:fsync(return)'
kprobe latency rawtp:block_rq_issue rawtp:block_rq_complete --key rq --unit us
"""

latency = latency_command(FRONT, _EXAMPLES)
