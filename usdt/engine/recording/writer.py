"""The writer of recordings: writes the records of a session in blocks, without decoding them."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from usdt.base.errors import SyscallError, TracingError
from usdt.bpf.rings.ringbuf import DISCARD, count_committed, equal_runs
from usdt.cgroups.known import KnownCgroups
from usdt.engine.output.kernel_symbols import KernelSymbols
from usdt.engine.output.streams.header import Clock
from usdt.engine.recording.blocks import (
    CGROUPS,
    DATA,
    END,
    FILE,
    HEAD,
    KSYM,
    MAGIC,
    MAX_CONTENT,
    MAX_DESCRIPTIONS,
    VARIANT,
    Block,
    RecordingError,
    frame,
    start_of,
)
from usdt.engine.recording.description import Closing, RecordedVariant, TracedFile, dump
from usdt.engine.recording.processes import (
    ProcessSnapshots,
    pids_in,
    wants_cgroups,
    wants_kernel,
    wants_processes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from usdt.engine.compiler.plan import ProbePlan
    from usdt.engine.output.output_file import OutputFile
    from usdt.engine.output.python_processes import PythonProcesses
    from usdt.engine.recording.description import Header
    from usdt.engine.recording.processes import Snapshots
    from usdt.engine.runtime.session import Lost

__all__ = ("Recorder",)

_BLOCK = 1 << 20  # bytes of records that are collected for one block
_MAX_WAIT = 1.0  # maximum seconds that records wait for more
_VARIANTS_PER_BLOCK = 256  # variants in one block


class Recorder:
    """A consumer that writes a session's records to a file.

    It is passed to a session in place of a decoder. Each batch of the session is then the bytes of
    complete records, for :meth:`write`. Nothing is written before the first record or the end, so
    that a run that fails earlier leaves an existing file unchanged.

    Args:
        symbols: makes the source of snapshots, if records contain stacks; without it, user
            addresses stay numbers in reports.

    Attributes:
        records: number of records taken so far.
        size: bytes written so far.
    """

    def __init__(self, symbols: Callable[[], Snapshots] | None = None) -> None:
        self.snapshots = None if symbols is None else ProcessSnapshots(symbols)
        self.records = 0
        self.size = 0
        self._output: OutputFile | None = None
        self._waiting: list[bytes] = []  # blocks to write before the next records
        self._variants: list[RecordedVariant] = []
        self._files: set[TracedFile] = set()
        self._pieces: list[bytes] = []
        self._gathered = self._gathered_records = 0
        self._since = 0.0
        self._described = 0  # bytes
        self._processes = False  # whether records contain addresses of processes
        # Whether records contain addresses of the kernel, which need its symbols
        self._kernel = False
        self._cgroups: KnownCgroups | None = None  # if records contain IDs of cgroups

    # ------------------------------------------------------------ for the session

    def add(self, number: int, probe: str, plan: ProbePlan) -> None:
        """Announce a variant before its first record arrives."""
        variant = RecordedVariant(number, probe, plan.layout)
        self._variants.append(variant)
        self._processes = self._processes or wants_processes(variant.layout)
        if self._cgroups is None and wants_cgroups(variant.layout):
            self._cgroups = KnownCgroups()
        if wants_kernel(variant.layout) and not self._kernel:
            self._kernel = True
            symbols = KernelSymbols.running().to_bytes()
            if len(symbols) <= MAX_CONTENT:
                self._waiting.append(frame(Block(KSYM, symbols)))

    def python_processes(self, pids: Sequence[int]) -> PythonProcesses:
        """Let programs that record Python stacks know the Python processes.

        Raises:
            TracingError: there is no source of snapshots.
        """
        if self.snapshots is None:
            raise TracingError("Python stacks need a source of symbols")
        return self.snapshots.python_processes(pids)

    def batches(self, data: bytes) -> Iterator[list[Any]]:
        """Yield one batch with one element: the bytes of the records."""
        yield [data]

    # ------------------------------------------------------------ for the command

    def begin(self, header: Header, output: OutputFile) -> None:
        """Set the output, and the header that precedes all records; all probes are attached."""
        self._output = output
        self._waiting.insert(0, MAGIC + frame(Block(HEAD, dump(header.to_json()))))

    def file(self, path: str, build_id: str) -> None:
        """Add a traced file. Idempotent."""
        file = TracedFile(path, build_id)
        if file not in self._files:
            self._files.add(file)
            self._waiting.append(frame(Block(FILE, dump({"files": [file.to_json()]}))))

    def write(self, data: bytes, most: int | None = None) -> None:
        """Take complete records, as returned by the session.

        Args:
            data: the bytes of a batch.
            most: maximum number of records to take; None takes all.

        Raises:
            SyscallError: the file cannot be written; the part already written can be read.
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
        """Record the mappings of processes, if stacks need them.

        Args:
            data: records of processes.
            pids: IDs of further processes.
        """
        if self._processes and self.snapshots is not None:
            self.snapshots.look({*pids_in(data), *pids})

    def left(self) -> float:
        """Return the seconds until tick() has work to do."""
        return max(0.0, self._since + _MAX_WAIT - time.monotonic()) if self._pieces else math.inf

    def tick(self) -> None:
        """Write the records that have waited long enough."""
        if self._cgroups is not None:
            self._cgroups.look()
        if not self.left():
            self.flush()

    def flush(self, *, final: bool = False) -> None:
        """Write the collected records, preceded by the blocks needed to read them.

        Raises:
            RecordingError: the descriptions of the probes are too large for a reader.
            SyscallError: the file cannot be written.
        """
        for start in range(0, len(self._variants), _VARIANTS_PER_BLOCK):
            variants = [
                variant.to_json() for variant in self._variants[start : start + _VARIANTS_PER_BLOCK]
            ]
            self._waiting.append(frame(Block(VARIANT, dump({"cases": variants}))))
            self._described += len(self._waiting[-1])
        if self._described > MAX_DESCRIPTIONS // 2:
            raise RecordingError(
                f"{self._described} bytes are needed to describe the probes, too many for a "
                "reader: record fewer probes at a time"
            )
        self._variants.clear()
        (pieces, records), self._pieces = (self._pieces, self._gathered_records), []
        self._gathered = self._gathered_records = 0
        if self.snapshots is not None:
            self._waiting += self.snapshots.blocks(final=final)
        names = {} if self._cgroups is None else self._cgroups.take_names()
        if names:
            self._waiting.append(frame(Block(CGROUPS, dump(names))))
        waiting, self._waiting = self._waiting, []
        for block in waiting:
            self._put([block])
        if any(pieces):
            self._put([start_of(DATA, pieces, records), *pieces])

    def end(self, lost: Sequence[Lost]) -> None:
        """Write the remaining records and the closing block."""
        self.flush(final=True)
        losses = tuple((item.probe, item.lost, item.unread) for item in lost)
        closing = Closing(Clock.now(), self.records, losses)
        self._put([frame(Block(END, dump(closing.to_json())))])

    def close(self) -> None:
        """Free the snapshots of processes; the output file stays open."""
        if self.snapshots is not None:
            self.snapshots.close()
        if self._cgroups is not None:
            self._cgroups.close()

    def _put(self, pieces: list[bytes]) -> None:
        if self._output is None:
            raise TracingError("a recording has to begin before anything can be written")
        try:
            self._output.write_pieces(pieces)
        except SyscallError as err:
            hint = "what was written until then can be read" if self.size else ""
            raise SyscallError(err.errno or 0, err.call, hint) from err
        self.size += sum(map(len, pieces))


def _size_of(data: bytes, count: int) -> int:
    # Returns the size in bytes of the first ``count`` submitted records.
    for start, step, length, header in equal_runs(data):
        if not header & DISCARD:
            if length >= count:
                return start + step * count
            count -= length
    return len(data)
