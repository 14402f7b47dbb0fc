"""``kprobe heatmap``: histograms over time."""

from __future__ import annotations

from kprobe.cli.front import FRONT
from usdt.engine.cli.aggregates import heatmap_command

__all__ = ("heatmap",)

_EXAMPLES = """
kprobe heatmap rawtp:block_rq_issue rawtp:block_rq_complete --key rq --unit us
kprobe heatmap 'syscall:write(count)' -i 0.5 -d 60 -o writes.svg
"""

heatmap = heatmap_command(FRONT, _EXAMPLES)
