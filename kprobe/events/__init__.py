"""Definitions of probe events, the language of ``kprobe_events`` and ``uprobe_events``.

    from kprobe.events import Dialect, parse

    definition = parse("p:grp/opened do_sys_openat2 $arg2:ustring", Dialect.of("6.1"))
    str(definition)            # the line as the kernel takes it

A :class:`Definition` is a value: it can be parsed, made by hand, compared and written as text,
without any kernel. What is wrong is told as the kernel's ``error_log`` does, in its words and with
its position, before a kernel is asked.
"""

from __future__ import annotations

from kprobe.events.dialect import Dialect
from kprobe.events.errors import DefinitionError
from kprobe.events.parse import canonical, parse
from kprobe.events.values import Argument, Definition, Deletion

__all__ = (
    "Argument",
    "Definition",
    "DefinitionError",
    "Deletion",
    "Dialect",
    "canonical",
    "parse",
)
