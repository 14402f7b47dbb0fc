"""The unwind table of a file: ``.eh_frame``, found through ``.eh_frame_hdr``, or ``.debug_frame``.

Linux Standard Base Core 5.0, section 10.6 (``.eh_frame``, ``.eh_frame_hdr``, DW_EH_PE_…); DWARF 5,
section 6.4.1 (``.debug_frame``). ``.eh_frame_hdr`` has a sorted table of functions, so that only
the entries of functions on stacks are read.
"""

from __future__ import annotations

import bisect
import contextlib
import struct
from array import array
from typing import TYPE_CHECKING, NamedTuple

from usdt.dwarf.units.errors import MalformedDwarf
from usdt.dwarf.units.forms import read_sleb128, read_uleb128
from usdt.unwind.instructions import CommonInformation, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from usdt.dwarf.units.forms import Bytes
    from usdt.elf.file import ElfFile
    from usdt.unwind.rules import Row

__all__ = ("FrameTable", "Function")

_MAX_ENTRY = 1 << 20  # bytes of one entry
_MAX_FUNCTIONS = 4 << 20
_MAX_CACHED = 1 << 14  # functions whose rows are kept
_SHF_COMPRESSED = 0x800
_OMITTED = 0xFF  # DW_EH_PE_omit
_PC_RELATIVE, _DATA_RELATIVE = 0x10, 0x30
_INDIRECT = 0x80
_SDATA4_DATA_RELATIVE = 0x3B  # the encoding of all known linkers' tables
_USUAL = struct.Struct("<IIiIB")  # length, CIE, start, size, length of augmentation data
_USUAL_POINTER = 0x1B  # relative to itself, signed, four bytes
_ENTRY = 8  # bytes of an entry of that table
_HEADER_START = 4  # bytes before the first pointer of .eh_frame_hdr
#: Formats of encoded pointers of a fixed size (DW_EH_PE_…): size, signed.
_FIXED = {
    0x00: (8, False),
    0x02: (2, False),
    0x03: (4, False),
    0x04: (8, False),
    0x0A: (2, True),
    0x0B: (4, True),
    0x0C: (8, True),
}
_MASK = (1 << 64) - 1


class _Contents(NamedTuple):
    # Bytes of a section that is loaded at ``address``; ``debug``: it is a .debug_frame.
    data: Bytes
    address: int
    debug: bool = False


class Function(NamedTuple):
    """A frame description entry (FDE)."""

    start: int
    end: int
    common: CommonInformation
    instructions: bytes


class FrameTable:
    """The unwind table of a file.

    Args:
        elf: the file; it stays open as long as the table is used.

    Raises:
        MalformedDwarf: the table is damaged.
    """

    def __init__(self, elf: ElfFile) -> None:
        self.path = elf.path
        self._commons: dict[int, CommonInformation] = {}
        self._rows: dict[int, tuple[int, list[int], list[Row]]] = {}
        self._starts: Sequence[int] = ()
        self._positions: Sequence[int] = ()
        self._contents = _Contents(b"", 0)
        self._open(elf)

    def __bool__(self) -> bool:
        """Return whether there is a table at all."""
        return bool(self._starts)

    def row(self, address: int) -> Row | None:
        """Return the row of an instruction, by link-time address; None if no function has it.

        Raises:
            MalformedDwarf: the table is damaged there.
        """
        index = bisect.bisect_right(self._starts, address) - 1
        if index < 0:
            return None
        found = self._rows.get(index)
        if found is None:
            found = self._read(index)
            if len(self._rows) >= _MAX_CACHED:
                self._rows.clear()
            self._rows[index] = found
        end, starts, rows = found
        if address >= end:
            return None
        return rows[bisect.bisect_right(starts, address) - 1]

    def functions(self) -> Iterator[tuple[int, Function | None]]:
        """Yield the first address of each function, ascending, and its entry; None: damaged."""
        data = bytes(self._contents.data[:])
        for start, position in zip(self._starts, self._positions, strict=True):
            function = None
            with contextlib.suppress(IndexError, MalformedDwarf):
                function = self._usual(data, position) or self._function(position)
            yield start, function

    def _usual(self, data: bytes, position: int) -> Function | None:
        # Decode an entry of the form that compilers write; None if it has another form.
        if not 0 <= position <= len(data) - _USUAL.size or self._contents.debug:
            return None
        length, identity, start, size, augmentation = _USUAL.unpack_from(data, position)
        end = position + 4 + length
        common = self._commons.get(position + 4 - identity)
        if common is None or common.pointer_encoding != _USUAL_POINTER or not common.augmented:
            return None
        if augmentation >= 0x80 or end > len(data) or length > _MAX_ENTRY:
            return None
        start += self._contents.address + position + 8
        here = position + _USUAL.size + augmentation
        return Function(start & _MASK, (start + size) & _MASK, common, data[here:end])

    def _read(self, index: int) -> tuple[int, list[int], list[Row]]:
        position = self._positions[index]
        try:
            function = self._function(position)
        except IndexError:
            function = None
        if function is None:
            raise MalformedDwarf(f"{self.path}: no call frame information at {position:#x}")
        try:
            starts, rows = rows_of(function.common, function.instructions, function.start)
        except MalformedDwarf as err:
            raise MalformedDwarf(f"{self.path}: {err}") from err
        return function.end, starts, rows

    # ------------------------------------------------------------ where functions are

    def _open(self, elf: ElfFile) -> None:
        section = elf.section(".eh_frame")
        if section is not None and section.size:
            self._contents = _Contents(elf.data(section), section.address)
            header = elf.section(".eh_frame_hdr")
            if header is not None and self._use_header(elf.contents(header), header.address):
                return
            self._scan(len(elf.data(section)))
            return
        section = elf.section(".debug_frame")
        if section is not None and section.size and not section.flags & _SHF_COMPRESSED:
            self._contents = _Contents(elf.data(section), 0, debug=True)
            self._scan(section.size)

    def _use_header(self, data: bytes, address: int) -> bool:
        # Take starts and positions from .eh_frame_hdr; return False if it has no usable table.
        if len(data) < _HEADER_START or data[0] != 1 or data[3] != _SDATA4_DATA_RELATIVE:
            return False
        try:
            _, at = self._pointer(data, _HEADER_START, data[1], address)
            count, at = self._pointer(data, at, data[2], address)
        except IndexError:
            return False
        if not count or count > _MAX_FUNCTIONS or at + count * _ENTRY > len(data):
            return False
        table = array("i")
        table.frombytes(data[at : at + count * _ENTRY])
        self._starts = [address + start for start in table[::2]]
        shift = address - self._contents.address
        self._positions = [shift + position for position in table[1::2]]
        return all(a <= b for a, b in zip(self._starts, self._starts[1:], strict=False))

    def _scan(self, size: int) -> None:
        # Read every entry, since there is no table of them.
        found: list[tuple[int, int]] = []
        for position in self._entries(size):
            try:
                function = self._function(position)
            except (IndexError, MalformedDwarf):
                continue
            if function is not None and function.start:
                found.append((function.start, position))
        found.sort()
        self._starts = [start for start, _ in found]
        self._positions = [position for _, position in found]

    def _entries(self, size: int) -> Iterator[int]:
        position = 0
        for _ in range(_MAX_FUNCTIONS):
            if position + 4 > size:
                return
            try:
                at, end, _ = self._entry(position)
            except (IndexError, MalformedDwarf):
                return
            if at == end and not self._contents.debug:
                return  # the terminator
            yield position
            position = end

    # ------------------------------------------------------------ entries

    def _entry(self, position: int) -> tuple[int, int, int]:
        # Return where an entry's ID is, where the entry ends, and the bytes of its ID.
        data = self._contents.data
        if position < 0:
            raise IndexError(position)
        length, at, word = self._word(position, 4), position + 4, 4
        if length == 0xFFFFFFFF:
            length, at = self._word(at, 8), at + 8
            word = 8 if self._contents.debug else 4
        if length > _MAX_ENTRY or at + length > len(data):
            raise MalformedDwarf(f"{self.path}: {length} bytes of call frame information")
        return at, at + length, word

    def _word(self, at: int, size: int) -> int:
        data = bytes(self._contents.data[at : at + size])
        if len(data) < size:
            raise IndexError(at)
        return int.from_bytes(data, "little")

    def _function(self, position: int) -> Function | None:
        # Return the function described at a position; None if it is common information.
        at, end, word = self._entry(position)
        if end - at < word:
            return None
        identity = self._word(at, word)
        if self._contents.debug:
            if identity == (1 << 8 * word) - 1:
                return None
            common_at = identity
        else:
            if not identity:
                return None
            common_at = at - identity
        common = self._commons.get(common_at)
        if common is None:
            common = self._commons[common_at] = self._common(common_at)
        data = bytes(self._contents.data[at + word : end])
        base = self._contents.address + at + word
        encoding = common.pointer_encoding
        start, here = self._pointer(data, 0, encoding, base)
        size, here = self._pointer(data, here, encoding & 0x0F, base)
        if common.augmented:
            length, here = read_uleb128(data, here)
            here += length
        return Function(start, start + size, common, data[here:])

    def _common(self, position: int) -> CommonInformation:
        at, end, word = self._entry(position)
        data = bytes(self._contents.data[at:end])
        identity = int.from_bytes(data[:word], "little")
        if identity != ((1 << 8 * word) - 1 if self._contents.debug else 0):
            raise MalformedDwarf(f"{self.path}: no common information at {position:#x}")
        version = data[word]
        stop = data.index(b"\0", word + 1) if b"\0" in data[word + 1 :] else len(data)
        augmentation = data[word + 1 : stop].decode("latin-1")
        here = stop + 1 + (2 if version >= 4 else 0)  # address and segment size
        code_factor, here = read_uleb128(data, here)
        data_factor, here = read_sleb128(data, here)
        if version == 1:
            register, here = data[here], here + 1
        else:
            register, here = read_uleb128(data, here)
        encoding, signal = 0, False
        if augmentation.startswith("z"):
            length, here = read_uleb128(data, here)
            encoding, signal = self._augmentation(augmentation[1:], data, here)
            here += length
        elif augmentation:
            raise MalformedDwarf(f"{self.path}: augmentation {augmentation!r} is not known")
        return CommonInformation(
            code_factor,
            data_factor,
            register,
            encoding,
            augmentation.startswith("z"),
            signal,
            data[here:],
        )

    def _augmentation(self, letters: str, data: bytes, at: int) -> tuple[int, bool]:
        # Return the pointer encoding, and whether functions are signal trampolines.
        encoding, signal = 0, False
        for letter in letters:
            match letter:
                case "R":
                    encoding, at = data[at], at + 1
                case "L":
                    at += 1
                case "P":
                    _, at = self._pointer(data, at + 1, data[at] & ~_INDIRECT, 0)
                case "S":
                    signal = True
                case "B" | "G":  # arm64: signed with key B; memory tagging of the stack
                    pass
                case _:  # the length says where the instructions begin
                    break
        return encoding, signal

    def _pointer(self, data: bytes, at: int, encoding: int, base: int) -> tuple[int, int]:
        # Return an encoded pointer and the position after it; ``base``: the address of data[0].
        if encoding == _OMITTED:
            return 0, at
        form, relative = encoding & 0x0F, encoding & 0x70
        if form in _FIXED:
            size, signed = _FIXED[form]
            raw = data[at : at + size]
            if len(raw) < size:
                raise IndexError(at)
            value, end = int.from_bytes(raw, "little", signed=signed), at + size
        elif form == 0x01:
            value, end = read_uleb128(data, at)
        elif form == 0x09:
            value, end = read_sleb128(data, at)
        else:
            raise MalformedDwarf(f"{self.path}: pointers of encoding {encoding:#x}")
        if relative == _PC_RELATIVE:
            value += base + at
        elif relative == _DATA_RELATIVE:
            value += base
        elif relative:
            raise MalformedDwarf(f"{self.path}: pointers of encoding {encoding:#x}")
        return value & _MASK, end
