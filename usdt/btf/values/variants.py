"""Values of tagged unions (:mod:`usdt.btf.tagged_union`): the variant's name and its data.

JSON: ``"None"``, ``{"Some": {"__0": 7}}``. One line: ``None``, ``Some(7)``, ``Square{side=-8}``.
A tree of lines: ``Some{``, a line for each field, ``}``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

from usdt.btf.types import Composite
from usdt.btf.values.options import DumpError

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.btf.reader import Btf
    from usdt.btf.tagged_union import TaggedUnion
    from usdt.btf.types import Member
    from usdt.btf.values.options import Options

    #: (data, offset of the value) → the value, or its text.
    Reader: TypeAlias = Callable[[bytes, int], Any]
    Writer: TypeAlias = Callable[[bytes, int], str | None]

__all__ = ("VariantSelector", "data_of", "variant_line", "variant_tree", "variant_value")


class VariantSelector:
    """Finds the variant of a value.

    Args:
        choice: the variants.
        order: "little" or "big".
        made: called once per variant with its name and member; its results are selected from.
    """

    def __init__(
        self, choice: TaggedUnion, order: str, made: Callable[[str, Member | None], Any]
    ) -> None:
        self._at = choice.discriminant.bit_offset // 8
        self._size = choice.size
        self._big = order == "big"
        self._known = {value: made(*form) for value, form in choice.variants.items()}
        self._rest = None if choice.default is None else made(*choice.default)

    def number(self, data: bytes, at: int) -> int | None:
        """Return the discriminant; None if the data ends before it."""
        raw = data[at + self._at : at + self._at + self._size]
        if len(raw) < self._size:
            return None
        return int.from_bytes(raw, "big" if self._big else "little")

    def of(self, number: int) -> Any:
        """Return the result for the variant of a discriminant; None if it selects none."""
        return self._known.get(number, self._rest)


def data_of(btf: Btf, member: Member | None) -> Composite | None:
    """Return the structure with a variant's data; None if the variant has no data."""
    inner = None if member is None else btf.resolve(member.type_id)
    return inner if isinstance(inner, Composite) and inner.members else None


def variant_value(choice: TaggedUnion, btf: Btf, reader: Callable[[int], Reader]) -> Reader:
    """Return the function that reads values as Python objects for JSON."""

    def made(name: str, member: Member | None) -> tuple[str, int, Reader | None]:
        inner = data_of(btf, member)
        if inner is None or member is None:
            return name, 0, None
        return name, member.bit_offset // 8, reader(inner.id)

    which = VariantSelector(choice, btf.order, made)

    def read(data: bytes, at: int) -> Any:
        number = which.number(data, at)
        form = None if number is None else which.of(number)
        if form is None:
            return number
        name, byte, inner = form
        return name if inner is None else {name: inner(data, at + byte)}

    return read


def variant_line(
    choice: TaggedUnion, btf: Btf, reader: Callable[[int], Reader], writer: Callable[[int], Writer]
) -> Writer:
    """Return the function that formats values as one short text."""

    def made(name: str, member: Member | None) -> tuple[str, int, Writer]:
        inner = data_of(btf, member)
        if inner is None or member is None:
            return name, 0, lambda _, __: ""
        start = member.bit_offset // 8
        if not _is_row(inner):
            whole = writer(inner.id)
            return name, start, lambda data, at: whole(data, at) or "{}"
        fields = sorted(inner.members, key=lambda one: int(one.name[2:]))  # not as they lie
        parts = [(one.bit_offset // 8, writer(one.type_id), reader(one.type_id)) for one in fields]

        def row(data: bytes, at: int) -> str:
            texts = (
                write(data, at + place) or _zero(read(data, at + place))
                for place, write, read in parts
            )
            return f"({', '.join(texts)})"

        return name, start, row

    which = VariantSelector(choice, btf.order, made)

    def write(data: bytes, at: int) -> str:
        number = which.number(data, at)
        form = None if number is None else which.of(number)
        if form is None:
            return "?" if number is None else str(number)
        name, byte, inner = form
        return f"{name}{inner(data, at + byte)}"

    return write


def variant_tree(
    choice: TaggedUnion,
    btf: Btf,
    contents: Callable[[Composite], str],
    space: dict[str, Any],
    options: Options,
) -> Callable[[bytes, int, str, list[str], int], None]:
    """Return the function that renders values as lines, for generated code to call.

    Args:
        choice: the variants.
        btf: the types.
        contents: generates the function for the members of a structure; returns its name.
        space: globals of the generated code, which then have that function.
        options: how values are shown.
    """
    step, line_end = ("", "") if options.compact else (options.indent_str, "\n")

    def made(name: str, member: Member | None) -> tuple[str, int, Any]:
        inner = data_of(btf, member)
        if inner is None or member is None:
            return name, 0, None
        return name, member.bit_offset // 8, space[contents(inner)]

    which = VariantSelector(choice, btf.order, made)

    def write(data: bytes, at: int, pad: str, out: list[str], end: int) -> None:
        number = which.number(data[:end], at)
        if number is None:
            raise DumpError("E2BIG")
        form = which.of(number)
        name, byte, inner = (str(number), 0, None) if form is None else form
        if inner is None:
            out.append(name)
            return
        out.append(f"{name}{{{line_end}")
        inner(data, at + byte, pad + step, out, end)
        out.append(f"{pad}}}")

    return write


def _is_row(found: Composite) -> bool:
    # True if the fields are numbered (a tuple in Rust) and none is a bit field.
    names = {f"__{index}" for index in range(len(found.members))}
    return {one.name for one in found.members} == names and not any(
        one.bitfield_size for one in found.members
    )


def _zero(value: Any) -> str:
    # The text of a zero, which other lines hide.
    if isinstance(value, dict):
        return "{}"
    if isinstance(value, list):
        return "[]"
    return str(value) if isinstance(value, str) and value else json.dumps(value)
