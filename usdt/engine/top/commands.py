"""Command lines that show the same as the interface."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.base.text import printable

if TYPE_CHECKING:
    from usdt.engine.top.table import Table

__all__ = ("TopOptions",)


@frozen
class TopOptions:
    """What ``top`` was asked for.

    Attributes:
        program: the command, ``usdt`` or ``kprobe``.
        probes: the probes.
        pids: the processes; none means all that hit the probes.
        all_processes: whether all processes are searched for the probes.
        follow: whether children are traced.
        interval: seconds between two readings.
        count: the number of tables; None is without end.
        latency: whether times are measured from the beginning.
    """

    program: str
    probes: tuple[str, ...]
    pids: tuple[int, ...] = ()
    all_processes: bool = False
    follow: bool = False
    interval: float = 1.0
    count: int | None = None
    latency: bool = False

    def table_line(self, table: Table, *, latency: bool) -> str:
        """Return the command line that shows a table as it is shown now."""
        words = [*self.probes, "--interval", f"{self.interval:g}", "--sort", table.sort.value]
        words += ["--filter", table.filter] if table.filter else []
        words += ["--latency"] if latency else []
        return self.line("top", *words)

    def line(self, command: str, *words: str) -> str:
        """Return the command line of another command on the same processes."""
        targets = [word for pid in self.pids for word in ("-p", str(pid))]
        targets += ["-a"] if self.all_processes else []
        targets += ["-f"] if self.follow else []
        return printable(shlex.join([self.program, command, *targets, *words]))
