"""``usdt heatmap``: histograms over time."""

from __future__ import annotations

from tracing.cli.aggregates import heatmap_command
from usdt.cli.front import FRONT

__all__ = ("heatmap",)

_EXAMPLES = """
usdt heatmap -p 1234 python:gc__start python:gc__done
usdt heatmap -p 1234 'myapp:request(arg2)' -i 0.5 -d 60 -o request.svg
"""

heatmap = heatmap_command(FRONT, _EXAMPLES)
