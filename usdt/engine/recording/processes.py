"""Symbols for the stacks of a recording: snapshots of the processes' mappings.

Records contain addresses. While processes live, their mappings are recorded with the build IDs of
the files; the kernel's symbols are recorded once. A report finds the files by their build IDs, on
any machine, and never examines the processes that run there.
"""

from __future__ import annotations

import time
import zlib
from typing import TYPE_CHECKING, Any, Protocol

from usdt.base.errors import TracingError
from usdt.base.machine import KERNEL_MACHINE
from usdt.bpf.rings.ringbuf import HEADER, equal_runs
from usdt.cgroups.known import RestoredCgroups
from usdt.engine.compiler.record.columns import (
    CgroupColumn,
    Column,
    StackColumn,
    StackCopyColumn,
    StructColumn,
    StructListColumn,
    SymbolColumn,
)
from usdt.engine.language.tree import StackKind
from usdt.engine.output.frames import Frame, Stack
from usdt.engine.output.kernel_symbols import KernelSymbols
from usdt.engine.output.stacks import StackResolver
from usdt.engine.recording.blocks import (
    CGROUPS,
    KSYM,
    MAPS,
    MAX_CONTENT,
    PYTHON,
    Block,
    RecordingError,
    frame,
)
from usdt.engine.recording.description import dump, load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from usdt.btf.values.type_snapshot import TypeSnapshot
    from usdt.engine.compiler.record.layout import RecordLayout
    from usdt.engine.output.python_processes import PythonProcesses

__all__ = (
    "ProcessSnapshots",
    "RecordedStacks",
    "Snapshots",
    "pids_in",
    "wants_cgroups",
    "wants_kernel",
    "wants_processes",
    "wants_stacks",
)

_PID_WORD = (HEADER + 12) // 4
_LARGE = 1 << 16  # bytes of a snapshot above which the next one is delayed
_LONGEST = 64.0  # maximum seconds between two large snapshots (many JIT-compiled functions)
_KEPT = 256 << 20  # bytes of snapshots that a report keeps
_PROCESSES = 1 << 13  # number of processes whose snapshots a report keeps


class Snapshots(Protocol):
    """A source of process snapshots; :class:`usdt.symbolize.Symbolizer` implements it."""

    notices: list[str]
    lines: bool

    def observe(self, pid: int) -> bool:
        """Record the current mappings of a process; return whether they have changed."""

    def renew_maps(self) -> set[int]:
        """Let JIT compilers name their functions a last time; return the processes of those."""

    def snapshot(self, pid: int) -> dict[str, Any]:
        """Return the data needed to resolve its addresses later, as a JSON object."""

    def restore(self, pid: int, snapshot: dict[str, Any]) -> None:
        """Restore a process from the object of snapshot().

        Raises:
            ValueError: the object is not valid.
        """

    def forget(self, pid: int) -> None:
        """Discard a restored process."""

    def frames(
        self, pid: int, addresses: Sequence[int], exact: AbstractSet[int] = ...
    ) -> list[Frame]:
        """Return the frames of a stack, innermost first."""

    def unwind(self, pid: int, machine: str, registers: bytes, stack: bytes) -> Stack:
        """Return the stack of a thread."""

    def frame(self, pid: int, address: int) -> Frame:
        """Return the frame of an address."""

    def python_processes(self, pids: Sequence[int]) -> PythonProcesses:
        """Let programs know the Python processes, now and later."""

    def python_stack(self, pid: int, data: bytes, length: int, order: str) -> Stack:
        """Return a Python stack, from the slots of a record and the number before them."""

    def python_snapshots(self) -> Iterable[tuple[int, dict[str, Any]]]:
        """Return processes with what Python stacks need and was not returned before."""

    def restore_python(self, pid: int, snapshot: object) -> None:
        """Add what python_snapshots() has returned of a process.

        Raises:
            ValueError: the object is not valid.
        """

    def close(self) -> None:
        """Free all resources."""


def wants_processes(layout: RecordLayout) -> bool:
    """Return whether records of a layout contain addresses of processes."""
    kinds = StackKind.USER, StackKind.PYTHON
    return any(_has_addresses(field.column, kind) for field in layout.fields for kind in kinds)


def wants_kernel(layout: RecordLayout) -> bool:
    """Return whether records of a layout contain addresses of the kernel."""
    return any(_has_addresses(field.column, StackKind.KERNEL) for field in layout.fields)


def wants_cgroups(layout: RecordLayout) -> bool:
    """Return whether records of a layout contain IDs of cgroups that are shown by names."""
    return any(isinstance(field.column, CgroupColumn) for field in layout.fields)


def _has_addresses(column: Column, kind: StackKind) -> bool:
    # Whether a column has addresses of code: of processes or of the kernel.
    match column:
        case StackColumn() | StackCopyColumn():
            return column.kind is kind
        case SymbolColumn():
            return column.kind.stack is kind
        case StructColumn() | StructListColumn():
            kernel = isinstance(column, StructColumn) and column.kernel
            return kernel is (kind is StackKind.KERNEL) and _has_code(column.shape)
    return False


def _has_code(shape: TypeSnapshot) -> bool:
    from usdt.btf.lookup import has_code_pointers  # noqa: PLC0415
    from usdt.btf.reader import Btf  # noqa: PLC0415 - rarely needed

    return has_code_pointers(Btf(shape.types))


def wants_stacks(layout: RecordLayout) -> bool:
    """Return whether records of a layout contain stacks."""
    return any(isinstance(field.column, StackColumn | StackCopyColumn) for field in layout.fields)


def pids_in(data: bytes) -> set[int]:
    """Return the IDs of the processes that hit the records."""
    words = memoryview(data).cast("I")
    found: set[int] = set()
    for start, step, count, _ in equal_runs(data):
        first = (start >> 2) + _PID_WORD
        found.update(words[first : (start + step * count) >> 2 : step >> 2])
    return found


class ProcessSnapshots:
    """The snapshots of processes, taken while they are recorded.

    Args:
        symbols: makes the source of snapshots when it is first needed.
    """

    def __init__(self, symbols: Callable[[], Snapshots]) -> None:
        self._make = symbols
        self._symbols: Snapshots | None = None
        self._python = False  # whether Python stacks are recorded
        self._changed: set[int] = set()
        # PID → (earliest time of the next snapshot, seconds from it to the following one)
        self._due: dict[int, tuple[float, float]] = {}

    def look(self, pids: Iterable[int]) -> None:
        """Record the mappings of processes; cheap if repeated at once."""
        if self._symbols is None:
            self._symbols = self._make()
        for pid in pids:
            if self._symbols.observe(pid) or pid not in self._due:
                self._due.setdefault(pid, (0.0, 1.0))
                self._changed.add(pid)

    def python_processes(self, pids: Sequence[int]) -> PythonProcesses:
        """Let programs that record Python stacks know the Python processes."""
        if self._symbols is None:
            self._symbols = self._make()
        self._python = True
        return self._symbols.python_processes(pids)

    def blocks(self, *, final: bool = False) -> Iterator[bytes]:
        """Yield blocks of the changed snapshots; ``final`` ignores the delay of large ones."""
        now = time.monotonic()
        if final and self._symbols is not None:
            self._changed |= self._symbols.renew_maps() & self._due.keys()
        if self._python and self._symbols is not None:
            for pid, snapshot in self._symbols.python_snapshots():
                yield frame(Block(PYTHON, dump({"pid": pid, "snapshot": snapshot})))
        for pid in sorted(self._changed):
            due, pause = self._due[pid]
            if (final or now >= due) and self._symbols is not None:
                self._changed.discard(pid)
                content = _described(pid, self._symbols.snapshot(pid))
                if len(content) > _LARGE:
                    self._due[pid] = now + pause, min(2 * pause, _LONGEST)
                yield frame(Block(MAPS, content))

    def take_notices(self) -> list[str]:
        """Return the warnings since the last call."""
        found: list[str] = []
        if self._symbols is not None:
            found += self._symbols.notices
            self._symbols.notices.clear()
        return found

    def close(self) -> None:
        """Free all resources. Idempotent."""
        if self._symbols is not None:
            self._symbols.close()


def _described(pid: int, snapshot: dict[str, Any]) -> bytes:
    content = dump({"pid": pid, "snapshot": snapshot})
    if len(content) > MAX_CONTENT:  # too many JIT-compiled functions: the mapped files matter more
        content = dump({"pid": pid, "snapshot": {**snapshot, "perf_map": ""}})
    return content


class _Restored:
    # Processes restored from their snapshots; running processes are never examined.
    def __init__(self, make: Callable[[], Snapshots]) -> None:
        self.notices: list[str] = []
        self._make = make
        self._symbols: Snapshots | None = None
        self.lines = False
        self._known: dict[int, int] = {}  # PID → bytes of its snapshot, the latest last
        self._kept = 0

    def restore(self, data: dict[str, Any], size: int) -> None:
        pid = data.get("pid")
        if not isinstance(pid, int):
            raise RecordingError("a snapshot of no process")
        if self._symbols is None:
            self._symbols = self._make()
            self._symbols.lines = self.lines
        try:
            self._symbols.restore(pid, data.get("snapshot", {}))
        except ValueError as err:
            raise RecordingError(str(err)) from err
        self._kept += size - self._known.pop(pid, 0)
        self._known[pid] = size
        while len(self._known) > 1 and (self._kept > _KEPT or len(self._known) > _PROCESSES):
            oldest = next(iter(self._known))
            self._kept -= self._known.pop(oldest)
            self._symbols.forget(oldest)
            self._note("too many snapshots of processes: some addresses stay numbers")

    def observe(self, _pid: int) -> bool:
        return False

    def look(self) -> None:
        pass

    def frames(
        self, pid: int, addresses: Sequence[int], exact: AbstractSet[int] = frozenset((0,))
    ) -> list[Frame]:
        if self._symbols is None or pid not in self._known:
            return [Frame(address) for address in addresses]
        found = self._symbols.frames(pid, addresses, exact)
        self._take_notices(self._symbols)
        return found

    def unwind(self, pid: int, machine: str, registers: bytes, stack: bytes) -> Stack:
        if self._symbols is None or pid not in self._known:
            return Stack((), "the mappings of the process were not recorded")
        found = self._symbols.unwind(pid, machine, registers, stack)
        self._take_notices(self._symbols)
        return found

    def frame(self, pid: int, address: int) -> Frame:
        if self._symbols is None or pid not in self._known:
            return Frame(address)
        found = self._symbols.frame(pid, address)
        self._take_notices(self._symbols)
        return found

    def python_processes(self, _pids: Sequence[int]) -> PythonProcesses:
        raise TracingError("a recording has no programs")

    def restore_python(self, data: dict[str, Any]) -> None:
        pid = data.get("pid")
        if not isinstance(pid, int):
            raise RecordingError("code objects of no process")
        if self._symbols is None:
            self._symbols = self._make()
            self._symbols.lines = self.lines
        try:
            self._symbols.restore_python(pid, data.get("snapshot"))
        except ValueError as err:
            raise RecordingError(str(err)) from err

    def python_stack(self, pid: int, data: bytes, length: int, order: str) -> Stack:
        if self._symbols is None:
            return Stack((), "the Python functions of the process were not recorded")
        return self._symbols.python_stack(pid, data, length, order)

    def close(self) -> None:
        if self._symbols is not None:
            self._symbols.close()

    def _take_notices(self, symbols: Snapshots) -> None:
        self.notices += symbols.notices
        symbols.notices.clear()

    def _note(self, text: str) -> None:
        if text not in self.notices:
            self.notices.append(text)


class RecordedStacks(StackResolver):
    """A resolver for the stacks of a recording.

    Args:
        symbols: makes the source of symbols when the first process is restored.
        byteorder: byte order of the recording.
        machine: CPU of the kernel that was recorded.
        lines: show source lines, and inlined functions as frames of their own.
    """

    def __init__(
        self,
        symbols: Callable[[], Snapshots],
        byteorder: str,
        machine: str = KERNEL_MACHINE,
        *,
        lines: bool = False,
    ) -> None:
        self._restored = _Restored(symbols)
        self._restored.lines = lines
        self._restored_cgroups = RestoredCgroups()
        self._compressed = b""
        order = "<" if byteorder == "little" else ">"
        super().__init__(lambda: self._restored, order=order, machine=machine, lines=lines)

    def take(self, block: Block) -> None:
        """Restore a block of kind MAPS, KSYM, PYTHON or CGROUPS.

        Raises:
            RecordingError: the block is damaged.
        """
        if block.kind == MAPS:
            self._restored.restore(load(block.content), len(block.content))
        elif block.kind == PYTHON:
            self._restored.restore_python(load(block.content))
        elif block.kind == CGROUPS:
            try:
                self._restored_cgroups.restore(load(block.content))
            except ValueError as err:
                raise RecordingError(str(err)) from err
        elif block.kind == KSYM:
            self._compressed = block.content
            self._kernel = None
        self._kept.clear()

    def cgroups(self) -> RestoredCgroups:
        """Return the names of cgroups in the recording; never this machine's."""
        return self._restored_cgroups

    def _kernel_symbols(self) -> KernelSymbols:
        # The kernel symbols of the recording, decompressed when first needed; never this machine's.
        if self._kernel is None:
            try:
                self._kernel = KernelSymbols.from_bytes(self._compressed or zlib.compress(b""))
            except ValueError as err:
                raise RecordingError(str(err)) from err
            self._kernel.notices.clear()
        return self._kernel
