"""``usdt hist``: a histogram made in the kernel."""

from __future__ import annotations

from usdt.cli.front import FRONT
from usdt.engine.cli.aggregates import hist_command

__all__ = ("hist",)

_EXAMPLES = """
usdt hist -p 1234 'myapp:request(arg2)'
usdt hist -p 1234 'myapp:request(arg2, arg1 == 7)' --linear 0:1000:50 --by comm
"""

hist = hist_command(FRONT, _EXAMPLES)
