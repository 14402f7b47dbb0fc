"""One symbol table of an ELF file: its symbols by name and by address.

The table stays in the file. A name is searched for as bytes among the strings, and only
symbols that have it are decoded. For addresses an index of numbers is made once; names are read
when a symbol is returned.
"""

from __future__ import annotations

import bisect
import functools
import operator
import sys
from array import array
from itertools import accumulate, chain, compress, count, islice
from typing import TYPE_CHECKING

from usdt.base.errors import ElfError
from usdt.base.text import encoded
from usdt.elf.format import (
    ELF_STRUCTS,
    SHN_ABS,
    SHN_COMMON,
    SHN_UNDEF,
    SHT_DYNSYM,
    SHT_SYMTAB,
    STB_GLOBAL,
    STB_LOCAL,
    STB_WEAK,
    STT_FILE,
    STT_FUNC,
    STT_GNU_IFUNC,
    STT_NOTYPE,
    STT_OBJECT,
    STT_TLS,
    STV_DEFAULT,
    excerpt,
)
from usdt.elf.symbol import ElfSymbol

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Sequence
    from struct import Struct

    from usdt.elf.file import ElfFile
    from usdt.elf.format import Section

__all__ = ("ALL_ADDRESSES", "ElfSymbol", "Span", "SymbolTable", "symbol_addresses")

_CODE_AND_DATA = frozenset((STT_NOTYPE, STT_OBJECT, STT_FUNC, STT_GNU_IFUNC))
_DATA = frozenset((STT_NOTYPE, STT_OBJECT, STT_TLS))
_NO_ADDRESS = frozenset((SHN_COMMON, SHN_ABS))
_NOT_HERE = _NO_ADDRESS | {SHN_UNDEF}
_DOLLAR = ord("$")
_EM_PPC64, _EM_ARM = 21, 40
_INDEX_BITS = 22
_MAX_SYMBOLS = 1 << _INDEX_BITS
_MAX_NAME = 1 << 14  # bytes; C++ has names of thousands
_MAX_TYPED = 1 << 10  # bytes; nobody misspells longer ones
_MAX_NAMES = 1 << 20
_MAX_MATCHES = 1 << 20  # positions of a string table where one name ends a string
_LAST_ADDRESS = (1 << 64) - 1
_MAX_ASKED = 4
_MAX_NESTED = 64  # symbols that may begin between an address and the start of its function


# Addresses from the first to below the second have the same symbol.
Span = tuple[int, int, ElfSymbol | None]
ALL_ADDRESSES: Span = -1 << 64, 1 << 65, None  # whatever is added to them
_Row = tuple[int, int, int, int, int, int]  # name (a position), address, size, info, section, other


class SymbolTable:
    """The symbols of one section.

    Args:
        elf: the file; must stay open as long as the table is used.
        section: of type SHT_SYMTAB or SHT_DYNSYM.
        bias: what to add to the caller's link-time addresses for those of ``elf``, which may be a
            debug file.

    Attributes:
        dynamic: whether it is ``.dynsym``.

    Raises:
        ElfError: the table or its strings lie outside the file, or are larger than real ones.
    """

    def __init__(self, elf: ElfFile, section: Section, bias: int = 0) -> None:
        sections = elf.sections
        if not 0 < section.link < len(sections):
            raise ElfError(
                f"{elf.path}: section {excerpt(section.name)} has its strings in section"
                f" {section.link}, which does not exist"
            )
        self._elf = elf
        self._bias = bias
        self._wide = elf.bits == 64
        self._layout = ELF_STRUCTS[elf.bits, elf.byteorder]
        self._sym = self._layout.sym
        self.dynamic = section.name == ".dynsym"
        count = section.size // self._sym.size
        if count > _MAX_SYMBOLS:
            raise ElfError(
                f"{elf.path}: section {excerpt(section.name)} has {count} symbols,"
                f" at most {_MAX_SYMBOLS} are read"
            )
        self._count = count
        self._asked = 0  # addresses that were searched without an index
        self._rows = elf.data(section)
        self._string_section = sections[section.link]
        self._strings = elf.data(self._string_section)

    # ------------------------------------------------------------ by name

    def named(self, name: str) -> Iterator[ElfSymbol]:
        """Return the symbols with a name, in table order; versions of symbols do not count."""
        return self._named(name, _CODE_AND_DATA)

    def variables(self, name: str) -> Iterator[ElfSymbol]:
        """Return the symbols of data with a name, including thread-local ones, in table order."""
        return self._named(name, _DATA)

    def _named(self, name: str, kinds: Container[int]) -> Iterator[ElfSymbol]:
        wanted = encoded(name)
        if wanted and b"\0" not in wanted:
            for row in self._rows_named(wanted + b"\0", wanted + b"@"):  # memcpy@@GLIBC_2.14
                if row[3] & 15 in kinds and row[4] not in _NO_ADDRESS:
                    yield from self._symbols(row, name)

    def data_at(self, address: int) -> list[ElfSymbol]:
        """Return the symbols of data at a link-time address."""
        return self._with_names(row for row in self._rows_at(address) if row[3] & 15 in _DATA)

    def addresses(self, name: str) -> tuple[int, ...]:
        """Return the distinct addresses of symbols with exactly this name, in table order.

        Thread-local, undefined and common symbols and names of source files have no address.

        Raises:
            ElfError: the name ends too many strings.
        """
        wanted = encoded(name)
        if not wanted or b"\0" in wanted:
            return ()
        return tuple(
            dict.fromkeys(
                address
                for _, address, _, info, section, _ in self._rows_named(wanted + b"\0")
                if section not in (SHN_UNDEF, SHN_COMMON) and info & 15 not in (STT_FILE, STT_TLS)
            )
        )

    def starting_with(self, *starts: str) -> Iterator[tuple[int, int]]:
        """Yield address and type (STT_…) of the symbols defined here whose names begin so.

        Raises:
            ElfError: too many strings have one of the beginnings.
        """
        for _, address, _, info, section, _ in self._rows_named(*map(encoded, starts)):
            if section not in _NOT_HERE:
                yield address, info & 15

    def matching(self, wanted: Callable[[str], bool], text: str = "") -> Iterator[ElfSymbol]:
        """Yield the symbols whose names ``wanted`` accepts.

        Args:
            wanted: returns whether a symbol of a name is wanted.
            text: what all these names contain; with it, only such names are looked at.
        """
        strings = self._elf.contents(self._string_section)
        for row in self._rows_containing(strings, encoded(text)) if text else self._decoded():
            if row[3] & 15 in _CODE_AND_DATA and row[0] and row[4] not in _NO_ADDRESS:
                end = strings.find(b"\0", row[0], row[0] + _MAX_NAME)
                raw = strings[row[0] : end] if end > 0 else b""
                # $x, $t, $d: where code and data of ARM and RISC-V begin.
                if raw and raw[0] != _DOLLAR and wanted(name := _without_version(raw)):
                    yield from self._symbols(row, name)

    def names_of(self, kinds: Container[int], spans: Sequence[tuple[int, int]]) -> list[str]:
        """Return the names of the symbols of some types with an address in one of some spans.

        No symbol is made, so that a hundred thousand names take a twentieth of a second.

        Args:
            kinds: STT_….
            spans: link-time addresses, each from the first to below the second.
        """
        strings = self._elf.contents(self._string_section)
        spans = [(low + self._bias, high + self._bias) for low, high in spans]
        lowest = min((low for low, _ in spans), default=0)
        highest = max((high for _, high in spans), default=0)
        placed = {
            row[0]: row[4 if self._wide else 1]
            for row in self._unpacked(self._sym)
            if lowest <= row[4 if self._wide else 1] < highest
            and row[1 if self._wide else 3] & 15 in kinds
            and row[3 if self._wide else 5] not in _NOT_HERE
        }
        if len(spans) > 1 or self._elf.machine == _EM_ARM:
            thumb = self._elf.machine == _EM_ARM
            placed = {
                name: address
                for name, address in placed.items()
                if any(low <= address < high for low, high in spans) and not (thumb and address & 1)
            }
        find = strings.find
        ends = ((at, find(b"\0", at, at + _MAX_TYPED)) for at in islice(placed, _MAX_NAMES))
        raw = b"\0".join([strings[at:end] for at, end in ends if end > at])
        # Decoding all at once takes a tenth of the time.
        names = raw.decode("utf-8", "surrogateescape").split("\0")
        if b"@" in raw:
            names = [one.partition("@")[0] for one in names]
        return [one for one in names if one[:1] not in ("", "$")]

    def data_containing(self, text: str) -> Iterator[tuple[str, int, int]]:
        """Yield name, address and type of the symbols of data whose names contain a text."""
        strings = self._elf.contents(self._string_section)
        for row in self._rows_containing(strings, encoded(text)):
            if row[3] & 15 in (STT_OBJECT, STT_TLS) and row[4] not in _NOT_HERE:
                raw = self._strings.string(row[0], _MAX_NAME) or b""
                yield _without_version(raw), row[1], row[3] & 15

    def name(self, number: int) -> bytes:
        """Return the name of a symbol by its number; b"" if the table does not hold it."""
        if not 0 <= number < self._count:
            return b""
        position = self._row(number)[0]
        return self._strings.string(position, _MAX_NAME) or b""

    def _rows_named(self, *strings: bytes) -> Iterator[_Row]:
        # The symbols whose names are at an occurrence of one of the strings. Linkers store a name
        # as the tail of another.
        positions: set[int] = set()
        for wanted in strings:
            for position in self._strings.find_all(wanted):
                positions.add(position)
                if len(positions) > _MAX_MATCHES:
                    raise ElfError(
                        f"{self._elf.path}: section {excerpt(self._string_section.name)} ends too"
                        f" many strings in {wanted!r}"
                    )
        names = self._column("I", 0) if positions else ()
        yield from map(self._row, [*compress(count(), map(positions.__contains__, names))])

    def _rows_containing(self, strings: bytes, text: bytes) -> Iterator[_Row]:
        # The symbols whose names contain a text. A name may begin inside the string of another.
        starts: list[int] = []
        ends: list[int] = []  # the last place of the text in the string
        at = strings.find(text)
        while at >= 0:
            end = strings.find(b"\0", at)
            starts.append(strings.rfind(b"\0", 0, at) + 1)
            ends.append(strings.rfind(text, at, end if end >= 0 else None))
            at = strings.find(text, end) if end >= 0 else -1
        if starts:
            for row in self._decoded():
                index = bisect.bisect_right(starts, row[0]) - 1
                if index >= 0 and row[0] <= ends[index]:
                    yield row

    # ------------------------------------------------------------ by address

    @functools.cached_property
    def _index(self) -> tuple[array[int], array[int]]:
        # Addresses and numbers of symbols, sorted by address. Twelve bytes per symbol, since a
        # browser has a million of them.
        mask = (1 << _INDEX_BITS) - 1
        packed = sorted(self._packed())
        return (
            array("Q", [one >> _INDEX_BITS for one in packed]),
            array("I", [one & mask for one in packed]),
        )

    def _packed(self) -> Iterator[int]:
        # For each symbol its address, and in the low bits its number.
        rows = enumerate(self._unpacked(self._sym))
        thumb = ~1 if self._elf.machine == _EM_ARM else ~0
        if self._wide:
            for number, (name, info, _, section, value, _) in rows:
                if info & 15 in _CODE_AND_DATA and value and name and section not in _NOT_HERE:
                    yield value << _INDEX_BITS | number
        else:
            for number, (name, value, _, info, _, section) in rows:
                if info & 15 in _CODE_AND_DATA and value and name and section not in _NOT_HERE:
                    yield (value & thumb) << _INDEX_BITS | number

    @functools.cached_property
    def _sizes(self) -> array[int]:
        # By number: the third word of a row, whether words have 32 or 64 bits.
        return self._column("Q" if self._wide else "I", 2)

    def _column(self, typecode: str, word: int) -> array[int]:
        # One word of every row.
        column = array(typecode)
        for piece in self._rows.pieces(self._sym.size):
            column += array(typecode, piece)[word :: self._sym.size // column.itemsize]
        if self._elf.byteorder != sys.byteorder:
            column.byteswap()
        return column

    def __len__(self) -> int:
        return len(self._index[0])

    def find(self, address: int) -> ElfSymbol | None:
        """Return the symbol that covers a link-time address, the preferred of several."""
        return self.span(address)[2]

    def span(self, address: int) -> Span:
        """Return the same with addresses around it that have the same answer."""
        (starts, numbers), sizes, reach = self._index, self._sizes, self._reach
        address += self._bias
        last = bisect.bisect_right(starts, address) - 1
        low = starts[last] if last >= 0 else ALL_ADDRESSES[0]
        high = starts[last + 1] if last + 1 < len(starts) else ALL_ADDRESSES[1]
        symbol = None
        if last >= 0 and address >= reach[last]:
            low, first = max(low, reach[last]), last  # no symbol is so long
        else:
            first = max(-1, last - _MAX_NESTED)
        for index in range(last, first, -1):
            start = starts[index]
            end = start + sizes[numbers[index]]
            if address < end:
                rows = self._rows_with(index)
                if len(rows) > 1:
                    ends = [start + row[2] for row in rows]
                    low = max((low, *(one for one in ends if one <= address)))
                    end = min(one for one in ends if one > address)
                    rows = [row for row in rows if address < start + row[2]]
                high = min(high, end)
                symbol = min(self._with_names(rows), key=_rank, default=None)
                break
            low = max(low, end)
        else:
            low, high, symbol = self._unsized(last, address, low, high)
        return low - self._bias, high - self._bias, symbol

    @functools.cached_property
    def _reach(self) -> array[int]:
        # For each symbol of the index, where the farthest of those up to it ends.
        (starts, numbers), sizes = self._index, self._sizes
        ends = map(operator.add, starts, map(sizes.__getitem__, numbers))
        reach = [*accumulate(ends, max)]
        if reach and reach[-1] > _LAST_ADDRESS:  # a damaged size
            reach = [min(one, _LAST_ADDRESS) for one in reach]
        return array("Q", reach)

    def starting_at(self, address: int) -> list[ElfSymbol]:
        """Return the functions that begin at a link-time address."""
        return self._with_names(row for row in self._rows_at(address) if row[3] & 15 != STT_OBJECT)

    def containing(self, address: int) -> list[ElfSymbol]:
        """Return the functions that contain a link-time address, by their sizes."""
        starts, numbers = self._index
        address += self._bias
        last = bisect.bisect_right(starts, address)
        rows = [self._row(number) for number in numbers[max(0, last - _MAX_NESTED) : last]]
        return self._with_names(
            row for row in rows if row[3] & 15 != STT_OBJECT and address < self._start(row) + row[2]
        )

    def _rows_at(self, address: int) -> list[_Row]:
        if (
            "_index" not in self.__dict__
            and self._asked < _MAX_ASKED
            and self._elf.machine != _EM_ARM
        ):
            self._asked += 1  # an index costs ten times as much as one search
            equal = map((address + self._bias).__eq__, self._column("Q" if self._wide else "I", 1))
            rows = map(self._row, [*compress(count(), equal)])
            found = [row for row in rows if all(row[:2]) and row[4] not in _NOT_HERE]
            found = [row for row in found if row[3] & 15 in _CODE_AND_DATA]
            return found[-_MAX_NESTED - 1 :]
        starts = self._index[0]
        last = bisect.bisect_right(starts, address + self._bias) - 1
        return self._rows_with(last) if last >= 0 and starts[last] == address + self._bias else []

    def _rows_with(self, last: int) -> list[_Row]:
        # The symbols with the same address as one in the index, up to it.
        starts, numbers = self._index
        first = bisect.bisect_left(starts, starts[last])
        return [self._row(number) for number in numbers[max(first, last - _MAX_NESTED) : last + 1]]

    def _unsized(self, last: int, address: int, low: int, high: int) -> Span:
        # Assembly code often gives no size: such a symbol extends to the next in its section.
        starts, numbers = self._index
        if last < 0 or self._sizes[numbers[last]]:
            return low, high, None
        start = starts[last]
        section = bisect.bisect_right(self._section_ends, (start, 1 << 64)) - 1
        if section < 0:
            return low, high, None
        end = self._section_ends[section][1]
        if address >= end:
            return max(low, end), high, None
        rows = (row for row in self._rows_with(last) if not row[2])
        return low, min(high, end), next(iter(self._with_names(rows)), None)

    @functools.cached_property
    def _section_ends(self) -> list[tuple[int, int]]:
        sections = self._elf.sections
        return sorted(
            (one.address, one.address + one.size) for one in sections if one.address and one.size
        )

    def _with_names(self, rows: Iterable[_Row]) -> list[ElfSymbol]:
        found: list[ElfSymbol] = []
        for row in rows:
            name = self._strings.string(row[0], _MAX_NAME)
            # $x, $t, $d: where code and data of ARM and RISC-V begin.
            if name and name[0] != _DOLLAR:
                found += self._symbols(row, _without_version(name))
        return found

    # ------------------------------------------------------------ rows

    def _row(self, number: int) -> _Row:
        size = self._sym.size
        fields = self._sym.unpack(self._rows[number * size : (number + 1) * size])
        if self._wide:
            name, info, other, section, value, size = fields
        else:
            name, value, size, info, other, section = fields
        return name, value, size, info, section, other

    def _unpacked(self, layout: Struct) -> Iterator[tuple[int, ...]]:
        return chain.from_iterable(map(layout.iter_unpack, self._rows.pieces(layout.size)))

    def _decoded(self) -> Iterator[_Row]:
        if self._wide:
            for name, info, other, section, value, size in self._unpacked(self._sym):
                yield name, value, size, info, section, other
        else:
            for name, value, size, info, other, section in self._unpacked(self._sym):
                yield name, value, size, info, section, other

    def _start(self, row: _Row) -> int:
        return row[1] & ~1 if self._elf.machine == _EM_ARM else row[1]

    def _symbols(self, row: _Row, name: str) -> tuple[ElfSymbol, ...]:
        # A row as a symbol; none where it has no address.
        _, value, size, info, section, other = row
        imported = section == SHN_UNDEF
        if not imported and not value and info & 15 != STT_TLS:
            return ()
        start = self._start(row)
        local = _local_entry(other) if self._elf.machine == _EM_PPC64 else 0
        address = 0 if imported else start - self._bias
        thumb = start != value
        exported = self.dynamic and info >> 4 != STB_LOCAL and other & 3 == STV_DEFAULT
        kind, binding = info & 15, info >> 4
        return (ElfSymbol(name, address, size, kind, binding, imported, thumb, local, exported),)


def symbol_addresses(elf: ElfFile, name: str) -> tuple[int, ...]:
    """Return the addresses of a symbol: of ``.symtab``, or of ``.dynsym`` if the first has none.

    Raises:
        ElfError: a table lies outside the file or is larger than any real one.
    """
    tables = (one for one in elf.sections if one.type in (SHT_SYMTAB, SHT_DYNSYM))
    ordered = sorted(tables, key=lambda one: one.type)  # .symtab first
    found = (SymbolTable(elf, section).addresses(name) for section in ordered)
    return next(filter(None, found), ())


def _local_entry(other: int) -> int:
    # PPC64_LOCAL_ENTRY_OFFSET of elf.h; other ABIs leave the bits 0.
    kind = other >> 5
    return (1 << kind) >> 2 << 2 if kind < 7 else 0


def _without_version(raw: bytes) -> str:
    # memcpy@@GLIBC_2.14
    return raw.partition(b"@")[0].decode("utf-8", "surrogateescape")


def _rank(symbol: ElfSymbol) -> tuple[bool, int, int, int, str]:
    binding = {STB_GLOBAL: 0, STB_WEAK: 1}.get(symbol.binding, 2)
    name = symbol.name
    underscores = len(name) - len(name.lstrip("_")) if not name.startswith(("_Z", "_R")) else 0
    function = symbol.type in (STT_FUNC, STT_GNU_IFUNC)
    return not function, binding, underscores, len(name), name
