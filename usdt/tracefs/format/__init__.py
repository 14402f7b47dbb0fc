"""``format`` files of events: the fields of a record, and how the kernel prints it.

    form = parse_format(Path("/sys/kernel/tracing/events/sched/sched_switch/format").read_text())
    values = form.decode(record)     # {"prev_comm": "bash", …}
    Printer(form).text(values)       # as in trace_pipe
    named_fields(form)               # {"reason": Symbols(…)}: fields whose values have names

The kernel writes these files in kernel/trace/trace_events.c, for probe events, tracepoints and
system calls alike. fields: parse and decode; expression, operators: the C of ``print fmt``;
print_fmt, named_values: what is printed. Nothing here does any I/O.
"""

from __future__ import annotations

from usdt.tracefs.format.fields import EventFormat, FormatError, FormatField, parse_format
from usdt.tracefs.format.named_values import Flags, Symbols, named_fields
from usdt.tracefs.format.print_fmt import Printer

__all__ = (
    "EventFormat",
    "Flags",
    "FormatError",
    "FormatField",
    "Printer",
    "Symbols",
    "named_fields",
    "parse_format",
)
