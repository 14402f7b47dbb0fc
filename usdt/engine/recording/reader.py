"""A reader of recordings; reads block by block, so memory is bounded and content is checked."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Self

from usdt.base.closeable import Closeable
from usdt.base.errors import TargetError
from usdt.base.files import open_at_once, size_of
from usdt.base.terminal import progress
from usdt.bpf.rings.ringbuf import count_committed
from usdt.engine.output.decode import BadRecord, Decoder, swapped_words
from usdt.engine.recording.blocks import (
    DATA,
    END,
    FILE,
    HEAD,
    MAGIC,
    MAX_DESCRIPTIONS,
    SYMBOLS,
    VARIANT,
    Block,
    CutError,
    RecordingError,
    read_block,
    read_magic,
)
from usdt.engine.recording.description import Closing, Header, RecordedVariant, load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

    from usdt.engine.output.formatters.formatter import Formatter
    from usdt.engine.recording.processes import RecordedStacks

__all__ = ("Reader",)


class Reader(Closeable):
    """A recording, read from start to end; a context manager.

    Args:
        stream: the bytes of the recording; the reader closes it.
        name: the name used in error messages.

    Attributes:
        header: the header; None if the file was truncated before its end.
        closing: the closing block, once it has been read.
        cut: size of the file in bytes if it is truncated, else -1.
        records: number of records read so far.
        files: traced files read so far.

    Raises:
        RecordingError: the file is not a recording, or has another version.
    """

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self.header: Header | None = None
        self.closing: Closing | None = None
        self.cut = -1
        self.records = 0
        self.files: list[Any] = []
        self._stream = stream
        self._name = name
        self._position = 0
        self._described = 0
        self._variants: dict[int, RecordedVariant] = {}
        try:
            self._begin()
        except BaseException:
            stream.close()
            raise

    @classmethod
    def open(cls, path: str) -> Self:
        """Open a recording by its path; "-" is standard input.

        Raises:
            TargetError: the file cannot be opened or read.
            RecordingError: the file is not a recording.
        """
        if path == "-":
            return cls(open(0, "rb", closefd=False), "standard input")
        try:
            stream = open(open_at_once(path), "rb")  # noqa: SIM115, PTH123 - closed by the reader
        except (OSError, ValueError) as err:
            reason = err.strerror if isinstance(err, OSError) else err
            raise TargetError(f"{path}: cannot be read: {reason}") from err
        return cls(stream, path)

    @property
    def variants(self) -> list[RecordedVariant]:
        """The variants read so far."""
        return list(self._variants.values())

    def replay(
        self,
        form: Formatter,
        wanted: Callable[[str], bool] | None = None,
        stacks: RecordedStacks | None = None,
        *,
        encoded: bool = False,
    ) -> Iterator[list[Any]]:
        """Yield the results of a formatter for the records, in order, in batches.

        Args:
            form: formats the records.
            wanted: whether to yield the records of a probe; None yields all.
            stacks: the formatter's resolver, if it has one.
            encoded: as for :class:`usdt.engine.output.decode.Decoder`.

        Raises:
            RecordingError: the recording is damaged; the records before the damage were yielded.
            TargetError: the file cannot be read any more.
        """
        if self.header is None:
            return
        decoder = Decoder(form, self.header.byteorder, encoded=encoded)
        for block in self._blocks():
            if block.kind == VARIANT:
                for variant in self._add_variants(block):
                    hidden = wanted is not None and not wanted(variant.probe)
                    decoder.add_layout(variant.number, variant.probe, variant.layout, hidden=hidden)
            elif block.kind == DATA:
                self.records += block.records
                try:
                    yield from decoder.batches(block.content)
                except BadRecord as err:
                    raise self._damaged(err) from err
            elif block.kind in SYMBOLS and stacks is not None:
                try:
                    stacks.take(block)
                except RecordingError as err:
                    raise self._damaged(err) from err

    def survey(self) -> None:
        """Read everything but the records: variants, files and the closing block.

        Raises:
            RecordingError: as from replay().
            TargetError: the file is a pipe, which cannot be read twice.
        """
        if not self._stream.seekable():
            raise TargetError(f"{self._name}: this needs a file, not a pipe: it is read twice")
        for block in self._blocks(skip_data=True):
            if block.kind == VARIANT:
                self._add_variants(block)
            self.records += block.records

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._stream.close()

    def _begin(self) -> None:
        try:
            read_magic(self._stream, self._name)
            self._position = len(MAGIC)
            block = read_block(self._stream)
        except OSError as err:
            raise self._unreadable(err) from err
        except CutError as err:
            self.cut = self._position + err.size
            return
        except RecordingError as err:
            raise (self._damaged(err) if self._position else err) from err
        if block is None:
            self.cut = self._position
            return
        if block.kind != HEAD:
            raise RecordingError(f"{self._name}: damaged: no recording begins with {block.kind!r}")
        try:
            self.header = Header.from_json(load(block.content))
        except RecordingError as err:
            raise RecordingError(f"{self._name}: {err}") from err
        self._position += block.size

    def _blocks(self, *, skip_data: bool = False) -> Iterator[Block]:
        # Yields every checked block after the first. Of a truncated last block, yields the complete
        # records.
        what, size = f"reading {self._name}", size_of(self._stream)
        while self.header is not None:
            try:
                block = read_block(self._stream, skip_data=skip_data)
                if block is None:
                    if self.closing is None:
                        self.cut = self._position
                    return
                self._check(block, skip_data=skip_data)
            except OSError as err:
                raise self._unreadable(err) from err
            except CutError as err:
                if self.closing is not None:
                    raise self._damaged(_behind()) from err
                self.cut = self._position + err.size
                if err.kind == DATA and (rest := self._whole(err.rest)):
                    yield rest
                return
            except RecordingError as err:
                raise self._damaged(err) from err
            yield block
            self._position += block.size
            progress.report(what, self._position, size)

    def _check(self, block: Block, *, skip_data: bool) -> None:
        if self.closing is not None:
            raise _behind()
        if block.kind == DATA:
            if not skip_data and self._tally(block.content) != (len(block.content), block.records):
                raise RecordingError(f"a block does not hold its {block.records} records")
            return
        if block.kind in SYMBOLS:
            return
        self._described += len(block.content)
        if self._described > MAX_DESCRIPTIONS:
            raise RecordingError(f"more than {MAX_DESCRIPTIONS} bytes of descriptions")
        if block.kind == HEAD:
            raise RecordingError("a second header")
        if block.kind == FILE:
            self.files += _list(load(block.content), "files")
        elif block.kind == END:
            self.closing = Closing.from_json(load(block.content))

    def _add_variants(self, block: Block) -> list[RecordedVariant]:
        try:
            return self._checked_variants(load(block.content))
        except RecordingError as err:
            raise self._damaged(err) from err

    def _checked_variants(self, data: dict[str, Any]) -> list[RecordedVariant]:
        found = [RecordedVariant.from_json(item) for item in _list(data, "cases")]
        for variant in found:
            if self._variants.setdefault(variant.number, variant) != variant:
                raise RecordingError(f"variant {variant.number} is described twice")
        return found

    def _tally(self, content: bytes) -> tuple[int, int]:
        if len(content) % 8 or self.header is None:
            return -1, 0
        native = self.header.byteorder == sys.byteorder
        return count_committed(content if native else swapped_words(content))

    def _whole(self, rest: bytes) -> Block | None:
        # Returns the complete records of a truncated block.
        size, records = self._tally(rest[: len(rest) & ~7])
        return Block(DATA, rest[:size], records) if size > 0 else None

    def _unreadable(self, why: OSError) -> TargetError:
        return TargetError(f"{self._name}: cannot be read: {why.strerror}")

    def _damaged(self, why: Exception) -> RecordingError:
        return RecordingError(f"{self._name}: damaged at byte {self._position}: {why}")


def _behind() -> RecordingError:
    return RecordingError("data after the closing block")


def _list(data: dict[str, Any], name: str) -> list[Any]:
    found = data.get(name)
    if not isinstance(found, list):
        raise RecordingError(f"{name}: a list expected")
    return found
