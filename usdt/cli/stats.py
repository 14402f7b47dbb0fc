"""``usdt stats``: count, least, average, greatest and sum."""

from __future__ import annotations

from tracing.cli.aggregates import stats_command
from usdt.cli.front import FRONT

__all__ = ("stats",)

_EXAMPLES = """
usdt stats -p 1234 'myapp:request(arg2)' --by 'str(arg1)'
"""

stats = stats_command(FRONT, _EXAMPLES)
