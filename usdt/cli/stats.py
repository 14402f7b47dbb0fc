"""``usdt stats``: count, least, average, greatest and sum."""

from __future__ import annotations

from usdt.cli.front import FRONT
from usdt.engine.cli.aggregates import stats_command

__all__ = ("stats",)

_EXAMPLES = """
usdt stats -p 1234 'myapp:request(arg2)' --by 'str(arg1)'
"""

stats = stats_command(FRONT, _EXAMPLES)
