"""System calls → arguments: at their begin, or when they return.

What a call was given is in the registers of its process, which the kernel saved when it was made
and restores when it is done: they are there at its return as well, beside what it returns. So one
hit shows both, and nothing is kept in between.
"""

from __future__ import annotations

import fnmatch
import functools
from typing import TYPE_CHECKING

from bpf.errors import ProbeNotFound, TracingError
from bpf.frozen import frozen
from kprobe.tracepoints.catalog import Event, events, format_of, nearest
from kprobe.tracepoints.fields import integer
from kprobe.tracepoints.flagtables import flags_of
from kprobe.tracepoints.numbers import FORMATS, numbers
from tracing.hooks import syscall_registers
from tracing.names import Names
from tracing.values import Argument, Memory, Register, Unreadable

if TYPE_CHECKING:
    from tracing.eventformat import FormatField

__all__ = ("SystemCall", "arguments_of", "by_event", "matching", "never_returns")

_FIRST_ARGUMENT = 16  # bytes before the arguments in records of sys_enter_*
_RETURN = Register(8, 8)  # the second argument of the raw tracepoint sys_exit
_ERRNO = Names("errno")
_REPLACED = frozenset(("execve", "execveat", "rt_sigreturn"))  # their registers are others after
_ENDLESS = frozenset(("exit", "exit_group"))
_NO_TEXT = frozenset(("buf", "msg_ptr", "u_msg_ptr", "_payload"))  # const char *, and no string


@frozen
class SystemCall:
    """One system call; ``event`` is what its events are called behind ``sys_enter_``."""

    name: str
    number: int

    @property
    def event(self) -> str:
        """The kernel's name of the function behind it: ``newfstat`` of ``fstat``."""
        return FORMATS.get(self.name, self.name)


def never_returns(call: SystemCall) -> bool:
    """Whether there is no return to wait for."""
    return call.name in _ENDLESS


@functools.cache
def _known() -> dict[str, SystemCall]:
    # Those that the kernel has, as far as tracefs tells; else all of the table.
    calls = {name: SystemCall(name, number) for name, number in numbers().items()}
    try:
        there = {event.name for event in events() if event.category == "syscalls"}
    except TracingError:
        return calls
    own = {name: call for name, call in calls.items() if f"sys_enter_{call.event}" in there}
    return own or calls


def matching(pattern: str) -> list[SystemCall]:
    """The calls whose name fits a pattern; the kernel's name of one will do, too.

    Raises:
        ProbeNotFound: there is none; the message names the nearest.
    """
    found = [
        call
        for name, call in _known().items()
        if fnmatch.fnmatchcase(name, pattern) or call.event == pattern
    ]
    if not found:
        near = nearest(pattern, _known())
        hint = f"; nearest is {near}" if near else ""
        raise ProbeNotFound(
            f"no system call {pattern}{hint} (list them with: kprobe list 'syscall:*')"
        )
    return found


def by_event(event: Event) -> tuple[SystemCall, bool] | None:
    """The call that an event is of, and whether it is of its return; None: of none known."""
    if event.category != "syscalls":
        return None
    sys, _, rest = event.name.partition("_")
    kind, _, name = rest.partition("_")
    call = _by_event().get(name)
    if sys != "sys" or kind not in ("enter", "exit") or call is None:
        return None
    return call, kind == "exit"


@functools.cache
def _by_event() -> dict[str, SystemCall]:
    return {call.event: call for call in _known().values()}


@functools.lru_cache(maxsize=2048)
def arguments_of(call: SystemCall, *, returns: bool) -> tuple[Argument, ...]:
    """What a call was given, by the names of its format; and with ``returns`` what it returns.

    ``arg0`` to ``arg5`` are the six registers whatever the format says.

    Raises:
        NotSupported: it is not known where this CPU's kernel has them.
    """
    places = syscall_registers().arguments
    found = []
    for index, field in enumerate(_fields(call)[: len(places)]):
        found.append(_argument(call, field, places[index], replaced=returns))
    signed = integer(8, signed=True)
    if returns:
        found.append(Argument("return", signed, _RETURN, names=_ERRNO))
    for index, place in enumerate(places):
        register = Memory(0, None, 1, place, 8, 8, kernel=True)
        found.append(Argument(f"arg{index}", signed, register, hidden=True))
    return tuple(found)


def _fields(call: SystemCall) -> list[FormatField]:
    try:
        form = format_of(Event("syscalls", f"sys_enter_{call.event}"))
    except TracingError:
        return []
    return [
        field for field in form.own if field.offset >= _FIRST_ARGUMENT and field.kind == "integer"
    ]


def _argument(call: SystemCall, field: FormatField, place: int, *, replaced: bool) -> Argument:
    pointer = field.type.endswith("*")
    kind = integer(field.element, signed=field.signed and not pointer)
    if replaced and call.name in _REPLACED:
        reason = f"{call.name} replaces its registers: show it without return"
        return Argument(field.name, kind, Unreadable(reason))
    register = Memory(0, None, 1, place, 8, kind.size, kernel=True)
    text = field.type.replace(" ", "") == "constchar*" and field.name not in _NO_TEXT
    form = "string" if text else "hex" if pointer else ""
    names = flags_of(call.name, field.name, field.type)
    return Argument(field.name, kind, register, form=form, names=names)
