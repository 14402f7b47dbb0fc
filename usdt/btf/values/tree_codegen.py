"""Generate code that renders values as lines: one function per structure or array, on first use.

A function reads all numbers of its structure with one ``struct`` call and has one line of code for
each, which contains the member's name and type. Each function exists in two variants: one checks
the bounds of every member; the other is for data that is known to be long enough.

Names from BTF get into the source only as escaped string literals.
"""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING, Any

from usdt.btf.dump.declare import declaration
from usdt.btf.types import Enum, FunctionProto, Int, Pointer, Void, flag_names
from usdt.btf.values.batched_reads import BatchedReads, bitfield_source
from usdt.btf.values.options import DumpError, Options
from usdt.btf.values.read_plan import (
    ArrayPlan,
    BitFieldPlan,
    Field,
    FloatPlan,
    NumberPlan,
    ReadPlans,
    StructPlan,
    TaggedUnionPlan,
    Variant,
)
from usdt.btf.values.scalars import (
    EnumTable,
    Scalar,
    byte_order,
    character_texts,
    escaped_string,
    flags_text,
    float_text,
    libbpf_enum_table,
    literal,
    sign_extended,
    struct_mark,
    substituted,
    wide_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.btf.reader import Btf

__all__ = ("TreeCodegen",)

_MAX_BASE = 16
_INLINED = 100  # values of a structure that has no function of its own
_MAX_FIELDS = 512  # of one function: compiling takes a hundred times the memory of the source


class TreeCodegen:
    """Generates functions ``(data, at, pad, out, end)`` for the types of one BTF."""

    def __init__(
        self, btf: Btf, options: Options, symbol: Callable[[int], str | None] | None = None
    ) -> None:
        self.btf = btf
        self._symbol = symbol if options.symbolic else None
        self.options = options
        self.plans = ReadPlans(btf)
        self.step = "" if options.compact else options.indent_str
        self.line_end = "" if options.compact else "\\n"
        order = byte_order(btf)
        null = "(nil)" if btf.pointer_size == 8 else "0x0"
        self.space: dict[str, Any] = {
            "DumpError": DumpError,
            "STEP": self.step,
            "STRING": escaped_string,
            "FLOAT": lambda raw: float_text(raw, order),
            "WIDE": lambda raw: wide_text(raw, order),
            "NULL": lambda at: "0x0" if at % 8 else null,
            "SIGNED": sign_extended,
            "WORDS": ("false", "true"),
            "CODE": self._code_at,
        }
        self._scalars: dict[int, Scalar] = {}

    def constant(self, name: str, value: object) -> str:
        """Make a value available to generated code; return its name."""
        self.space[name] = value
        return name

    def top(self, type_id: int, *, checked: bool) -> Callable[..., None]:
        """Return the function for a whole value of a type.

        Raises:
            BtfError: the type is nested too deeply, or too large.
        """
        name = f"top{type_id}_{checked:d}"
        if name not in self.space:
            body = FunctionBody(self, in_array=False, checked=checked, top=True)
            body.value(Field("", type_id, 0, self.plans.of(type_id)), 0)
            self._define(name, body)
        function: Callable[..., None] = self.space[name]
        return function

    def contents(self, plan: StructPlan | ArrayPlan, *, in_array: bool, checked: bool) -> str:
        """Return the name of the function for what is between the brackets of a type."""
        in_array = in_array or isinstance(plan, ArrayPlan)
        name = f"in{plan.type.id}_{in_array:d}{checked:d}"
        if name not in self.space:
            if isinstance(plan, StructPlan):
                self._define_fields(name, plan.fields, in_array=in_array, checked=checked)
            else:
                body = FunctionBody(self, in_array=in_array, checked=checked, top=False)
                body.elements(plan)
                self._define(name, body)
        return name

    def _define_fields(
        self, name: str, fields: tuple[Field, ...], *, in_array: bool, checked: bool
    ) -> None:
        starts = range(0, len(fields), _MAX_FIELDS) or (0,)
        names = [f"{name}_{start}" if start else name for start in starts]
        for start, one in zip(starts, names, strict=True):
            body = FunctionBody(self, in_array=in_array, checked=checked, top=False)
            for field in fields[start : start + _MAX_FIELDS]:
                body.value(field, 0)
            self._define(one, body)
        if len(names) > 1:
            parts = [self.space[one] for one in names]

            def write(data: bytes, at: int, pad: str, out: list[str], end: int) -> None:
                for part in parts:
                    part(data, at, pad, out, end)

            self.space[name] = write

    def tagged_union(self, plan: TaggedUnionPlan, body: FunctionBody) -> str:
        """Return the name of the function for values of a tagged union.

        They are ``Some{``, a line for each field, ``}``; or the name alone.
        """
        name = f"chosen{plan.type.id}_{body.in_array:d}{body.checked:d}"
        if name not in self.space:
            self.space[name] = self._tagged_union(plan, checked=body.checked)
        return name

    def _tagged_union(self, plan: TaggedUnionPlan, *, checked: bool) -> Callable[..., None]:
        line_end = "" if self.options.compact else "\n"
        inner = {
            one.name: self.space[self.contents(one.plan, in_array=True, checked=checked)]
            for one in plan.all_variants
            if one.plan is not None
        }

        def write(data: bytes, at: int, pad: str, out: list[str], end: int) -> None:
            one = plan.variant(data[:end], at)
            if one is None:
                raise DumpError("E2BIG")
            if not isinstance(one, Variant) or one.plan is None:
                out.append(one.name if isinstance(one, Variant) else str(one))
                return
            out.append(f"{one.name}{{{line_end}")
            inner[one.name](data, at + one.byte, pad + self.step, out, end)
            out.append(f"{pad}}}")

        return write

    def _define(self, name: str, body: FunctionBody) -> None:
        code = compile(body.source(name), f"<type {name}>", "exec")
        exec(code, self.space)  # noqa: S102 - our own code; texts are literals in it

    def _code_at(self, address: int) -> str:
        name = self._symbol(address) if self._symbol is not None else None
        return name or f"{address:#x}"

    def scalar(self, plan: NumberPlan | FloatPlan) -> Scalar:
        """Return how numbers of a type are shown."""
        if plan.type.id not in self._scalars:
            self._scalars[plan.type.id] = self._scalar(plan)
        return self._scalars[plan.type.id]

    def _scalar(self, plan: NumberPlan | FloatPlan) -> Scalar:
        found, size = plan.type, plan.size
        code = plan.code if isinstance(plan, NumberPlan) else ""
        if isinstance(found, Enum):
            flags = flag_names(found) if self.options.symbolic else None
            table = libbpf_enum_table(found) if flags is None else _flags_table(found, flags)
            names = self.constant(f"E{found.id}", table)
            return Scalar(code, f"{{{names}[@v]}}" if code else "", "@v")
        if isinstance(found, Pointer):
            target = self.btf.resolve(found.type_id)
            named = self._symbol is not None and isinstance(target, FunctionProto | Void)
            shown = "CODE(@v)" if named else "f'0x{@v:x}'"
            return Scalar(code, f"{{{shown} if @v else NULL(@q)}}", "@v")
        if code:
            truth = self.options.symbolic and isinstance(plan, NumberPlan) and plan.is_truth
            return Scalar(code, "{WORDS[@v] if @v < 2 else @v}" if truth else "{@v}", "@v")
        text = "{WIDE(@v)}" if isinstance(found, Int) and size == _MAX_BASE else ""
        if isinstance(plan, FloatPlan) and size in (4, 8, 16):
            text = "{FLOAT(@v)}"
        return Scalar(f"{size}s", text, f"@v != {bytes(min(size, _MAX_BASE))!r}")


def _flags_table(found: Enum, flags: dict[int, str]) -> EnumTable:
    return EnumTable(found, lambda value: flags_text(flags, value) if value > 0 else str(value))


class FunctionBody:
    """The lines of one function, and what they read.

    Args:
        compiler: has the types and options.
        in_array: within an array: without types, and zeroes are shown.
        checked: check that every member lies within the data.
        top: the outermost value: it is always shown and no comma follows it.
    """

    def __init__(self, compiler: TreeCodegen, *, in_array: bool, checked: bool, top: bool) -> None:
        self.compiler = compiler
        self.options = compiler.options
        self.in_array = in_array
        self.checked = checked
        self._top = top
        self.always = top or in_array or self.options.emit_zeroes
        self.delimiter = "" if top else f",{compiler.line_end}"
        self.lines: list[str] = []
        self._inner = 0  # structures within one another that have no function of their own
        self._deepest = 0
        self._reads = BatchedReads(compiler.btf, compiler.space)

    @property
    def pad(self) -> str:
        """The indentation of a value, in an f-string."""
        return "" if self.options.compact else f"{{{self._pad()}}}"

    def _pad(self, more: int = 0) -> str:
        # The name of a variable: p, p1, p2.
        deep = self._inner + more
        self._deepest = max(self._deepest, 0 if self.options.compact else deep)
        return "p" if self.options.compact or not deep else f"p{deep}"

    def add(self, text: str, level: int = 1) -> None:
        """Add a line of code."""
        self.lines.append(" " * level + text)

    def fail(self, error: str, level: int = 1) -> None:
        """Add a line that ends the rendering with an error."""
        self.add(f"raise DumpError({error!r})", level)

    def label(self, field: Field) -> str:
        """Return the text before a value: indentation, name, type."""
        text = ""
        if not self.options.skip_names:
            text = f".{field.name} = " if field.name else ""
            if not self.in_array:
                cast = declaration(self.compiler.btf, field.type_id, strip=True)
                text += f"({cast})"
        return self.pad + literal(text)

    def value(self, field: Field, start: int) -> None:
        """Add the lines that show one value of a structure ``start`` bytes behind ``at``."""
        plan, byte = field.plan, start + field.byte
        position = f"at + {byte}" if byte else "at"
        if isinstance(plan, BitFieldPlan):
            self._bit_field(field, plan, byte)
        elif not plan.sized:
            self.fail("EINVAL")
        elif isinstance(plan, NumberPlan | FloatPlan):
            self._number(field, plan, byte)
        elif isinstance(plan, TaggedUnionPlan):
            self._bound(position, plan.size)
            shown = self.compiler.tagged_union(plan, self)
            self.add(
                f'e(f"{self.label(field)}"); {shown}(d, {position}, '
                f'{self._pad()}, out, end); e(f"{self.delimiter}")'
            )
        elif isinstance(plan, StructPlan):
            self._composite(field, plan, byte)
        elif isinstance(plan, ArrayPlan):
            self._array(field, plan, position)

    def _bound(self, position: str, size: int) -> None:
        if self.checked:
            self.add(f"if {position} + {size} > end: raise DumpError('E2BIG')")

    def _number(self, field: Field, plan: NumberPlan | FloatPlan, byte: int) -> None:
        scalar = self.compiler.scalar(plan)
        position = f"at + {byte}" if byte else "at"
        self._bound(position, plan.size)
        if not scalar.code or not 1 <= plan.size <= _MAX_BASE:
            if self.always:
                self.add(f'e(f"{self.label(field)}")')
            self.fail("EINVAL")
            return
        var = self._reads.number(byte, scalar.code)
        if self.checked:
            self.add(f"{var}, = {self._reads.unpacker(scalar.code)}(d, {position})")
        text = substituted(scalar.text, var, position)
        self._show(field, text, substituted(scalar.nonzero, var, ""))

    def _show(self, field: Field, text: str, nonzero: str) -> None:
        condition = "" if self.always else f"if {nonzero}: "
        if text:
            self.add(f'{condition}e(f"{self.label(field)}{text}{self.delimiter}")')
            return
        self.add(f"if {'True' if self.always else nonzero}:")
        self.add(f'e(f"{self.label(field)}")', 2)
        self.fail("EINVAL", 2)

    def _bit_field(self, field: Field, plan: BitFieldPlan, byte: int) -> None:
        self._bound(f"at + {byte}", plan.size)
        var = self._reads.bitfield(8 * byte + plan.bit, plan.bits)
        if self.checked:
            source = bitfield_source(self.compiler.btf, 8 * byte + plan.bit, plan.bits)
            self.add(f"{var} = {source}")
        self._show(field, self._bit_field_text(plan, var), var)

    def _bit_field_text(self, plan: BitFieldPlan, var: str) -> str:
        text, bits = self.compiler.scalar(plan.whole).text, 8 * plan.whole.size
        if isinstance(plan.type, Enum):
            whole = plan.signed and plan.bits >= bits
            return text.replace("@v", f"SIGNED({var}, {bits})" if whole else var)
        if not self.options.symbolic:
            return f"{{{var}:#x}}"
        if plan.is_truth and text:
            return text.replace("@v", var)
        return f"{{SIGNED({var}, {plan.bits})}}" if plan.signed else f"{{{var}}}"

    def _composite(self, field: Field, plan: StructPlan, byte: int) -> None:
        opening = f'e(f"{self.label(field)}{{{{{self.compiler.line_end}")'
        closing = f'e(f"{self.pad}}}}}{self.delimiter}")'
        if self.always:
            self.add(opening)
            self._contents(plan, byte)
            self.add(closing)
            return
        mark = f"n{self._inner}"
        self.add(f"{mark} = len(out); {opening}")
        self._contents(plan, byte)
        self.add(f"if len(out) == {mark} + 1: out.pop()")
        self.add(f"else: {closing}")

    def _contents(self, plan: StructPlan, byte: int) -> None:
        # Small structures are rendered inline, others by a function of their own.
        if self.checked or self._top or plan.values > _INLINED:
            name = self.compiler.contents(plan, in_array=self.in_array, checked=self.checked)
            self.add(f"{name}(d, at + {byte}, {self._pad(1)}, out, end)")
            return
        self._inner += 1
        for field in plan.fields:
            self.value(field, byte)
        self._inner -= 1

    def _array(self, field: Field, plan: ArrayPlan, position: str) -> None:
        if not self.always and not plan.count:
            return
        name = self.compiler.contents(plan, in_array=True, checked=self.checked)
        level = 2
        self.add(f"if {'True' if self.always else self._array_shown(plan, position)}:")
        if self.options.emit_strings and plan.is_bytes:
            self.add(f"s = d[{position}:{position} + {plan.count}]", 2)
            self.add("k = s.find(0)", 2)
            shown = f"{self.label(field)}{{STRING(s[:k])}}{self.delimiter}"
            self.add(f'if k >= 0: e(f"{shown}")', 2)
            self.add("else:", 2)
            level = 3
        self.add(f'e(f"{self.label(field)}[{self.compiler.line_end}")', level)
        self.add(f"{name}(d, {position}, {self._pad(1)}, out, end)", level)
        self.add(f'e(f"{self.pad}]{self.delimiter}")', level)

    def _array_shown(self, plan: ArrayPlan, position: str) -> str:
        if plan.is_bytes:
            return f"{position} >= end or d[{position}]" if self.checked else f"d[{position}]"
        if isinstance(plan.element, NumberPlan | FloatPlan):
            zeroes = self.compiler.constant(f"Z{plan.size}", bytes(plan.size))
            return f"d[{position}:{position} + {plan.size}] != {zeroes}"
        return f"not {self.compiler.constant(f'zero{plan.type.id}', plan.is_zero)}(d, {position})"

    def source(self, name: str) -> str:
        """Return the whole function as text."""
        before = ["p", *(f"p{deep}" for deep in range(1, self._deepest + 1))]
        pads = [f" {new} = {old} + STEP" for old, new in itertools.pairwise(before)]
        reads = [] if self.checked else self._reads.lines()
        head = [f"def {name}(d, at, p, out, end):", " e = out.append"]
        return "\n".join([*head, *pads, *reads, *self.lines]) + "\n"

    def elements(self, plan: ArrayPlan) -> None:
        """Add the lines that show the elements of an array."""
        element = plan.element
        if not plan.count:
            self.add("pass")
        elif plan.is_bytes:
            self._characters(plan)
        elif isinstance(element, NumberPlan | FloatPlan):
            self._numbers(plan, element)
        elif isinstance(element, StructPlan | ArrayPlan):
            self._aggregates(plan, element)

    def _characters(self, plan: ArrayPlan) -> None:
        signed = isinstance(plan.element, NumberPlan) and plan.element.signed
        end = "," if self.options.compact else ",\n"
        table = self.compiler.constant(
            f"C{signed:d}", [text + end for text in character_texts(signed=signed)]
        )
        self.add(f"s = d[at:at + {plan.count}]")
        self.add("k = s.find(0)")
        self.add("if k >= 0: s = s[:k]")
        pad = "" if self.options.compact else "p + "
        self.add(f'e("".join([{pad}{table}[v] for v in s]))')
        if self.options.emit_zeroes:
            nul = literal("'\\0'")
            self.add(f'if k >= 0: e(f"{self.pad}{nul}{self.delimiter}")')

    def _numbers(self, plan: ArrayPlan, element: NumberPlan | FloatPlan) -> None:
        scalar, count, size = self.compiler.scalar(element), plan.count, element.size
        if not scalar.text:
            self.add(f'if at < end: e(f"{self.pad}")')
            return
        code = f"{count}{scalar.code}" if len(scalar.code) == 1 else scalar.code * count
        values = f"{self._reads.unpacker(code)}(d, at)"
        if self.checked:
            layout = struct_mark(self.compiler.btf) + scalar.code
            one = self.compiler.constant(f"I_{scalar.code}", struct.Struct(layout).iter_unpack)
            self.add(f"k = max(0, min({count}, (end - at) // {size}))")
            values = f"[v for v, in {one}(d[at:at + k * {size}])]"
        text = substituted(scalar.text, "v", "at" if size % 8 == 0 else "1")
        self.add(f'e("".join([f"{self.pad}{text}{self.delimiter}" for v in {values}]))')

    def _aggregates(self, plan: ArrayPlan, element: StructPlan | ArrayPlan) -> None:
        positions = f"range(at, at + {plan.size}, {element.size})"
        self.add("try:")
        self.add(f"for q in {positions if element.size else f'[at] * {plan.count}'}:", 2)
        if isinstance(element, TaggedUnionPlan):
            shown = self.compiler.tagged_union(element, self)
            self.add(f'e(f"{self.pad}"); {shown}(d, q, p, out, end); e(f"{self.delimiter}")', 3)
            self.add("except DumpError: pass")
            return
        name = self.compiler.contents(element, in_array=True, checked=self.checked)
        opened, closed = ("{{", "}}") if isinstance(element, StructPlan) else ("[", "]")
        inner = "p" if self.options.compact else "p + STEP"
        if self.options.emit_strings and isinstance(element, ArrayPlan) and element.is_bytes:
            self.add(f"s = d[q:q + {element.count}]", 3)
            self.add("k = s.find(0)", 3)
            self.add(f'if k >= 0: e(f"{self.pad}{{STRING(s[:k])}}{self.delimiter}"); continue', 3)
        self.add(f'e(f"{self.pad}{opened}{self.compiler.line_end}")', 3)
        self.add(f"{name}(d, q, {inner}, out, end)", 3)
        self.add(f'e(f"{self.pad}{closed}{self.delimiter}")', 3)
        self.add("except DumpError: pass")
