"""Arguments of system calls, at entry or return.

The kernel saves the registers of the process at entry and restores them at return. The saved
arguments are therefore still available at return, next to the result: one hit shows both, and
nothing is stored in between. The exceptions are execve and execveat, which replace the process
image: their arguments are read at entry and stored until the return.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from itertools import pairwise
from typing import TYPE_CHECKING

from kprobe.tracepoints.catalog import Event, events, format_of, no_match
from kprobe.tracepoints.fields import integer
from kprobe.tracepoints.flag_names import flags_of
from kprobe.tracepoints.syscall_numbers import event_names, numbers
from usdt.arch.locations import AtFunctionReturn, Memory, Register, Unreadable
from usdt.base.errors import TracingError
from usdt.base.frozen import frozen, replace
from usdt.base.machine import BIG_ENDIAN, KERNEL_MACHINE, KERNEL_WORD_SIZE, program_word_size
from usdt.engine.compiler.arguments import Argument, Display
from usdt.engine.compiler.entry_return import EntryReturnMatch
from usdt.engine.compiler.ir import (
    S32,
    S64,
    ArgumentValue,
    Arithmetic,
    Compare,
    Convert,
    Deref,
    Number,
)
from usdt.engine.compiler.value_names import Errno, ErrnoOrAddress
from usdt.engine.runtime.attach.attach_points import syscall_registers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.engine.compiler.ir import Node
    from usdt.tracefs.format import FormatField

__all__ = (
    "KEPT_CALL",
    "SystemCall",
    "arguments_of",
    "by_event",
    "call_stack",
    "matching",
    "narrow_program",
    "never_returns",
)

_NUMBER = frozenset(("__syscall_nr", "nr"))  # names of the field before the arguments
# The second argument of the raw tracepoint sys_exit, which has the size of a register.
_RETURN = Register(
    8 + (8 - KERNEL_WORD_SIZE if KERNEL_MACHINE in BIG_ENDIAN else 0), KERNEL_WORD_SIZE
)
_ERRNO, _ERRNO_OR_ADDRESS = Errno(), ErrnoOrAddress()
_KEPT = frozenset(("execve", "execveat"))  # the process image is replaced
_REPLACED = frozenset(("rt_sigreturn", "sigreturn"))  # the registers are replaced
#: Entry and return have the same struct pt_regs at the top of the thread's kernel stack. The thread
#: ID may change in between: execve() makes the calling thread the leader of its process.
KEPT_CALL = EntryReturnMatch(Register(0, 8), same_thread=False, mark_returns=False)
_TIMED = replace(KEPT_CALL, arguments_stay=True)
_WIDE = frozenset(("loff_t", "u64", "__u64", "unsigned long long", "long long"))
_ENDLESS = frozenset(("exit", "exit_group"))
# Arguments that are addresses, though their type is unsigned long
_ADDRESSES = frozenset(("addr", "brk", "start", "new_addr", "old_addr", "newsp", "tls"))
_RETURN_ADDRESSES = frozenset(("brk", "mmap", "mmap2", "mmap_pgoff", "mremap", "shmat"))
_DESCRIPTOR = re.compile(r"fildes|\w*fd(_?(in|out))?")
_NO_TEXT = frozenset(("buf", "msg_ptr", "u_msg_ptr", "_payload"))  # const char *, but not a string


@frozen
class SystemCall:
    """A system call.

    Attributes:
        name: the name in user space.
        number: the number in user space.
        event: the name of its events after ``sys_enter_``, which is that of the kernel's function:
            ``newfstat`` for ``fstat``.
    """

    name: str
    number: int
    event: str


def never_returns(call: SystemCall) -> bool:
    """Return True if the call never returns."""
    return call.name in _ENDLESS


@functools.cache
def _known() -> dict[str, SystemCall]:
    # The calls that have events in tracefs; without any, all calls of the table.
    try:
        there = {event.name for event in events() if event.category == "syscalls"}
    except TracingError:
        there = set()
    calls, own = {}, {}
    for name, number in numbers().items():
        names = event_names(name)
        found = next((one for one in names if f"sys_enter_{one}" in there), None)
        call = calls[name] = SystemCall(name, number, found or names[0])
        if found is not None:
            own[name] = call
    return own or calls


def matching(pattern: str) -> list[SystemCall]:
    """Return the calls whose name matches a pattern, or whose event has exactly that name.

    Raises:
        ProbeNotFound: no call matches; the message names the most similar one.
    """
    found = [
        call
        for name, call in _known().items()
        if fnmatch.fnmatchcase(name, pattern) or call.event == pattern
    ]
    if not found:
        raise no_match("system call", "syscall", pattern, _known())
    return found


def by_event(event: Event) -> tuple[SystemCall, bool] | None:
    """Return the call of an event, and True for its return event; None for other events."""
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
def arguments_of(call: SystemCall, *, returns: bool, kept: bool = False) -> tuple[Argument, ...]:
    """Return the arguments of a call, named as in its format; with ``returns`` also the result.

    ``kept``: the entry is traced as well, and keeps what items need of it.

    ``arg0`` to ``arg5`` are always the six registers, independent of the format; without a format
    they are the arguments that are shown.

    Raises:
        NotSupported: the argument registers of this CPU are unknown.
    """
    offsets = syscall_registers().arguments
    found, position = [], 0
    fields = _fields(call)
    for field in fields or ():
        wide = KERNEL_WORD_SIZE == 4 and field.type.removeprefix("const ") in _WIDE
        if wide and KERNEL_MACHINE == "arm":
            position += position % 2  # two registers, starting at an even one
        if position + wide < len(offsets):
            found.append(
                _argument(call, field, offsets[position], wide=wide, replaced=returns and not kept)
            )
        position += 1 + wide
    kept = kept or call.name in _KEPT
    result = AtFunctionReturn(_RETURN) if kept else _RETURN
    _decode_socket_address(found, fields or (), result if returns else None)
    word = integer(KERNEL_WORD_SIZE, signed=True)
    for index, offset in enumerate(offsets):
        saved = _saved(offset, KERNEL_WORD_SIZE)
        found.append(Argument(f"arg{index}", word, saved, hidden=fields is not None))
    if returns:
        names = _ERRNO_OR_ADDRESS if call.name in _RETURN_ADDRESSES else _ERRNO
        found.append(Argument("return", word, result, names=names))
    return tuple(found)


def _decode_socket_address(
    found: list[Argument],
    fields: Sequence[FormatField],
    returned: Register | AtFunctionReturn | None,
) -> None:
    # Show a struct sockaddr by its contents. The argument after it is its length: a number if the
    # process gives the address, a pointer to one if the kernel returns it, when the call succeeds.
    for index, (address, length) in enumerate(pairwise(found)):
        if fields[index].type.replace(" ", "") != "structsockaddr*":
            continue
        size: Node = ArgumentValue(length.fetch, length.type)
        if fields[index + 1].type.endswith("*"):
            if returned is None:
                continue
            written = Convert(Deref(size, S32), S64)
            result = ArgumentValue(returned, integer(KERNEL_WORD_SIZE, signed=True))
            passed = Compare(">=", Convert(result, S64), Number(0, S64), S64)
            size = Arithmetic("*", written, Convert(passed, S64), S64)
        found[index] = replace(address, display=Display.SOCKET_ADDRESS, length=size)


def call_stack(call: SystemCall, *, timed: bool = False) -> EntryReturnMatch | None:
    """Return how entry and return are matched; None if nothing is stored at entry.

    ``timed``: the time of the entry is.
    """
    if call.name in _KEPT:
        return KEPT_CALL
    return _TIMED if timed else None


def narrow_program(pid: int) -> bool:
    """Return True if a process is known to run a 32-bit program on a 64-bit kernel."""
    # That is i386 and x32 programs; neither uses the system call numbers of x86-64.
    try:
        return program_word_size(f"/proc/{pid}/exe") < KERNEL_WORD_SIZE
    except OSError:
        return False


def _saved(offset: int, size: int) -> Memory:
    # The low ``size`` bytes of a saved register.
    shift = KERNEL_WORD_SIZE - size if KERNEL_MACHINE in BIG_ENDIAN else 0
    return Memory(0, None, 1, offset + shift, 8, size, kernel=True)


def _fields(call: SystemCall) -> list[FormatField] | None:
    # The arguments by the event's format; None if there is no format.
    try:
        form = format_of(Event("syscalls", f"sys_enter_{call.event}"))
    except TracingError:
        return None
    # Kernels that read strings of the process for these events store them after the arguments.
    own = [field for field in form.own if field.kind == "integer" and field.location == "here"]
    return own[1:] if own and own[0].name in _NUMBER else own


def _argument(
    call: SystemCall, field: FormatField, offset: int, *, wide: bool, replaced: bool
) -> Argument:
    pointer = field.type.endswith("*")
    size = min(field.element, KERNEL_WORD_SIZE)
    kind = integer(size, signed=field.signed and not pointer)
    if not pointer and _DESCRIPTOR.fullmatch(field.name):
        kind = integer(min(size, 4), signed=True)  # unsigned int or long, but -1 is no descriptor
    reason = ""
    if replaced and call.name in _REPLACED:
        reason = f"{call.name} replaces its registers: show it without return"
    elif wide:
        reason = "64 bits, in two registers: show them by arg0 to arg5"
    if reason:
        return Argument(field.name, kind, Unreadable(reason))
    register = _saved(offset, kind.size)
    text = field.type.replace(" ", "") == "constchar*" and field.name not in _NO_TEXT
    is_address = field.name in _ADDRESSES and field.type == "unsigned long"
    display = Display.HEX if pointer or is_address else Display.INTEGER
    if text:
        display = Display.STRING
    names = flags_of(call.name, field.name, field.type)
    return Argument(field.name, kind, register, display=display, names=names)
