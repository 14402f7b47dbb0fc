"""How each line looks that the programs of examples/ print: for their tests, and for the docs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ("LINES", "check_lines")

_CLOCK, _MS = r"\d\d:\d\d:\d\d  ", r" *\d+\.\d{3} ms"
_PLACE = r"(\d+\.\d+\.\d+\.\d+|\[[0-9a-f:]+\]):\d+"

#: Example → what a line of it matches as a whole.
LINES = {
    "exec_snoop": r" *\d+  \S+ +\S.*",
    "heatmap": r"\|[ .:=+*#%@-]{25}\| \d+| 1us {7}1ms {7}1s *",
    "jvm_gc": rf"{_CLOCK}(full |young)  {_MS}  .+|\d+ pauses, {_MS} in total, {_MS} at most",
    "malloc_callers": r" +BYTES +CALLS  CALLER| *[\d,]+ +[\d,]+  \S.*",
    "postgresql_queries": rf" *\d+ ({_MS}|   failed   )  \S.*",
    "read_sizes": r"opens \S*| *\d+ reads of descriptor \d+| *\d+ of \d+ to \d+ bytes",
    "slow_spans": rf"{_CLOCK}{_MS}  \S+(  \w+)?| *\d+ calls  {_MS} on average  \S+",
    "tcp_retransmits": rf" *{_PLACE} -> {_PLACE} +[A-Z_0-9]+",
    "test_shop": r"\.\. +\[100%\]|2 passed in [\d.]+s",
}


def check_lines(name: str, lines: Iterable[str]) -> None:
    """Whether all of the output of an example looks as it should, and is there."""
    found = [line for line in lines if line]
    assert found, f"{name} printed nothing"
    assert not [line for line in found if not re.fullmatch(LINES[name], line)]
