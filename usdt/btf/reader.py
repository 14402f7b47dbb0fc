"""``Btf``: the types of a kernel, a module or an object file, each decoded on first use.

The first use of an ID costs one pass over the records, to find where each begins. Split BTF (a
module's) continues its base: its type IDs start at ``base.end``, its string offsets at the length
of the base's strings.
"""

from __future__ import annotations

import functools
import sys
from array import array
from bisect import bisect_left
from itertools import islice
from typing import TYPE_CHECKING

from usdt.base.errors import BtfError, NotSupported
from usdt.base.text import encoded
from usdt.btf.decode import decode
from usdt.btf.files import FOLDER, KERNEL, modules, read_btf, read_or_map
from usdt.btf.format import MAX_NESTING, Kind, kind_of, nesting_error, parse_header
from usdt.btf.kernel_files import given_file, has_own_btf, name_file, read_other_btf
from usdt.btf.positions import kernel_positions, occurrences, record_positions
from usdt.btf.types import (
    Array,
    Composite,
    DataSection,
    Enum,
    Float,
    Int,
    Modifier,
    Pointer,
    Type,
    Typedef,
    Variable,
    Void,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ("Btf", "use_kernel_btf")

_MAX_STEPS = 256  # typedefs, modifiers and arrays followed to find a size
_MAX_HITS = 1000  # of a string offset's bytes among the records
_VOID = Void(0, "")
_LONG = {"long int", "long unsigned int", "long", "unsigned long", "long signed int"}
_LONG |= {"unsigned long int", "signed long", "signed long int"}


class Btf:
    """BTF in memory: types by ID and by name. Sizes and offsets are in bytes, unless named bits.

    Attributes:
        name: the name in error messages, for example a path.
        base: the BTF that this one continues, or None.
        first: ID of the first type that is not the base's; 1 without a base.
        order: byte order, "little" or "big".

    Raises:
        BtfError: the BTF is damaged, or has no type with that ID.

    Examples:
        >>> btf = usdt.bpf.BTF.from_kernel()
        >>> (type_id,) = btf.find("list_head", Kind.STRUCT)  # from usdt.btf.format import Kind
        >>> btf.size_of(type_id), [member.name for member in btf.type(type_id).members]
        (16, ['next', 'prev'])
    """

    @classmethod
    def from_kernel(cls) -> Btf:
        """Return the running kernel's types: the same object each time.

        They are those of the kernel itself, or else of its ``vmlinux`` on disk, or of the file that
        :func:`use_kernel_btf` names.

        Raises:
            NotSupported: the kernel has no BTF.
        """
        return _kernel_btf()

    @classmethod
    def from_sysfs(cls) -> Btf:
        """Return the types with the IDs that the running kernel knows.

        Raises:
            NotSupported: the kernel has no BTF.
        """
        return _own_btf()

    @property
    def has_kernel_ids(self) -> bool:
        """True if the running kernel knows the IDs of its types."""
        return (self.base or self).name == KERNEL

    @classmethod
    def from_module(cls, name: str) -> Btf:
        """Return the types of a loaded kernel module, which continue the kernel's.

        Raises:
            BtfError: no module of that name is loaded, or it has no BTF.
        """
        if given_file() is not None:
            raise BtfError(f"{name}: with --btf, types of modules are not known")
        if name not in modules():
            raise BtfError(f"{name}: no such module is loaded with BTF; see {FOLDER}")
        return cls.from_file(f"{FOLDER}/{name}")

    @classmethod
    def from_file(cls, path: str, *, base: Btf | None = None) -> Btf:
        """Return the types in a file of raw BTF, an ELF file or a module.

        Args:
            path: the file; ``.gz``, ``.xz`` and (with Python 3.14) ``.zst`` are decompressed.
            base: the BTF that split BTF continues; by default ``.BTF.base`` of the file, the
                running kernel's for modules and files in /sys/kernel/btf, and none for others.

        Raises:
            BtfError: the file has no BTF, or is damaged.
            OSError: the file cannot be read.
        """
        file = read_btf(path)
        if base is None and file.base is not None:
            base = Btf(file.base, name=f"{path}: .BTF.base")
        elif base is None and file.of_module:
            base = cls.from_sysfs() if path.startswith(f"{FOLDER}/") else cls.from_kernel()
        return Btf(file.types, name=path, base=base)

    def __init__(self, data: bytes, *, name: str = "BTF", base: Btf | None = None) -> None:
        """Check the header; records are checked when they are decoded.

        Raises:
            BtfError: the header contradicts the data.
        """
        header = parse_header(data, name)
        self.name = name
        self.base = base
        self.order = header.order
        self.first = base.end if base else 1
        self._data = data
        self._header = header
        self._types: dict[int, Type] = {0: _VOID}
        self._found: dict[tuple[str, tuple[Kind, ...]], list[int]] = {}
        self._strings_before: int = base.strings_end if base else 0
        self._alignments: dict[int, int] = {}
        if base and base.order != self.order:
            raise BtfError(f"{name}: {self.order}-endian, but its base {base.name} is not")

    @property
    def data_size(self) -> int:
        """Length of the BTF in bytes, including the base's."""
        return len(self._data) + (self.base.data_size if self.base else 0)

    @property
    def strings_end(self) -> int:
        """Length of the strings in bytes, including the base's."""
        start, end = self._header.strings
        return self._strings_before + end - start

    @functools.cached_property
    def end(self) -> int:
        """One more than the last type ID."""
        return self.first + len(self._positions)

    @functools.cached_property
    def _words(self) -> Sequence[int]:
        start, end = self._header.types
        if self.order == sys.byteorder:
            return memoryview(self._data)[start:end].cast("I")
        words = array("I", self._data[start:end])
        words.byteswap()
        return words

    @functools.cached_property
    def _positions(self) -> Sequence[int]:
        # Index of each record's first word.
        return record_positions(self._words, self._header.sizes, self.first, self.name)

    def __len__(self) -> int:
        """Number of types, including void and the base's."""
        return self.end

    def _position(self, type_id: int) -> int:
        if not self.first <= type_id < self.end:
            raise BtfError(f"{self.name}: no BTF type {type_id}, the last is {self.end - 1}")
        return self._positions[type_id - self.first]

    def kind(self, type_id: int) -> int:
        """Return the kind of a type, without decoding it.

        Raises:
            BtfError: no type has this ID.
        """
        if not type_id:
            return Kind.VOID
        if self.base and type_id < self.first:
            return self.base.kind(type_id)
        return kind_of(self._words[self._position(type_id) + 1])

    def type(self, type_id: int) -> Type:
        """Return the type with an ID.

        Raises:
            BtfError: no type has this ID, or it is damaged.
        """
        found = self._types.get(type_id)
        if found is not None:
            return found
        if self.base and type_id < self.first:
            return self.base.type(type_id)
        position = self._position(type_id)
        made = decode(
            self.string, type_id, self._words, position, position + self._words_of(type_id)
        )
        self._types[type_id] = made
        return made

    def _words_of(self, type_id: int) -> int:
        index = type_id - self.first
        following = index + 1
        end = self._positions[following] if following < len(self._positions) else len(self._words)
        return end - self._positions[index]

    def string(self, offset: int) -> str:
        """Return the string at an offset; bytes that are not UTF-8 become surrogates.

        Raises:
            BtfError: the offset lies outside the strings.
        """
        if self.base and offset < self._strings_before:
            return self.base.string(offset)
        start, end = self._header.strings
        at = start + offset - self._strings_before
        if at >= end:
            if not offset:
                return ""
            raise BtfError(f"{self.name}: string offset {offset} in {self.strings_end} bytes")
        return self._data[at : self._data.index(b"\0", at, end)].decode("utf-8", "surrogateescape")

    def own_ids(self, *kinds: Kind) -> Iterator[int]:
        """Yield the IDs of the types of some kinds, in order, without the base's."""
        words, wanted = self._words, set(map(int, kinds))
        for type_id, position in enumerate(self._positions, self.first):
            if (words[position + 1] >> 24 & 0x7F) in wanted:
                yield type_id

    def ids(self, *kinds: Kind) -> Iterator[int]:
        """Yield the IDs of the types of some kinds, the base's first."""
        if self.base:
            yield from self.base.ids(*kinds)
        yield from self.own_ids(*kinds)

    def named(self, *kinds: Kind, start: str = "") -> Iterator[tuple[int, str]]:
        """Yield ID and name of the types of some kinds, without the base's.

        Args:
            kinds: the kinds.
            start: how the names must begin.
        """
        words, positions, first = self._words, self._positions, self.first
        for type_id in self.own_ids(*kinds):
            name = self.string(words[positions[type_id - first]])
            if name.startswith(start):
                yield type_id, name

    def similar(self, name: str, *kinds: Kind) -> dict[str, int]:
        """Return names and IDs of types that may be meant by a name which no type has.

        They begin as it does and have about its length.
        """
        start = name[:2] if len(name) > 2 else ""
        return {
            label: type_id
            for type_id, label in self.named(*kinds, start=start)
            if label and abs(len(label) - len(name)) < 8
        }

    def find(self, name: str, *kinds: Kind) -> list[int]:
        """Return the IDs of all types with this name and one of these kinds, the base's first.

        This searches the strings for the name and the records for its offset. It takes a few
        milliseconds, the first time; decoding all types takes a third of a second.
        """
        found = self._found.get((name, kinds))
        if found is None:
            found = self._found[name, kinds] = self._find(name, kinds)
        return [*found]

    def _find(self, name: str, kinds: tuple[Kind, ...]) -> list[int]:
        wanted = encoded(name)
        if not wanted or b"\0" in wanted:
            return []
        found = self.base.find(name, *kinds) if self.base else []
        offsets = self._offsets_of(b"\0" + wanted + b"\0", 1)
        own = [type_id for offset in offsets for type_id in self._with_name(offset)]
        if not own:  # the name may be the end of another string
            tails = set(self._offsets_of(wanted + b"\0", 0)) - set(offsets)
            own = list(self._with_names(tails)) if tails else []
        return found + sorted(type_id for type_id in own if self.kind(type_id) in kinds)

    def _offsets_of(self, pattern: bytes, skip: int) -> list[int]:
        found = self.base._offsets_of(pattern, skip) if self.base else []  # noqa: SLF001
        start, end = self._header.strings
        if skip and self._data.startswith(pattern[skip:], start, end):
            found.append(self._strings_before)
        at = self._data.find(pattern, start, end)
        while at >= 0:
            found.append(at - start + skip + self._strings_before)
            at = self._data.find(pattern, at + 1, end)
        return found

    def _with_name(self, offset: int) -> Iterator[int]:
        # Records that begin with a string offset; the same bytes also occur elsewhere.
        start, _ = self._header.types
        positions = self._positions
        hits = [
            *islice(occurrences(self._data, offset, self.order, self._header.types), _MAX_HITS + 1)
        ]
        if len(hits) > _MAX_HITS:  # too common a number: compare all records instead
            yield from self._with_names({offset})
            return
        for position, odd in (divmod(hit - start, 4) for hit in hits):
            if not odd:
                index = bisect_left(positions, position)
                if index < len(positions) and positions[index] == position:
                    yield self.first + index

    def _with_names(self, offsets: set[int]) -> Iterator[int]:
        words = self._words
        for type_id, position in enumerate(self._positions, self.first):
            if words[position] in offsets:
                yield type_id

    def resolve(self, type_id: int) -> Type:
        """Return the type behind typedefs and modifiers.

        Raises:
            BtfError: the typedefs form a cycle.
        """
        for _ in range(_MAX_STEPS):
            found = self.type(type_id)
            if not isinstance(found, Typedef | Modifier):
                return found
            type_id = found.type_id
        raise BtfError(
            f"{self.name}: BTF type {type_id} is a typedef of itself, or of too many others"
        )

    def size_of(self, type_id: int) -> int:
        """Return the size of a type's values in bytes.

        Raises:
            BtfError: the type has no size (void, functions, forward declarations).
        """
        factor = 1
        found = self.resolve(type_id)
        for _ in range(_MAX_STEPS):
            if isinstance(found, Array):
                factor *= found.count
            elif not isinstance(found, Variable):
                break
            found = self.resolve(found.type_id)
        if isinstance(found, Int | Float | Composite | Enum | DataSection):
            return factor * found.size
        if isinstance(found, Pointer):
            return factor * self.pointer_size
        raise BtfError(f"{self.name}: BTF type {type_id} ({_kind_name(found)}) has no size")

    def align_of(self, type_id: int, depth: int = 0) -> int:
        """Return a type's alignment in bytes, as C compilers for 64-bit CPUs have it; 0 for none.

        Raises:
            BtfError: types contain one another.
        """
        known = self._alignments.get(type_id)
        if known is not None:
            return known
        if depth > MAX_NESTING:
            raise nesting_error(self.name, type_id)
        found = self.resolve(type_id)
        if isinstance(found, Int | Enum | Float):
            result = min(self.pointer_size if not isinstance(found, Float) else 16, found.size)
            if isinstance(found, Int) and found.size == 2 * self.pointer_size:
                result = found.size
        elif isinstance(found, Pointer):
            result = self.pointer_size
        elif isinstance(found, Array):
            result = self.align_of(found.type_id, depth + 1)
        elif isinstance(found, Composite):
            result = self._align_of_composite(found, depth)
        else:
            result = 0
        self._alignments[type_id] = result
        return result

    def _align_of_composite(self, found: Composite, depth: int) -> int:
        widest = 1
        for member in found.members:
            align = self.align_of(member.type_id, depth + 1)
            if not member.bitfield_size and align and member.bit_offset % (8 * align):
                return 1  # packed
            widest = max(widest, align)
        return widest if found.size % widest == 0 else 1

    @functools.cached_property
    def pointer_size(self) -> int:
        """Size of a pointer in bytes: the size of ``long``, or 8 if the BTF has no ``long``."""
        for type_id in self.ids(Kind.INT):
            found = self.type(type_id)
            if isinstance(found, Int) and found.name in _LONG and found.size in (4, 8):
                return found.size
        return 8


class _KernelBtf(Btf):
    # The kernel's own, which does not change until the machine starts again.
    @functools.cached_property
    def _positions(self) -> Sequence[int]:
        if self.order != sys.byteorder:
            return super()._positions
        return kernel_positions(self._words, self._header.sizes, self.name)


def _kind_name(found: Type) -> str:
    kind = found.kind
    return kind.name if isinstance(kind, Kind) else f"kind {kind}"


@functools.cache
def _kernel_btf() -> Btf:
    if given_file() is None and has_own_btf():
        return _own_btf()
    path, file = read_other_btf()
    return Btf(file.types, name=path)


@functools.cache
def _own_btf() -> Btf:
    try:
        # Copying a mapping takes half the time of reading, and keeps no descriptor.
        return _KernelBtf(read_or_map(KERNEL)[:], name=KERNEL)
    except FileNotFoundError as err:
        feature = f"BTF of the kernel ({KERNEL}, CONFIG_DEBUG_INFO_BTF)"
        raise NotSupported(feature) from err


def use_kernel_btf(path: str | None) -> None:
    """Take the running kernel's types from a file; None for the kernel's own again.

    Raises:
        BtfError: the file has no BTF, or is of another kernel.
    """
    name_file(path)
    _kernel_btf.cache_clear()
    if path is None:
        return
    try:
        _kernel_btf()
    except BaseException:
        name_file(None)
        raise
