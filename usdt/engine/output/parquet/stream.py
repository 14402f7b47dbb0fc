"""An output file that takes a JSON stream, or rows, and writes Parquet.

The file is written beside its place, as ``FILE.part``, and takes its name once it is complete: a
Parquet file can be read only with its end.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from typing import TYPE_CHECKING, Any

from usdt.base.errors import TargetError, TracingError
from usdt.engine.output.output_file import OutputFile
from usdt.engine.output.parquet.columns import Columns
from usdt.engine.output.streams.json_stream import JsonStream

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from usdt.engine.output.parquet.columns import Flat
    from usdt.engine.output.parquet.formatter import Row

__all__ = ("LiveParquetStream", "ParquetStream")

_WAITING = 4096  # rows that wait to be converted
_WAITING_BYTES = 8 << 20  # of their records or lines
_GROUP = 1 << 17  # rows of a row group
_GROUP_BYTES = 64 << 20  # of a row group in memory


class ParquetStream(OutputFile):
    """A Parquet file that is written as a JSON stream: a header, objects, losses.

    Objects may be lines, or rows of a :class:`RowFormatter`. Losses, and the header, become
    metadata of the file.

    Args:
        path: the file.
        private: create the file for its owner only.

    Attributes:
        columns: the columns; those of a formatter, if it makes rows.

    Raises:
        TargetError: the file cannot be written, or is none.
        TracingError: pyarrow is not installed.
    """

    def __init__(self, path: str | None, *, private: bool = False) -> None:
        self._path = os.path.realpath(path or "")
        self.columns = Columns()
        self._arrays, self._tables = _modules(path or "")
        _refuse_special(self._path, path or "")
        super().__init__(f"{self._path}.part", private=private)
        self.name = path or ""
        self._header: dict[str, Any] = {}
        self._offset = 0
        self._losses: list[dict[str, Any]] = []
        self._waiting: list[Any] = []
        self._waiting_bytes = 0
        self._batches: list[Any] = []
        self._rows = 0
        self._bytes = 0
        self._kinds: dict[str, Any] = {}
        self._schema: Any = None
        self._writer: Any = None
        self._failed = False  # to write

    # ------------------------------------------------------------ input

    def write(self, lines: Sequence[Any]) -> None:
        """Add lines of a JSON stream, then rows.

        Raises:
            SyscallError: the write failed, for example because the disk is full.
        """
        first = next((at for at, line in enumerate(lines) if not isinstance(line, str)), len(lines))
        for line in lines[:first]:
            if line:
                self._object(json.loads(line), len(line))
        if first < len(lines):
            rows = lines[first:] if first else lines
            self._add(rows, sum(plan.size for plan, *_ in rows))

    def _object(self, found: dict[str, Any], size: int) -> None:
        if "usdt" in found:
            self._header = found
            self.add_command_columns()
        if "clock" in found:
            clock = found["clock"]
            self._offset = clock["realtime"] - clock["monotonic"]
        elif "probe" in found and ("count" in found or "time" in found):
            self._add([self._tables.flat_object(found)], size)
        else:
            self._losses.append(found)

    def add_command_columns(self) -> None:
        """Add the columns that every file of the command has, if the header is known."""
        if self._header:
            self.columns.add_command(self._header["command"])

    def _add(self, rows: Sequence[Row | Flat], size: int) -> None:
        if self._waiting and type(rows[0]) is not type(self._waiting[0]):
            self._convert()
        self._waiting += rows
        self._waiting_bytes += size
        if len(self._waiting) >= _WAITING or self._waiting_bytes >= _WAITING_BYTES:
            self._convert()

    def write_bytes(self, content: bytes) -> None:
        """Write bytes of the Parquet format."""
        try:
            super().write_bytes(content)
        except BaseException:
            self._failed = True
            raise

    # ------------------------------------------------------------ output

    def _convert(self) -> None:
        # Makes a batch of the rows that wait, and a row group of enough batches.
        rows, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if not rows:
            return
        host = self._header.get("host", "")
        if isinstance(rows[0], tuple):
            self._freeze([])
            found = self._tables.columns_of_rows(rows, self._kinds, host)
        else:
            self._freeze(rows)
            found = self._tables.columns_of_objects(rows, host)
        offset = self._offset
        batch = self._arrays.batch_of(self._schema, self._kinds, found, len(rows), offset)
        self._batches.append(batch)
        self._rows += len(rows)
        self._bytes += batch.nbytes
        if self._rows >= _GROUP or self._bytes >= _GROUP_BYTES:
            self._flush()

    def _freeze(self, rows: list[Flat]) -> None:
        if self._schema is None:
            self.columns.add_values(rows)
            self._kinds = self.columns.freeze()
            self._schema = self._arrays.schema_of(self._kinds)

    def _flush(self) -> None:
        # Writes a row group.
        if self._writer is None:
            self._writer = self._arrays.writer(_Sink(self), self._schema)
        if self._batches:
            table = self._arrays.whole(self._batches, self._schema)
            self._batches, self._rows, self._bytes = [], 0, 0
            self._writer.write_table(table, _GROUP)

    def _finish(self) -> None:
        # Writes what is left, the metadata and the end of the file.
        self._convert()
        self._freeze([])
        self._flush()
        told = {"usdt": self._header, "usdt.end": self._losses}
        self._writer.add_key_value_metadata({key: json.dumps(one) for key, one in told.items()})
        self._writer.close()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with contextlib.ExitStack() as stack:
            part = f"{self._path}.part"
            removal = stack.enter_context(contextlib.ExitStack())
            removal.callback(_remove, part)
            stack.callback(self.close)
            found = self._begun or self._waiting or self._batches
            if not self._failed and (kind is None or found):
                self._finish()
                os.replace(part, self._path)  # noqa: PTH105 - avoids importing pathlib
                removal.pop_all()


class LiveParquetStream(JsonStream, ParquetStream):
    """The same of a run on this machine, with the clock repeated as in a JSON stream."""


class _Sink:
    # A file as pyarrow takes it.
    closed = False

    def __init__(self, output: OutputFile) -> None:
        self._output = output
        self._position = 0

    def write(self, data: bytes) -> int:
        self._output.write_bytes(data)
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def _modules(path: str) -> tuple[ModuleType, ModuleType]:
    try:
        from usdt.engine.output.parquet import arrays, tables  # noqa: PLC0415 - pyarrow is an extra
    except ImportError as err:
        if err.name is not None and err.name.partition(".")[0] != "pyarrow":
            raise
        raise TracingError(
            f"{path}: Parquet needs pyarrow: pip install 'usdt-toolkit[parquet]'"
        ) from err
    return arrays, tables


def _refuse_special(path: str, name: str) -> None:
    with contextlib.suppress(OSError):
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - avoids importing pathlib
            raise TargetError(f"{name}: Parquet needs a regular file")


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)  # noqa: PTH108 - avoids importing pathlib
