"""``format`` files of events: what a record holds, and how the kernel would print it.

    form = parse_format(Path("/sys/kernel/tracing/events/sched/sched_switch/format").read_text())
    values = form.decode(record)     # {"prev_comm": "bash", …}
    Printer(form).text(values)       # as trace_pipe has it
    named_fields(form)               # {"reason": Symbols(…)}: values that have names

Files as the kernel writes them (kernel/trace/trace_events.c), their C types included. Used for
probe events, tracepoints and system calls alike; nothing here does any I/O.
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
