"""``usdt count``: count hits in the kernel."""

from __future__ import annotations

from usdt.cli.front import FRONT
from usdt.engine.cli.aggregates import count_command

__all__ = ("count",)

_EXAMPLES = """
usdt count -p 1234 'postgresql:*'
usdt count -a '*:*' -d 10 --top 20
usdt count -p 1234 'postgresql:query__start' --by 'str(arg0)' --interval 1
usdt count -a uprobe:libc:malloc --by comm
"""

count = count_command(FRONT, _EXAMPLES)
