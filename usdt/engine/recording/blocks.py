"""The file format's bytes: the magic number and the blocks.

    0    8 bytes  MAGIC
    8    …        blocks, to the end of the file

A block is a header of 24 bytes and its content. The numbers of the header are little-endian on
every machine, so that blocks can be read without knowing their content:

    0    char[4]  kind
    4    u32      bytes of content
    8    u32      number of records (kind DATA), else 0
    12   u32      CRC-32 of the content (that of zlib and PNG)
    16   u32      0
    20   u32      CRC-32 of the 20 bytes before

The header's own checksum distinguishes a damaged length from a truncated file.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from importlib import import_module
from typing import TYPE_CHECKING

from usdt.base.errors import TracingError
from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import BinaryIO

__all__ = (
    "CGROUPS",
    "DATA",
    "END",
    "FILE",
    "FORMAT",
    "HEAD",
    "KSYM",
    "MAGIC",
    "MAPS",
    "MAX_CONTENT",
    "MAX_DESCRIPTIONS",
    "PYTHON",
    "SYMBOLS",
    "VARIANT",
    "VERSION",
    "Block",
    "CutError",
    "RecordingError",
    "frame",
    "read_block",
    "read_magic",
    "start_of",
)

MAGIC = b"\x89usdtrec"  # not a prefix of text; a transfer in text mode would damage the first byte
FORMAT = "usdt-recording"
VERSION = 2  # readers also know version 1
MAX_CONTENT = 16 << 20  # bytes: a reader must be able to allocate this many
MAX_DESCRIPTIONS = (
    64 << 20
)  # bytes of HEAD, VARIANT, FILE and END together: they are kept in memory

HEAD = b"HEAD"  # JSON: the header of the recording; the first block
VARIANT = b"CASE"  # JSON: probes and their records' layouts, before the first of these records
FILE = b"FILE"  # JSON: traced files and their build IDs
MAPS = b"MAPS"  # JSON: the mappings of a process, for the symbols of its stacks
KSYM = b"KSYM"  # the kernel's symbols, compressed by zlib: lines as in /proc/kallsyms
PYTHON = b"PYCO"  # JSON: code objects of a process, for the frames of its Python stacks
CGROUPS = b"CGRP"  # JSON: names of cgroups by ID, before the first record that shows one
DATA = b"DATA"  # records as they were in the ring buffer
END = b"END\0"  # JSON: losses; the last block

_HEADER = struct.Struct("<4sIIIII")
_MANY = 8 << 20  # bytes of content whose checksums cost more than the import of another module
_KINDS = frozenset({HEAD, VARIANT, FILE, MAPS, KSYM, PYTHON, CGROUPS, DATA, END})
#: The kinds that symbols and names come from.
SYMBOLS = (MAPS, KSYM, PYTHON, CGROUPS)


class RecordingError(TracingError, ValueError):
    """A file that is not a recording, has another version, or is damaged."""


class CutError(Exception):
    """The file is truncated.

    Attributes:
        size: number of bytes after the last complete block, or after the beginning.
        kind: kind of the truncated block, if its header is complete.
        rest: the part of its content that exists.
    """

    def __init__(self, size: int, kind: bytes = b"", rest: bytes = b"") -> None:
        super().__init__(size, kind, rest)
        self.size = size
        self.kind = kind
        self.rest = rest


@frozen
class Block:
    """One block.

    Attributes:
        kind: HEAD, CASE, …
        content: its bytes; length and checksum have been checked.
        records: number of records; 0 unless the kind is DATA.
        skipped: bytes of content that were not read.
    """

    kind: bytes
    content: bytes
    records: int = 0
    skipped: int = 0

    @property
    def size(self) -> int:
        """The size of the block in the file, in bytes."""
        return _HEADER.size + len(self.content) + self.skipped


class _Checksums:
    # CRC-32 of content. The module of the extra takes a tenth of the time of zlib; it is imported
    # once there is much content.
    def __init__(self) -> None:
        self._crc32: Callable[[bytes, int], int] = zlib.crc32
        self._left = _MANY  # bytes until then

    def of(self, pieces: Sequence[bytes]) -> int:
        value = size = 0
        for piece in pieces:
            value = self._crc32(piece, value)
            size += len(piece)
        if self._left > 0:
            self._left -= size
            if self._left <= 0:
                with contextlib.suppress(ImportError):
                    self._crc32 = import_module("isal.isal_zlib").crc32
        return value


_CHECKSUMS = _Checksums()


def start_of(kind: bytes, pieces: Sequence[bytes], records: int = 0) -> bytes:
    """Return the header of a block, which the pieces of its content follow in the file.

    Raises:
        RecordingError: the content is larger than a reader accepts.
    """
    size = sum(map(len, pieces))
    if size > MAX_CONTENT:
        raise RecordingError(f"a block of {size} bytes: at most {MAX_CONTENT} can be recorded")
    start = _HEADER.pack(kind, size, records, _CHECKSUMS.of(pieces), 0, 0)[:-4]
    return start + zlib.crc32(start).to_bytes(4, "little")


def frame(block: Block) -> bytes:
    """Return the bytes of a block in a file; raises the same error as :func:`start_of`."""
    return start_of(block.kind, [block.content], block.records) + block.content


def read_magic(stream: BinaryIO, name: str) -> None:
    """Read the beginning of a recording.

    Raises:
        RecordingError: the file is not a recording.
        CutError: the file ends within the magic number.
    """
    found = stream.read(len(MAGIC))
    if not MAGIC.startswith(found):
        raise RecordingError(f"{name}: not a recording of usdt record; it begins with {found!r}")
    if len(found) < len(MAGIC):
        raise CutError(len(found))


def read_block(stream: BinaryIO, *, skip_data: bool = False) -> Block | None:
    """Return the next block; None at the end of the file.

    Args:
        stream: positioned at the first byte of a block.
        skip_data: skip the content of DATA; the stream must be seekable.

    Raises:
        RecordingError: the block is damaged, or of an unknown kind.
        CutError: the file ends within the block.
    """
    start = stream.read(_HEADER.size)
    if not start:
        return None
    if len(start) < _HEADER.size:
        raise CutError(len(start))
    kind, length, records, checksum, zero, own = _HEADER.unpack(start)
    if zlib.crc32(start[:-4]) != own:
        raise RecordingError("the header of a block is damaged: its checksum does not fit")
    if kind not in _KINDS or length > MAX_CONTENT or zero or (records and kind != DATA):
        raise RecordingError(f"a block {kind!r} of {length} bytes is not known to this version")
    if skip_data and kind == DATA:
        here = stream.tell()
        end = stream.seek(0, os.SEEK_END)
        if here + length > end:
            raise CutError(_HEADER.size + end - here, kind)
        stream.seek(here + length)
        return Block(kind, b"", records, length)
    content = stream.read(length)
    if len(content) < length:
        raise CutError(_HEADER.size + len(content), kind, content)
    if _CHECKSUMS.of([content]) != checksum:
        raise RecordingError(f"the {length} bytes of a block are damaged: their checksum differs")
    return Block(kind, content, records)
