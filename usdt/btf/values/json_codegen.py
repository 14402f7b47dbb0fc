"""Generate code that reads values as JSON text or Python objects: one function per structure.

Returns what the plans of :mod:`usdt.btf.values.read_plan` read from the same bytes, ten times as
fast. The data must reach to the end of the value.
"""

from __future__ import annotations

import json
import struct
from json.encoder import encode_basestring_ascii as quote
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from usdt.btf.types import Enum
from usdt.btf.values.batched_reads import BatchedReads
from usdt.btf.values.read_plan import (
    ArrayPlan,
    BitFieldPlan,
    NumberPlan,
    Plan,
    ReadPlans,
    StructPlan,
    TaggedUnionPlan,
)
from usdt.btf.values.scalars import EnumTable, sign_extended, struct_mark

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.btf.reader import Btf

__all__ = ("JsonCodegen",)

_INLINED = 100  # values of a structure that has no function of its own
_MAX_COMPILED = 4096  # values; Python compiles larger expressions in quadratic time
#: Member → the expression of its value, or of the values of a structure within.
_Parts: TypeAlias = "dict[str, str | _Parts]"


class JsonCodegen:
    """Generates functions from (data, offset of a value) to the value, each once.

    Args:
        btf: the types.
        text: return JSON text instead of Python objects.
    """

    def __init__(self, btf: Btf, *, text: bool) -> None:
        self.btf = btf
        self.text = text
        self._plans = ReadPlans(btf)
        self.space: dict[str, Any] = {
            "SIGNED": sign_extended,
            "TRUTH": ("false", "true") if text else (False, True),
        }

    def function(self, type_id: int) -> Callable[[bytes, int], Any]:
        """Return the function that reads values of a type.

        Raises:
            BtfError: the type is nested too deeply, too large, or has no values.
        """
        made: Callable[[bytes, int], Any] = self.space[self.name_of(self._plans.readable(type_id))]
        return made

    def name_of(self, plan: Plan) -> str:
        """Return the name of that function in generated code."""
        name = f"of{plan.type.id}"
        if name not in self.space:
            self.space[name] = self._function(name, plan)
        return name

    def _function(self, name: str, plan: Plan) -> Any:
        if _is_compiled(plan):
            body = _Body(self, plan)
            code = compile(body.source(name), f"<type {name}>", "exec")
            exec(code, self.space)  # noqa: S102 - our own code; texts are literals in it
            return self.space[name]
        if isinstance(plan, ArrayPlan) and plan.size and not plan.is_text:
            return self._array(plan)
        return (lambda data, at: json.dumps(plan.read(data, at))) if self.text else plan.read

    def _array(self, plan: ArrayPlan) -> Callable[[bytes, int], Any]:
        element, size, end = plan.element, plan.element.size, plan.size
        if isinstance(element, NumberPlan) and element.code and element.is_plain:
            unpack = struct.Struct(f"{struct_mark(self.btf)}{plan.count}{element.code}").unpack_from
            if self.text:
                return lambda data, at: str([*unpack(data, at)])
            return lambda data, at: [*unpack(data, at)]
        one = self.space[self.name_of(element)]
        if self.text:
            return lambda d, at: f"[{', '.join([one(d, q) for q in range(at, at + end, size)])}]"
        return lambda data, at: [one(data, q) for q in range(at, at + end, size)]

    def table(self, found: Enum) -> str:
        """Return the name of an enumeration's table in generated code."""
        name = f"E{found.id}"
        if name not in self.space:
            self.space[name] = EnumTable(found, int, quoted=self.text)
        return name


def _is_compiled(plan: Plan) -> TypeGuard[StructPlan]:
    if not isinstance(plan, StructPlan) or isinstance(plan, TaggedUnionPlan):
        return False
    return sum(min(field.plan.values, _INLINED) for field in plan.fields) <= _MAX_COMPILED


class _Body:
    # The function of a structure: all its numbers read at once, and one expression.
    def __init__(self, owner: JsonCodegen, plan: StructPlan) -> None:
        self._owner = owner
        self._reads = BatchedReads(owner.btf, owner.space)
        self._parts: _Parts = {}
        self._fields(plan, 0, self._parts)

    def _fields(self, plan: StructPlan, start: int, parts: _Parts) -> None:
        for field in plan.fields:
            inner, byte = field.plan, start + field.byte
            if not isinstance(inner, StructPlan):
                if field.name:
                    parts[field.name] = self._value(inner, byte)
            elif not field.name:
                self._fields(inner, byte, parts)
            elif inner.values > _INLINED or isinstance(inner, TaggedUnionPlan):
                parts[field.name] = f"{self._owner.name_of(inner)}(d, at + {byte})"
            else:
                within: _Parts = {}
                self._fields(inner, byte, within)
                parts[field.name] = within

    def _value(self, plan: Plan, byte: int) -> str:
        if isinstance(plan, BitFieldPlan):
            value = self._reads.bitfield(8 * byte + plan.bit, plan.bits)
            value = f"SIGNED({value}, {plan.bits})" if plan.signed else value
        elif isinstance(plan, NumberPlan) and plan.code:
            value = self._reads.number(byte, plan.code)
        elif isinstance(plan, ArrayPlan) and not plan.count and not plan.is_text:
            return "[]"
        else:
            return f"{self._owner.name_of(plan)}(d, at + {byte})"
        if isinstance(plan.type, Enum):
            return f"{self._owner.table(plan.type)}[{value}]"
        return f"TRUTH[{value} != 0]" if plan.is_truth else value

    def source(self, name: str) -> str:
        """Return the source of the function."""
        lines = [f"def {name}(d, at):", *self._reads.lines()]
        made = _json(self._parts) if self._owner.text else _object(self._parts)
        lines.append(f" return f'''{made}'''" if self._owner.text else f" return {made}")
        return "\n".join(lines) + "\n"


def _json(parts: _Parts) -> str:
    # An object inside an f-string.
    pieces = (
        f"{_quoted(key)}: {_json(value) if isinstance(value, dict) else f'{{{value}}}'}"
        for key, value in parts.items()
    )
    return f"{{{{{', '.join(pieces)}}}}}"


def _object(parts: _Parts) -> str:
    # The same as a dict.
    pieces = (
        f"{key!r}: {_object(value) if isinstance(value, dict) else value}"
        for key, value in parts.items()
    )
    return f"{{{', '.join(pieces)}}}"


def _quoted(key: str) -> str:
    # A member's name as JSON, inside an f-string that is delimited by three apostrophes.
    text = quote(key).replace("\\", "\\\\").replace("'", "\\'")
    return text.replace("{", "{{").replace("}", "}}")
