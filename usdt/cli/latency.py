"""``usdt latency``: times between two probes."""

from __future__ import annotations

from usdt.cli.front import FRONT
from usdt.engine.cli.aggregates import latency_command

__all__ = ("latency",)

_EXAMPLES = """
usdt latency -p 1234 python:gc__start python:gc__done
usdt latency -p 1234 myapp:begin myapp:done --key arg0 --unit us --by comm
"""

latency = latency_command(FRONT, _EXAMPLES)
