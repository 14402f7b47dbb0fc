"""Writing a recording: records as they come, in blocks, with no work for any single one."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from usdt.base.errors import SyscallError, TracingError
from usdt.bpf.ringbuf import DISCARD, count_committed, equal_runs
from usdt.engine.output.kernel_symbols import KernelSymbols
from usdt.engine.recording.blocks import (
    CASE,
    DATA,
    END,
    FILE,
    HEAD,
    KSYM,
    MAGIC,
    MAX_CONTENT,
    MAX_DESCRIPTIONS,
    Block,
    RecordingError,
    frame,
)
from usdt.engine.recording.description import Case, Clock, Closing, TracedFile, dump
from usdt.engine.recording.processes import Notes, pids_in, wants_kernel, wants_processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from usdt.engine.compiler.plan import ProbePlan
    from usdt.engine.output.output_file import OutputFile
    from usdt.engine.recording.description import Header
    from usdt.engine.recording.processes import Snapshots
    from usdt.engine.runtime.session import Lost

__all__ = ("Recorder",)

_BLOCK = 1 << 20  # bytes of records gathered for one block
_HELD = 1.0  # seconds that records wait for more, at most
_CASES = 256  # in one block


class Recorder:
    """Takes a session's records and writes them; give it to a session as its form.

    A session's batches are then the bytes of whole records, which go to :meth:`write`.

    Nothing is written before the first record has come or the end: a run that fails until then
    leaves alone what an earlier one wrote.

    Args:
        symbols: makes what knows processes, if records hold stacks; without it user addresses
            stay numbers in reports.

    Attributes:
        records: taken so far.
        size: bytes written so far.
    """

    def __init__(self, symbols: Callable[[], Snapshots] | None = None) -> None:
        self.notes = None if symbols is None else Notes(symbols)
        self.records = 0
        self.size = 0
        self._sink: OutputFile | None = None
        self._waiting: list[bytes] = []  # blocks that come before the next records
        self._cases: list[Case] = []
        self._files: set[TracedFile] = set()
        self._pieces: list[bytes] = []
        self._gathered = self._gathered_records = 0
        self._since = 0.0
        self._described = 0  # bytes
        self._processes = False  # whether records hold addresses of them
        self._kernel = False  # whether they hold addresses of the kernel that need its symbols

    # ------------------------------------------------------------ for the session

    def add(self, number: int, probe: str, plan: ProbePlan) -> None:
        """Announce a case before its first record comes."""
        case = Case(number, probe, plan.layout)
        self._cases.append(case)
        self._processes = self._processes or wants_processes(case.layout)
        if wants_kernel(case.layout) and not self._kernel:
            self._kernel = True
            symbols = KernelSymbols.running().to_bytes()
            if len(symbols) <= MAX_CONTENT:
                self._waiting.append(frame(Block(KSYM, symbols)))

    def batches(self, data: bytes) -> Iterator[list[Any]]:
        """One batch with one element: the records themselves."""
        yield [data]

    # ------------------------------------------------------------ for the command

    def begin(self, header: Header, sink: OutputFile) -> None:
        """Everything is attached; ``header`` comes before all records."""
        self._sink = sink
        self._waiting.insert(0, MAGIC + frame(Block(HEAD, dump(header.to_json()))))

    def file(self, path: str, build_id: str) -> None:
        """A file is traced; told twice, it is written once."""
        file = TracedFile(path, build_id)
        if file not in self._files:
            self._files.add(file)
            self._waiting.append(frame(Block(FILE, dump({"files": [file.to_json()]}))))

    def write(self, data: bytes, most: int | None = None) -> None:
        """Take records: whole ones, as the session gives them.

        Args:
            data: of a batch.
            most: how many of them to take; None: all.

        Raises:
            SyscallError: the file cannot be written; what was written can be read.
        """
        self.look(data)
        _, records = count_committed(data)
        if most is not None and records > most:
            data, records = data[: _size_of(data, most)], most
        if self._gathered + len(data) > MAX_CONTENT:
            self.flush()
        if not self._pieces:
            self._since = time.monotonic()
        self._pieces.append(data)
        self._gathered += len(data)
        self._gathered_records += records
        self.records += records
        if self._gathered >= _BLOCK:
            self.flush()

    def look(self, data: bytes = b"", pids: Iterable[int] = ()) -> None:
        """Note what processes have mapped, those of some records or some others, if need be."""
        if self._processes and self.notes is not None:
            self.notes.look({*pids_in(data), *pids})

    def left(self) -> float:
        """Seconds until tick() has something to do."""
        return max(0.0, self._since + _HELD - time.monotonic()) if self._pieces else math.inf

    def tick(self) -> None:
        """Write what has waited long enough."""
        if not self.left():
            self.flush()

    def flush(self, *, final: bool = False) -> None:
        """Write what was gathered, behind what is needed to read it."""
        for start in range(0, len(self._cases), _CASES):
            cases = [case.to_json() for case in self._cases[start : start + _CASES]]
            self._waiting.append(frame(Block(CASE, dump({"cases": cases}))))
            self._described += len(self._waiting[-1])
        if self._described > MAX_DESCRIPTIONS // 2:
            raise RecordingError(
                f"{self._described} bytes are needed to describe the probes, too many for a "
                "reader: record fewer probes at a time"
            )
        self._cases.clear()
        content, records = b"".join(self._pieces), self._gathered_records
        self._pieces.clear()
        self._gathered = self._gathered_records = 0
        if self.notes is not None:
            self._waiting += self.notes.blocks(final=final)
        if content:
            self._waiting.append(frame(Block(DATA, content, records)))
        waiting, self._waiting = self._waiting, []
        for block in waiting:
            self._put(block)

    def end(self, lost: Sequence[Lost]) -> None:
        """Write what is left, and the closing block."""
        self.flush(final=True)
        losses = tuple((item.probe, item.lost, item.unread) for item in lost)
        closing = Closing(Clock.now(), self.records, losses)
        self._put(frame(Block(END, dump(closing.to_json()))))

    def close(self) -> None:
        """Free what is held of processes; the file is the sink's."""
        if self.notes is not None:
            self.notes.close()

    def _put(self, content: bytes) -> None:
        if self._sink is None:
            raise TracingError("a recording has to begin before anything can be written")
        try:
            self._sink.write_bytes(content)
        except SyscallError as err:
            hint = "what was written until then can be read" if self.size else ""
            raise SyscallError(err.errno or 0, err.call, hint) from err
        self.size += len(content)


def _size_of(data: bytes, count: int) -> int:
    # Bytes of the first ``count`` records that were submitted.
    for start, step, length, header in equal_runs(data):
        if not header & DISCARD:
            if length >= count:
                return start + step * count
            count -= length
    return len(data)
