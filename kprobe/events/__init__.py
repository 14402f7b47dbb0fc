"""Definitions of dynamic events: the syntax of ``kprobe_events`` and ``uprobe_events``.

    from kprobe.events import Dialect, parse

    definition = parse("p:grp/opened do_sys_openat2 $arg2:ustring", Dialect.of("6.1"))
    str(definition)            # the line in the syntax that the kernel accepts

A :class:`Definition` is a value that needs no kernel: parse it, construct it, compare it or convert
it to text. Errors have the texts and positions of the kernel's ``error_log``.

parse     a line → a definition; fetch: its arguments; numbers: the kernel's number syntax
values    definitions and fetch expressions as values; naming: default groups and event names
dialect   the syntax that a kernel version accepts; syntax_2009: translation of the old syntax
errors    error texts and codes
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
