"""``usdt heatmap``: histograms over time."""

from __future__ import annotations

from usdt.cli.front import FRONT
from usdt.engine.cli.aggregates import heatmap_command

__all__ = ("heatmap",)

_EXAMPLES = """
usdt heatmap -p 1234 python:gc__start python:gc__done
usdt heatmap -p 1234 'myapp:request(arg2)' -i 0.5 -d 60 -o request.svg
"""

heatmap = heatmap_command(FRONT, _EXAMPLES)
