"""What decoding needs to know of a plan: where each value of a record lies, and what it is.

A :class:`RecordLayout` has no expressions: it can be written into a recording and read on another
machine. What is read is checked as untrusted input, because decoding compiles code from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from usdt.arch.locations import ValueClass, ValueType
from usdt.base.errors import TracingError
from usdt.base.frozen import frozen
from usdt.btf.values.type_snapshot import TypeSnapshot
from usdt.engine.compiler.ir import why_unreadable
from usdt.engine.compiler.limits import MAX_OUTPUTS, MAX_READ
from usdt.engine.compiler.plan import HEADER_SIZE, LED, Output, ProbePlan
from usdt.engine.compiler.value_names import ValueNames

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("BadLayout", "RecordField", "RecordLayout", "layout_of")

_WORD = 8  # bytes that every value is padded to
_LONGEST_TEXT = 1 << 16  # characters of a key or a reason
_ROOMLESS = ("comm", "func", "opaque")
_LARGEST = 1 << 30  # bytes of a record: the ring buffer's own limit


class BadLayout(TracingError, ValueError):  # noqa: N818 - short for what it says
    """A description of a record that no plan can have."""


@frozen
class RecordField:
    """One value of a record.

    Attributes:
        key: the item as written, without spaces.
        form: integer, bool, hex, usym, ksym, float, bytes, string, buffer, array, typed, ustack,
            kstack, comm, func, or opaque.
        type: the kind and size of the value itself; of no meaning for text, comm, func and opaque.
        offset: where it is in the record; -1 for comm, func and opaque, which take no room.
        size: bytes of room for it, less the leading length of a string, buffer or stack.
        fallible: whether its bit in the word of unreadable values can be set.
        reason: why it cannot be read, where it cannot; of func, the text to show; of an array, its
            elements in the words of :mod:`struct`; of typed, what Output.text says.
        names: of an integer's values, if they have some.
        shape: of typed, what it is.
        cast: the type in C, where one is known.
    """

    key: str
    form: str
    type: ValueType
    offset: int = -1
    size: int = 0
    fallible: bool = False
    reason: str = ""
    names: ValueNames | None = None
    shape: TypeSnapshot | None = None
    cast: str = ""

    @property
    def lead(self) -> int:
        """Bytes before the room: the length of a string, buffer or stack."""
        return _WORD if self.form in LED else 0

    @property
    def end(self) -> int:
        """Offset in the record of what comes behind it."""
        return self.offset + self.lead + -(-self.size // _WORD) * _WORD

    def to_json(self) -> dict[str, Any]:
        """A JSON object with all of it."""
        made: dict[str, Any] = {
            "key": self.key,
            "form": self.form,
            "kind": self.type.kind.value,
            "bytes": self.type.size,
            "offset": self.offset,
            "size": self.size,
            "fallible": self.fallible,
            "reason": self.reason,
        }
        if self.names is not None:
            made["names"] = self.names.to_json()
        if self.shape is not None:
            made["shape"] = self.shape.to_json()
        if self.cast:
            made["cast"] = self.cast
        return made

    @classmethod
    def from_json(cls, data: Any) -> RecordField:
        """What to_json() made.

        Raises:
            BadLayout: it did not make this.
        """
        members = _members(data, "field")
        made = cls(
            _text(members, "key"),
            _text(members, "form"),
            ValueType(_kind(members), _number(members, "bytes", 0, MAX_READ)),
            _number(members, "offset", -1, _LARGEST),
            _number(members, "size", 0, _WORD + MAX_READ),
            _flag(members, "fallible"),
            _text(members, "reason"),
            ValueNames.from_json(members["names"], BadLayout) if "names" in members else None,
            TypeSnapshot.from_json(members["shape"], BadLayout) if "shape" in members else None,
            _text(members, "cast") if "cast" in members else "",
        )
        check = _FORMS.get(made.form)
        if check is None:
            raise BadLayout(f"field {made.key!r}: form {made.form!r} is not known to this version")
        if not check(made) or (made.offset < 0) != (made.form in _ROOMLESS):
            raise BadLayout(f"field {made.key!r}: no {made.form} can be like this")
        return made


def _is_integer(field: RecordField) -> bool:
    integer = field.type.kind in (ValueClass.SIGNED, ValueClass.UNSIGNED)
    return integer and field.size == _WORD and field.type.size in (1, 2, 4, 8)


def _is_typed(field: RecordField) -> bool:
    shape = field.shape
    return shape is not None and _WORD < field.size <= _WORD + min(shape.size, MAX_READ)


def _is_float(field: RecordField) -> bool:
    return field.type.kind is ValueClass.FLOAT and field.size == _WORD and field.type.size in (4, 8)


def _is_aggregate(field: RecordField) -> bool:
    return field.type.kind is ValueClass.BYTES and 0 < field.type.size <= field.size


# Form of a value → whether a field may be like that.
_FORMS: dict[str, Callable[[RecordField], bool]] = {
    "integer": _is_integer,
    "bool": _is_integer,
    "hex": _is_integer,
    "usym": _is_integer,
    "ksym": _is_integer,
    "float": _is_float,
    "bytes": _is_aggregate,
    "string": lambda field: field.size > 0,
    "buffer": lambda _: True,
    "array": lambda field: field.reason in set("bBhHiIqQ"),
    "typed": _is_typed,
    "ustack": lambda field: field.size > 0 and not field.size % _WORD,
    "kstack": lambda field: field.size > 0 and not field.size % _WORD,
    "comm": lambda _: True,
    "func": lambda _: True,
    "opaque": lambda _: True,
}


@frozen
class RecordLayout:
    """A record. Hashable: plans of one layout share what decodes them.

    Attributes:
        size: bytes of the record, without the ring buffer's header.
        marks: offset of the word of unreadable values, or -1.
        fields: in the order in which they are shown, which is that of their offsets.
        returns: whether its records are of a function's return.
    """

    size: int
    marks: int
    fields: tuple[RecordField, ...]
    returns: bool = False

    def to_json(self) -> dict[str, Any]:
        """A JSON object with all of it."""
        fields = [field.to_json() for field in self.fields]
        made = {"size": self.size, "marks": self.marks, "fields": fields}
        return {**made, "returns": True} if self.returns else made

    @classmethod
    def from_json(cls, data: Any) -> RecordLayout:
        """What to_json() made.

        Raises:
            BadLayout: it did not make this.
        """
        members = _members(data, "layout")
        size = _number(members, "size", HEADER_SIZE, _LARGEST)
        marks = _number(members, "marks", -1, HEADER_SIZE)
        given = members.get("fields")
        if not isinstance(given, list) or len(given) > MAX_OUTPUTS:
            raise BadLayout(f"layout: a list of at most {MAX_OUTPUTS} fields expected")
        fields = tuple(RecordField.from_json(item) for item in given)
        if size % _WORD or marks not in (-1, HEADER_SIZE):
            raise BadLayout(f"layout: a record of {size} bytes with marks at {marks}")
        if len({field.key for field in fields}) < len(fields):
            raise BadLayout("layout: one key is shown twice")
        end = HEADER_SIZE + (_WORD if marks >= 0 else 0)
        for field in fields:
            if field.fallible and marks < 0:
                raise BadLayout(f"field {field.key!r}: fallible, but nothing says when it failed")
            if field.offset >= 0:
                if field.offset < end or field.offset % _WORD:
                    raise BadLayout(
                        f"field {field.key!r}: offset {field.offset} is not behind {end}"
                    )
                end = field.end
        if end > size:
            raise BadLayout(f"layout: {end} bytes of values in a record of {size}")
        return cls(size, marks, fields, "returns" in members and _flag(members, "returns"))


def layout_of(plan: ProbePlan) -> RecordLayout:
    """The layout of a plan's records."""
    return RecordLayout(plan.size, plan.marks, tuple(map(_field, plan.outputs)), plan.returns)


def _field(output: Output) -> RecordField:
    reason = output.text
    if output.form == "opaque":
        reason = getattr(output.node, "reason", "unreadable")
    elif output.fallible:
        reason = why_unreadable(output.node)
    return RecordField(
        output.key,
        output.form,
        output.node.type,
        output.offset,
        output.size,
        output.fallible,
        reason,
        output.names,
        output.shape,
        output.cast,
    )


def _members(data: Any, what: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise BadLayout(f"{what}: an object expected, found {type(data).__name__}")
    return data


def _text(members: dict[str, Any], name: str) -> str:
    value = members.get(name)
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT:
        raise BadLayout(f"{name}: a text expected")
    return value


def _number(members: dict[str, Any], name: str, low: int, high: int) -> int:
    value = members.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise BadLayout(f"{name}: a number from {low} to {high} expected")
    return value


def _flag(members: dict[str, Any], name: str) -> bool:
    value = members.get(name)
    if not isinstance(value, bool):
        raise BadLayout(f"{name}: true or false expected")
    return value


def _kind(members: dict[str, Any]) -> ValueClass:
    try:
        return ValueClass(members.get("kind"))
    except ValueError as err:
        raise BadLayout("kind: none of a value's kinds") from err
