"""Stacks: what was recorded of them, the symbols of their frames, and their formats.

The kernel records addresses, the innermost first (``bpf_get_stack``, ``BPF_MAP_TYPE_STACK_TRACE``);
it unwinds by frame pointers only. Or it records registers and a copy of the stack, to be unwound
when the stack is shown. Symbols of kernel addresses come from
:mod:`usdt.engine.output.kernel_symbols`, those of user addresses, and the unwinding, from a
:class:`UserSymbols`, which the target provider supplies.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Protocol, assert_never, runtime_checkable

from usdt.arch.locations import Unreadable
from usdt.arch.pt_regs import pt_regs_size
from usdt.arch.unwinding import CPUS
from usdt.base.closeable import Closeable
from usdt.base.errors import TracingError
from usdt.base.machine import KERNEL_MACHINE
from usdt.base.text import printable
from usdt.engine.compiler.record.columns import (
    CgroupColumn,
    StackColumn,
    StackCopyColumn,
    SymbolKind,
    stack_column,
)
from usdt.engine.language.tree import StackKind
from usdt.engine.output.frames import Frame, Stack, folded, frame_json, frame_text, merged
from usdt.engine.output.symbol_needs import needs_user_symbols

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Set as AbstractSet

    from usdt.arch.unwind_rows import CodeRange
    from usdt.cgroups.known import CgroupNames
    from usdt.engine.compiler.record.columns import AnyStack
    from usdt.engine.compiler.record.layout import RecordLayout
    from usdt.engine.output.kernel_symbols import KernelSymbols
    from usdt.engine.output.python_processes import PythonProcesses

__all__ = (
    "CodeSource",
    "StackResolver",
    "UserSymbols",
    "addresses_in",
    "incomplete",
    "no_frames",
    "no_frames_folded",
    "stack_folded",
    "stack_json",
    "stack_lines",
)

_FIRST = frozenset((0,))  # the positions of addresses that are no return addresses
_INDENT = " " * 8
_KEPT = 1 << 14  # maximum distinct stacks whose text is kept


# The bytes of a stack; of a user stack with the Python stack of the hit and the number before it
StackBytes = bytes | tuple[bytes, bytes, int]


class UserSymbols(Protocol):
    """A source of symbols for processes; :class:`usdt.symbolize.Symbolizer` implements it.

    Attributes:
        notices: new warnings for the user.
        lines: whether frames have source lines, and inlined functions frames of their own.
    """

    notices: list[str]
    lines: bool

    def frames(
        self, pid: int, addresses: Sequence[int], exact: AbstractSet[int] = _FIRST
    ) -> list[Frame]:
        """Return the frames of a stack, innermost first.

        ``exact`` has the positions of addresses that are no return addresses.
        """

    def frame(self, pid: int, address: int) -> Frame:
        """Return the frame of an address."""

    def unwind(self, pid: int, machine: str, registers: bytes, stack: bytes) -> Stack:
        """Return the stack of a thread, from ``struct pt_regs`` and a copy of its stack."""

    def observe(self, pid: int) -> bool:
        """Record the current mappings of a process; return whether they have changed."""

    def look(self) -> None:
        """Record the mappings that processes have added since the last call."""

    def python_processes(self, pids: Sequence[int]) -> PythonProcesses:
        """Let programs know the Python processes, now and later.

        Args:
            pids: the only processes that are traced; empty for all.
        """

    def python_stack(self, pid: int, data: bytes, length: int, order: str) -> Stack:
        """Return a Python stack, from the slots of a record and the number before them."""

    def close(self) -> None:
        """Free all resources."""


@runtime_checkable
class CodeSource(Protocol):
    """What knows the code of running processes: :class:`usdt.symbolize.Symbolizer`."""

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Descriptors that are readable when mappings have changed."""

    def file_code(self, path: str) -> CodeRange | None:
        """Return a file's executable part as if it were mapped at 0; None if there is none."""

    def code(self, pid: int) -> list[CodeRange]:
        """Return the executable mappings of a process now, with their unwind tables."""

    def take_changed(self) -> set[int] | None:
        """Return the processes whose mappings have changed since the last call; None: unknown."""


class StackResolver(Closeable):
    """A resolver of stacks and addresses; formatters call it for every record.

    Args:
        user: makes the source of user symbols when it is first needed. Without it, or if it returns
            None, user addresses stay numbers.
        kernel: the kernel's symbols; None reads /proc/kallsyms when first needed.
        order: byte order of recorded stacks: "=" (this machine's), "<" or ">".
        machine: the CPU of the kernel that recorded them.
        lines: show source lines, and inlined functions as frames of their own.

    Attributes:
        wanted: whether user symbols will be needed, so that processes must be observed.
    """

    def __init__(
        self,
        user: Callable[[], UserSymbols | None] | None = None,
        kernel: KernelSymbols | None = None,
        order: str = "=",
        *,
        machine: str = KERNEL_MACHINE,
        lines: bool = False,
    ) -> None:
        self.wanted = False
        self._lines = lines
        self._order = order
        self._machine = machine
        self._make_user = user
        self._user: UserSymbols | None = None
        self._kernel = kernel
        self._kept: dict[Any, str] = {}
        self._cgroups: CgroupNames | None = None

    # ------------------------------------------------------------ names

    def frames(
        self,
        kind: StackKind,
        pid: int,
        addresses: Sequence[int],
        exact: AbstractSet[int] = _FIRST,
    ) -> list[Frame]:
        """Return the frames of a stack, innermost first.

        Args:
            kind: whose stack it is.
            pid: the process ID, as in /proc.
            addresses: the addresses from the kernel, without the zeros after them.
            exact: positions of addresses that are no return addresses.
        """
        match kind:
            case StackKind.KERNEL:
                return self._kernel_symbols().frames(addresses)
            case StackKind.USER:
                user = self._user_symbols()
                if user is None:
                    return [Frame(address) for address in addresses]
                return user.frames(pid, addresses, exact)
            case StackKind.PYTHON:
                raise TypeError("a Python stack is not of addresses")
            case _:
                assert_never(kind)

    def python_processes(self, pids: Sequence[int]) -> PythonProcesses:
        """Let programs that record Python stacks know the Python processes.

        Raises:
            TracingError: there is no source of user symbols.
        """
        user = self._user_symbols()
        if user is None:
            raise TracingError("Python stacks need a source of symbols")
        self.wanted = True
        return user.python_processes(pids)

    def frame(self, kind: SymbolKind, pid: int, address: int) -> Frame:
        """Return the frame of an address, or of the call before a return address."""
        match kind:
            case SymbolKind.USER_CALLER | SymbolKind.KERNEL_CALLER:
                # All addresses of a stack but the first are return addresses.
                return self.frames(kind.stack, pid, (0, address))[-1]
            case SymbolKind.KERNEL:
                return self._kernel_symbols().frame(address)
            case SymbolKind.USER:
                user = self._user_symbols()
                return Frame(address) if user is None else user.frame(pid, address)
            case _:
                assert_never(kind)

    def observe(self, pids: Sequence[int]) -> None:
        """Record the mappings of processes, if user symbols are needed."""
        if self._cgroups is not None:
            self._cgroups.look()
        user = self._user_symbols() if self.wanted else None
        if user is not None:
            user.look()
            if sum(user.observe(pid) for pid in pids):
                self._kept.clear()

    def begin(self, pids: Sequence[int]) -> None:
        """Start to record mappings: everything is attached and nothing has been hit."""
        self.observe(pids)

    def take_notices(self) -> list[str]:
        """Return the warnings since the last call."""
        found: list[str] = []
        for source in (self._user, self._kernel):
            if source is not None:
                found += source.notices
                source.notices.clear()
        return found

    def expect(self, layout: RecordLayout, *, structures: bool = False) -> None:
        """Announce records of a layout.

        If ``structures`` is true, pointers to code in structures need symbols, too.
        """
        self.wanted = self.wanted or any(
            needs_user_symbols(field.column, structures=structures) for field in layout.fields
        )
        if any(isinstance(field.column, CgroupColumn) for field in layout.fields):
            self.cgroups()

    def close(self) -> None:
        """Free all resources. Idempotent."""
        if self._user is not None:
            self._user.close()
        if self._cgroups is not None:
            self._cgroups.close()

    def cgroups(self) -> CgroupNames:
        """Return the names of cgroups; the first call begins to watch those that are made."""
        if self._cgroups is None:
            from usdt.cgroups.known import KnownCgroups  # noqa: PLC0415 - few runs show them

            self._cgroups = KnownCgroups()
        return self._cgroups

    def code(self) -> CodeSource | None:
        """Return what knows the code of running processes; None if nothing does."""
        user = self._user_symbols()
        return user if isinstance(user, CodeSource) else None

    def _user_symbols(self) -> UserSymbols | None:
        if self._user is None and self._make_user is not None:
            self._user = self._make_user()
            if self._user is not None:
                self._user.lines = self._lines
        return self._user

    def _kernel_symbols(self) -> KernelSymbols:
        if self._kernel is None:
            from usdt.engine.output.kernel_symbols import KernelSymbols  # noqa: PLC0415 - rarely needed

            self._kernel = KernelSymbols.running()
        return self._kernel

    # ------------------------------------------------------------ records

    def text(self, column: AnyStack, pid: int, data: StackBytes, length: int) -> str:
        """Return a recorded stack as text: one line per frame, each preceded by a newline."""
        return self._rendered(_stack_text, column, pid, data, length)

    def json(self, column: AnyStack, pid: int, data: StackBytes, length: int) -> str:
        """Return a recorded stack as JSON: a list of objects, or an object with ``error``."""
        return self._rendered(_stack_json, column, pid, data, length)

    def fold(self, column: AnyStack, pid: int, data: StackBytes, length: int) -> str:
        """Return a recorded stack as ``outer;…;inner``."""
        return self._rendered(_stack_folded, column, pid, data, length)

    def value(
        self, column: AnyStack, pid: int, data: StackBytes, length: int
    ) -> list[Frame] | Unreadable:
        """Return the first frames of a recorded stack, or the reason why there are none.

        If a Python stack was recorded beside a user stack, its functions stand for the frames of
        the interpreter.
        """
        if isinstance(data, tuple):
            stack, python, number = data
            found: list[Frame] | Unreadable = self.value(column, pid, stack, length)
            return self._merged(column, pid, found, python, number)
        if column.kind is StackKind.PYTHON:
            return self._python(column, pid, data, length)
        if length <= 0:
            return Unreadable(no_frames(column.kind, length))
        match column:
            case StackCopyColumn():
                found = self._unwind(pid, data, length)
            case StackColumn():
                found = self.frames(column.kind, pid, addresses_in(data[:length], self._order))
                found = found or Unreadable(no_frames(column.kind, 0))
            case _:
                assert_never(column)
        if isinstance(found, Unreadable) or len(found) <= column.frames:
            return found  # with the reason why it ends, if it has one
        return found[: column.frames]

    def _merged(
        self,
        column: AnyStack,
        pid: int,
        native: list[Frame] | Unreadable,
        data: bytes,
        length: int,
    ) -> list[Frame] | Unreadable:
        python = self._python(stack_column(StackKind.PYTHON), pid, data, length)
        if isinstance(python, Unreadable) or isinstance(native, Unreadable):
            return native
        whole = merged(native, python)
        return whole if len(whole) <= column.frames else whole[: column.frames]

    def _python(
        self, column: AnyStack, pid: int, data: bytes, length: int
    ) -> list[Frame] | Unreadable:
        user = self._user_symbols()
        if user is None:
            return Unreadable("no frames: the names of Python functions are not known here")
        found = user.python_stack(pid, data, length, self._order)
        if not found:
            return Unreadable(f"no frames: {found.reason}")
        return found if len(found) <= column.frames else found[: column.frames]

    def _unwind(self, pid: int, data: bytes, length: int) -> list[Frame] | Unreadable:
        user = self._user_symbols()
        if user is None or self._machine not in CPUS:
            return Unreadable("no frames: stacks of other CPUs cannot be unwound")
        registers = pt_regs_size(self._machine)
        stack = data[registers : registers + length]
        found = user.unwind(pid, self._machine, data[:registers], stack)
        return found or Unreadable(f"no frames: {found.reason}")

    def symbol_text(self, kind: SymbolKind, pid: int, address: int) -> str:
        """Return an address as text."""
        return frame_text(self.frame(kind, pid, address))

    def symbol_json(self, kind: SymbolKind, pid: int, address: int) -> str:
        """Return an address as JSON."""
        return frame_json(self.frame(kind, pid, address))

    def _rendered(
        self,
        render: Callable[[StackKind, list[Frame] | Unreadable], str],
        column: AnyStack,
        pid: int,
        data: StackBytes,
        length: int,
    ) -> str:
        if isinstance(column, StackCopyColumn):  # no two are equal
            self.observe((pid,))
            return render(column.kind, self.value(column, pid, data, length))
        key = (render, column, pid, length, data)
        found = self._kept.get(key)
        if found is None:
            if column.kind is not StackKind.KERNEL:
                self.observe((pid,))
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            shown = render(column.kind, self.value(column, pid, data, length))
            found = self._kept[key] = shown
        return found


def addresses_in(data: bytes, order: str = "=") -> list[int]:
    """Return the addresses of a stack as recorded by the kernel; a zero ends them."""
    whole = len(data) // 8
    found = struct.unpack_from(f"{order}{whole}Q", data)
    return list(found[: found.index(0)] if 0 in found else found)


def no_frames(kind: StackKind, length: int) -> str:
    """Return why a stack has no frames; ``length`` is the return value of ``bpf_get_stack``."""
    match kind:
        case StackKind.KERNEL:
            return "no frames: hit in user mode, where the kernel has no stack of the task"
        case StackKind.USER if length < 0:
            return f"no frames: the kernel could not read the user stack (errno {-length})"
        case StackKind.USER:
            return "no frames: the task has no user stack"
        case StackKind.PYTHON:
            return "no frames: no Python stack was recorded"
        case _:
            assert_never(kind)


def no_frames_folded(kind: StackKind) -> str:
    """Return a missing stack as one frame of a folded stack."""
    match kind:
        case StackKind.USER:
            return "[no user frames]"
        case StackKind.KERNEL:
            return "[no kernel frames]"
        case StackKind.PYTHON:
            return "[no Python frames]"
        case _:
            assert_never(kind)


def _stack_text(_kind: StackKind, stack: list[Frame] | Unreadable) -> str:
    if isinstance(stack, Unreadable):
        return f"?({stack.reason})"
    return "".join(f"\n{_INDENT}{line}" for line in stack_lines(stack))


def stack_lines(stack: list[Frame], *, shared: bool = False) -> tuple[str, ...]:
    """Return the lines of a stack; the last one says why it ends, if it is incomplete.

    ``shared`` leaves out the addresses of frames that processes share.
    """
    lines = [frame_text(frame, shared=shared) for frame in stack]
    if reason := incomplete(stack):
        lines.append(f"({printable(reason)})")
    return tuple(lines)


def _stack_json(_kind: StackKind, stack: list[Frame] | Unreadable) -> str:
    return _error(stack.reason) if isinstance(stack, Unreadable) else stack_json(stack)


def stack_json(stack: list[Frame], *, shared: bool = False) -> str:
    """Return a stack as JSON; the last object says why it ends, if it is incomplete.

    ``shared`` leaves out the addresses of frames that processes share.
    """
    frames = [frame_json(frame, shared=shared) for frame in stack]
    if reason := incomplete(stack):
        frames.append(_error(reason))
    return f"[{', '.join(frames)}]"


def _error(reason: str) -> str:
    import json  # noqa: PLC0415 - for JSON alone

    return json.dumps({"error": reason})


def _stack_folded(kind: StackKind, stack: list[Frame] | Unreadable) -> str:
    if isinstance(stack, Unreadable):
        return no_frames_folded(kind)
    return stack_folded(kind, stack)


def stack_folded(kind: StackKind, stack: list[Frame]) -> str:
    """Return a stack as ``outer;…;inner``; the outermost is ``[incomplete]`` if it is that."""
    whole = folded(stack, kernel=kind is StackKind.KERNEL)
    return f"[incomplete];{whole}" if incomplete(stack) else whole


def incomplete(stack: list[Frame]) -> str:
    """Return why a stack ends before its outermost function; "" if it does not, or is not known."""
    return stack.reason if isinstance(stack, Stack) else ""
