"""Print definitions in C: of one type, or of all types in an order that a compiler accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.errors import BtfError
from usdt.btf.dump.c_alignment import CAlignment
from usdt.btf.dump.declare import CDeclarationPrinter, declaration
from usdt.btf.format import MAX_NESTING, Kind, nesting_error
from usdt.btf.types import (
    Array,
    Composite,
    Enum,
    Forward,
    FunctionProto,
    Int,
    Member,
    Modifier,
    Pointer,
    Type,
    Typedef,
    Variable,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from usdt.btf.reader import Btf

__all__ = ("Definitions", "definition", "header")

_MAX_DEPTH = 200
_BUILTIN = {"__builtin_va_list"}
_MODES = {1: "QI", 2: "HI", 8: "DI"}
_PLAIN = {1: "unsigned char", 2: "unsigned short", 8: "unsigned long long"}
_PLAIN[16] = "unsigned __int128"
# Anonymous types are printed wherever they are used. The text of repetitions is bounded by the size
# of the BTF: 30 damaged types that contain the next one twice are 2^30 otherwise.
_REPEATED_PER_BYTE = 64
_REPEATED = 1 << 16
_LEFT_OUT = "left out: repeated too often"
_DEFINED = (Kind.STRUCT, Kind.UNION, Kind.ENUM, Kind.ENUM64, Kind.TYPEDEF)

_TOP = """\
#ifndef __VMLINUX_H__
#define __VMLINUX_H__

#ifndef BPF_NO_PRESERVE_ACCESS_INDEX
#pragma clang attribute push (__attribute__((preserve_access_index)), apply_to = record)
#endif

"""
_BOTTOM = """\
#ifndef BPF_NO_PRESERVE_ACCESS_INDEX
#pragma clang attribute pop
#endif

#endif /* __VMLINUX_H__ */
"""


def definition(btf: Btf, type_id: int) -> str:
    """Return the definition of one type in C, without the types that it needs.

    Types that have no definition (pointers, for example) and variables are declared.

    Raises:
        BtfError: the type is nested too deeply.
    """
    found = btf.type(type_id)
    if isinstance(found, Variable):
        linkage = "extern" if found.linkage else "static"  # BTF_VAR_STATIC is 0
        return f"{linkage} {declaration(btf, found.type_id, found.name)};\n"
    return Definitions(btf).text(found) + ";\n"


def header(btf: Btf) -> Iterator[str]:
    """Yield a C header with all types, including the base's, each before its first use.

    Raises:
        BtfError: types contain one another, or are nested too deeply.
    """
    definitions = Definitions(btf)
    yield _TOP
    yield from _polynomials(btf)
    for type_id in btf.ids(*_DEFINED):
        found = btf.type(type_id)
        if found.name:
            yield from definitions.needed(type_id)
    for type_id in btf.ids(
        Kind.ENUM, Kind.ENUM64
    ):  # anonymous enumerations are wanted for their constants
        found = btf.type(type_id)
        if isinstance(found, Enum) and not found.name and type_id not in definitions.inlined:
            yield f"{definitions.text(found)};\n\n"
    yield _BOTTOM


def _polynomials(btf: Btf) -> Iterator[str]:
    # These types are built into compilers for Arm (arm_neon.h); other compilers need a typedef.
    for type_id in btf.ids(Kind.INT):
        found = btf.type(type_id)
        if found.name.startswith("__Poly") and isinstance(found, Int) and found.size in _PLAIN:
            yield f"#ifndef __aarch64__\ntypedef {_PLAIN[found.size]} {found.name};\n#endif\n\n"


class _UniqueNames:
    # Structures, unions and enumerations share one name space, typedefs and enumerators another.
    # Where several share a name, all but the first get a suffix: ___2.
    def __init__(self) -> None:
        self._known: dict[int, str] = {}
        self._counts: dict[tuple[str, str], int] = {}
        self._tags: dict[str, str] = {}

    def __call__(self, found: Type) -> str:
        if not found.name or not isinstance(found, Composite | Enum | Typedef | Forward):
            return found.name
        if found.id not in self._known:
            self._known[found.id] = self._choose(found)
        return self._known[found.id]

    def _choose(self, found: Type) -> str:
        if isinstance(found, Typedef):
            return self.unique("identifier", found.name)
        word = keyword(found)
        if isinstance(found, Forward):  # declares the type of this name
            if self._tags.setdefault(found.name, word) == word:
                return found.name
        elif self._counts.get(("tag", found.name), 0) == 0:
            if self._tags.setdefault(found.name, word) == word:
                return self.unique("tag", found.name)
            self._counts["tag", found.name] = 1
        return self.unique("tag", found.name)

    def unique(self, space: str, name: str) -> str:
        key = space, name
        self._counts[key] = count = self._counts.get(key, 0) + 1
        return f"{name}___{count}" if count > 1 else name


def keyword(found: Type) -> str:
    """Return the C keyword of a type: ``struct``, ``union`` or ``enum``."""
    if isinstance(found, Forward):
        return "union" if found.union else "struct"
    return "enum" if isinstance(found, Enum) else "union" if found.kind == Kind.UNION else "struct"


class Definitions:
    """Prints definitions, each once.

    Attributes:
        inlined: IDs of the anonymous types that were printed where they are used.
    """

    def __init__(self, btf: Btf) -> None:
        self._btf = btf
        self.name = _UniqueNames()
        self._layout = CAlignment(btf)
        self._declarer = CDeclarationPrinter(btf, names=self.name, inline=self._inline)
        self._states: dict[int, bool] = {}
        self._declared: set[str] = set()
        self._walked: set[int] = set()
        self._printed: set[int] = set()
        self._repeatable = _REPEATED + _REPEATED_PER_BYTE * btf.data_size
        self.inlined: set[int] = set()

    def text(self, found: Type) -> str:
        """Return the definition of one type, without the final semicolon.

        Raises:
            BtfError: the type is nested too deeply.
        """
        if isinstance(found, Composite):
            return self._composite(found, 0)
        if isinstance(found, Enum):
            return self._enum(found, 0)
        if isinstance(found, Typedef):
            return f"typedef {self._declarer.declare(found.type_id, self.name(found))}"
        return self._declarer.declare(found.id)

    def needed(self, type_id: int) -> Iterator[str]:
        """Yield the definitions of a type and of the types it needs that were not printed yet.

        Raises:
            BtfError: types contain one another.
        """
        yield from self._need(type_id, complete=True, depth=0)

    def _need(self, type_id: int, *, complete: bool, depth: int) -> Iterator[str]:
        if depth > _MAX_DEPTH:
            raise nesting_error(self._btf.name, type_id)
        found = self._btf.type(type_id)
        depth += 1
        if isinstance(found, Modifier):
            yield from self._need(found.type_id, complete=complete, depth=depth)
        elif isinstance(found, Pointer):
            yield from self._need(found.type_id, complete=False, depth=depth)
        elif isinstance(found, Array):
            yield from self._need(found.type_id, complete=True, depth=depth)
        elif isinstance(found, FunctionProto):
            for target in (found.return_type_id, *(one.type_id for one in found.parameters)):
                yield from self._need(target, complete=False, depth=depth)
        elif isinstance(found, Typedef):
            yield from self._typedef(found, complete=complete, depth=depth)
        elif isinstance(found, Composite):
            if not found.name:
                if found.id not in self._walked:
                    yield from self._members(found, depth)
                    self._walked.add(found.id)
            elif complete:
                yield from self._define(found, depth)
            else:
                yield from self._declare(found)
        elif isinstance(found, Enum) and found.name:
            yield from self._define(found, depth)
        elif isinstance(found, Forward):
            yield from self._declare(found)

    def _typedef(self, found: Typedef, *, complete: bool, depth: int) -> Iterator[str]:
        if found.name not in _BUILTIN:
            yield from self._once(found, lambda: self._need_of(found, depth))
        if complete:
            yield from self._need(found.type_id, complete=True, depth=depth)

    def _need_of(self, found: Typedef, depth: int) -> Iterator[str]:
        yield from self._need(found.type_id, complete=False, depth=depth)

    def _define(self, found: Composite | Enum, depth: int) -> Iterator[str]:
        def members() -> Iterator[str]:
            if isinstance(found, Composite):
                yield from self._members(found, depth)

        yield from self._once(found, members)

    def _once(self, found: Type, before: _Before) -> Iterator[str]:
        done = self._states.get(found.id)
        if done:
            return
        if done is False:
            raise BtfError(f"{self._btf.name}: BTF type {found.id} ({found.name}) contains itself")
        self._states[found.id] = False
        yield from before()
        yield f"{self.text(found)};\n\n"
        self._states[found.id] = True

    def _members(self, found: Composite, depth: int) -> Iterator[str]:
        for member in found.members:
            yield from self._need(member.type_id, complete=True, depth=depth)

    def _declare(self, found: Composite | Forward) -> Iterator[str]:
        text = f"{keyword(found)} {self.name(found)};\n\n"
        if text not in self._declared:
            self._declared.add(text)
            if not self._states.get(found.id):
                yield text

    def _inline(self, found: Composite | Enum, level: int) -> str:
        self.inlined.add(found.id)
        if isinstance(found, Composite):
            return self._defined_inline(found, level)
        if not self._may_print(found):
            return f"{_PLAIN.get(found.size, 'unsigned int')} /* an enum, {_LEFT_OUT} */"
        return self._paid(self._enum(found, level))

    def _defined_inline(self, found: Composite, level: int, *, named: bool = True) -> str:
        if self._may_print(found):
            return self._paid(self._composite(found, level, named=named))
        return f"{keyword(found)} {{ unsigned char bytes[{found.size}]; /* {_LEFT_OUT} */ }}"

    def _may_print(self, found: Composite | Enum) -> bool:
        # The first time always, then as long as repetitions are allowed.
        repeated = found.id in self._printed
        self._printed.add(found.id)
        return not repeated or self._repeatable > 0

    def _paid(self, text: str) -> str:
        self._repeatable -= len(text)
        return text

    def _composite(self, found: Composite, level: int, *, named: bool = True) -> str:
        if level > MAX_NESTING:
            raise nesting_error(self._btf.name, found.id)
        head = f"{keyword(found)} {self.name(found) if named else ''}".rstrip()
        pad = "\t" * (level + 1)
        try:
            gaps, tail = self._layout.gaps(found)
            packed = " __attribute__((packed))" if self._layout.packed(found) else ""
        except BtfError as err:
            body = f"unsigned char bytes[{found.size}]; /* {_comment(err)} */"
            return f"{head} {{\n{pad}{body}\n{pad[1:]}}}"
        lines: list[str] = []
        for index, (member, gap) in enumerate(zip(found.members, gaps, strict=True)):
            lines += [*gap, self._member(member, index, level + 1)]
        if tail and found.kind == Kind.UNION:
            tail = ["struct { " + " ".join(f"{one};" for one in tail) + " }"]
        body = "".join(f"{pad}{line};\n" for line in [*lines, *tail])
        return f"{head} {{\n{body}{pad[1:]}}}{packed}" if body else f"{head} {{}}{packed}"

    def _member(self, member: Member, index: int, level: int) -> str:
        if member.bitfield_size:
            return f"{self._declarer.declare(member.type_id, member.name)}: {member.bitfield_size}"
        name = member.name
        if not name and not self._anonymous(member.type_id):
            # Linux 7.0 is built with -fms-extensions, where a type with a name may be a member
            # without one. Other compilers declare nothing then, so print the members in place.
            inner = self._btf.resolve(member.type_id)
            if isinstance(inner, Composite):
                return self._defined_inline(inner, level, named=False)
            name = f"__member{index}"
        return self._declarer.declare(member.type_id, name, level=level)

    def _anonymous(self, type_id: int) -> bool:
        found = self._btf.type(type_id)
        for _ in range(MAX_NESTING):
            if isinstance(found, Modifier):
                found = self._btf.type(found.type_id)
        return isinstance(found, Composite) and not found.name

    def _enum(self, found: Enum, level: int) -> str:
        head = f"enum {self.name(found)}".rstrip()
        if not found.values:
            return head
        pad = "\t" * (level + 1)
        suffix = "" if found.kind == Kind.ENUM else "LL" if found.signed else "ULL"
        body = "".join(
            f"{pad}{self.name.unique('identifier', one.name)} = {one.value}{suffix},\n"
            for one in found.values
        )
        mode = _MODES.get(found.size)
        attribute = f" __attribute__((mode({mode})))" if mode else ""
        return f"{head} {{\n{body}{pad[1:]}}}{attribute}"


def _comment(err: BtfError) -> str:
    return str(err).replace("*/", "* /")


if TYPE_CHECKING:
    from collections.abc import Callable

    _Before = Callable[[], Iterable[str]]
