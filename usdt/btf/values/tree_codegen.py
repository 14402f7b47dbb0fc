"""Generate code that renders values as lines: one function per structure or array, on first use.

A function reads all numbers of its structure with one ``struct`` call and has one line of code for
each, which contains the member's name and type. Each function exists in two variants: one checks
the bounds of every member; the other is for data that is known to be long enough.

Names from BTF get into the source only as escaped string literals.
"""

from __future__ import annotations

import functools
import itertools
import struct
from typing import TYPE_CHECKING, Any

from usdt.base.errors import BtfError
from usdt.btf.declare import declaration
from usdt.btf.format import Encoding
from usdt.btf.tagged_union import tagged_union_of
from usdt.btf.types import (
    Array,
    Composite,
    Enum,
    Float,
    FunctionProto,
    Int,
    Member,
    Pointer,
    Type,
    Void,
    flag_names,
)
from usdt.btf.values.batched_reads import (
    BatchedReads,
    bitfield_source,
    struct_code,
    struct_mark,
)
from usdt.btf.values.limits import TypeLimits
from usdt.btf.values.options import DumpError, Options
from usdt.btf.values.scalars import (
    EnumText,
    FlagText,
    Scalar,
    character_texts,
    escaped_string,
    float_text,
    literal,
    sign_extended,
    substituted,
    wide_text,
)
from usdt.btf.values.variants import variant_tree
from usdt.btf.values.zero import ZeroTests

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.btf.reader import Btf
    from usdt.btf.tagged_union import TaggedUnion

__all__ = ("TreeCodegen",)

_MAX_BASE = 16
_INLINED = 100  # values of a structure that has no function of its own


class TreeCodegen:
    """Generates functions ``(data, at, pad, out, end)`` for the types of one BTF."""

    def __init__(
        self, btf: Btf, options: Options, symbol: Callable[[int], str | None] | None = None
    ) -> None:
        self.btf = btf
        self._symbol = symbol if options.symbolic else None
        self.options = options
        self.measure = TypeLimits(btf)
        self.zero = ZeroTests(btf)
        self.step = "" if options.compact else options.indent_str
        self.line_end = "" if options.compact else "\\n"
        order = btf.order
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
        self._scalars: dict[int, Scalar | None] = {}

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
            self.measure.extent(type_id)
            body = FunctionBody(self, in_array=False, checked=checked, top=True)
            body.value(Member("", type_id, 0, 0))
            self._define(name, body)
        function: Callable[..., None] = self.space[name]
        return function

    def contents(self, found: Composite | Array, *, in_array: bool, checked: bool) -> str:
        """Return the name of the function for what is between the brackets of a type."""
        in_array = in_array or isinstance(found, Array)
        name = f"in{found.id}_{in_array:d}{checked:d}"
        if name not in self.space:
            body = FunctionBody(self, in_array=in_array, checked=checked, top=False)
            if isinstance(found, Composite):
                for member in found.members:
                    body.value(member)
            else:
                body.elements(found)
            self._define(name, body)
        return name

    def chosen(self, found: Type, choice: TaggedUnion, body: FunctionBody) -> str:
        """Return the name of the function for values of a tagged union."""
        name = f"chosen{found.id}_{body.in_array:d}{body.checked:d}"
        if name not in self.space:
            of = functools.partial(self.contents, in_array=True, checked=body.checked)
            self.space[name] = variant_tree(choice, self.btf, of, self.space, self.options)
        return name

    def _define(self, name: str, body: FunctionBody) -> None:
        code = compile(body.source(name), f"<type {name}>", "exec")
        exec(code, self.space)  # noqa: S102 - our own code; texts are literals in it

    def scalar(self, found: Type) -> Scalar | None:
        """Return how numbers of a resolved type are read; None if its values are not numbers."""
        if found.id not in self._scalars:
            self._scalars[found.id] = self._scalar(found)
        return self._scalars[found.id]

    def _code_at(self, address: int) -> str:
        name = self._symbol(address) if self._symbol is not None else None
        return name or f"{address:#x}"

    def _scalar(self, found: Type) -> Scalar | None:
        code = struct_code(self.btf, found)
        if isinstance(found, Pointer):
            target = self.btf.resolve(found.type_id)
            named = self._symbol is not None and isinstance(target, FunctionProto | Void)
            shown = "CODE(@v)" if named else "f'0x{@v:x}'"
            return Scalar(code, self.btf.pointer_size, f"{{{shown} if @v else NULL(@q)}}", "@v")
        if isinstance(found, Enum):
            flags = flag_names(found) if self.options.symbolic else None
            table = EnumText(found) if flags is None else FlagText(found, flags)
            names = self.constant(f"E{found.id}", table)
            return Scalar(code, found.size, f"{{{names}[@v]}}" if code else "", "@v")
        if isinstance(found, Int) and code:
            if self.options.symbolic and found.encoding & Encoding.BOOL:
                text = "{WORDS[@v] if @v < 2 else @v}"
                return Scalar(code.upper(), found.size, text, "@v")
            return Scalar(code, found.size, "{@v}", "@v")
        if isinstance(found, Int | Float):
            size = found.size
            text = "{WIDE(@v)}" if isinstance(found, Int) and size == _MAX_BASE else ""
            if isinstance(found, Float) and size in (4, 8, 16):
                text = "{FLOAT(@v)}"
            return Scalar(f"{size}s", size, text, f"@v != {bytes(min(size, _MAX_BASE))!r}")
        return None


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

    def lead(self, member: Member) -> str:
        """Return the text before a value: indentation, name, type."""
        text = ""
        if not self.options.skip_names:
            text = f".{member.name} = " if member.name else ""
            if not self.in_array:
                cast = declaration(self.compiler.btf, member.type_id, strip=True)
                text += f"({cast})"
        return self.pad + literal(text)

    def value(self, member: Member) -> None:
        """Add the lines that show one value; ``member`` has its offset."""
        btf = self.compiler.btf
        found = btf.resolve(member.type_id)
        if member.bitfield_size and isinstance(found, Int | Enum):
            self._bit_field(member, found)
            return
        try:
            btf.size_of(member.type_id)
        except BtfError:
            self.fail("EINVAL")
            return
        scalar = self.compiler.scalar(found)
        if scalar is not None:
            self._number(member, scalar)
        elif (choice := tagged_union_of(btf, found)) is not None:
            self._bound(member, btf.size_of(found.id))
            shown = self.compiler.chosen(found, choice, self)
            self.add(
                f'e(f"{self.lead(member)}"); {shown}(d, {self.place(member)}, '
                f'{self._pad()}, out, end); e(f"{self.delimiter}")'
            )
        elif isinstance(found, Composite):
            self._composite(member, found)
        elif isinstance(found, Array):
            self._array(member, found)
        else:
            self.fail("EINVAL")

    def place(self, member: Member) -> str:
        """Return the source of a value's offset in the data."""
        byte = member.bit_offset // 8
        return f"at + {byte}" if byte else "at"

    def _bound(self, member: Member, size: int) -> None:
        if self.checked:
            self.add(f"if {self.place(member)} + {size} > end: raise DumpError('E2BIG')")

    def _number(self, member: Member, scalar: Scalar) -> None:
        self._bound(member, scalar.size)
        if not scalar.code or not 1 <= scalar.size <= _MAX_BASE:
            if self.always:
                self.add(f'e(f"{self.lead(member)}")')
            self.fail("EINVAL")
            return
        var = self._reads.number(member.bit_offset // 8, scalar.code)
        if self.checked:
            unpacker = self._reads.unpacker(scalar.code)
            self.add(f"{var}, = {unpacker}(d, {self.place(member)})")
        text = substituted(scalar.text, var, self.place(member))
        self._show(member, text, substituted(scalar.nonzero, var, ""))

    def _show(self, member: Member, text: str, nonzero: str) -> None:
        condition = "" if self.always else f"if {nonzero}: "
        if text:
            self.add(f'{condition}e(f"{self.lead(member)}{text}{self.delimiter}")')
            return
        self.add(f"if {'True' if self.always else nonzero}:")
        self.add(f'e(f"{self.lead(member)}")', 2)
        self.fail("EINVAL", 2)

    def _bit_field(self, member: Member, found: Int | Enum) -> None:
        self._bound(member, (member.bit_offset % 8 + member.bitfield_size + 7) // 8)
        var = self._reads.bitfield(member.bit_offset, member.bitfield_size)
        if self.checked:
            source = bitfield_source(self.compiler.btf, member.bit_offset, member.bitfield_size)
            self.add(f"{var} = {source}")
        text = f"{{{var}:#x}}"
        if self.options.symbolic:
            known = self.compiler.scalar(found)
            truth = isinstance(found, Int) and bool(found.encoding & Encoding.BOOL)
            shown = f"SIGNED({var}, {member.bitfield_size})" if found.signed else var
            text = known.text.replace("@v", var) if truth and known else f"{{{shown}}}"
        if isinstance(found, Enum):
            scalar = self.compiler.scalar(found)
            whole = found.signed and member.bitfield_size >= 8 * found.size
            value = f"SIGNED({var}, {8 * found.size})" if whole else var
            text = f"{{E{found.id}[{value}]}}" if scalar and scalar.code else ""
        self._show(member, text, var)

    def _composite(self, member: Member, found: Composite) -> None:
        opening = f'e(f"{self.lead(member)}{{{{{self.compiler.line_end}")'
        closing = f'e(f"{self.pad}}}}}{self.delimiter}")'
        if self.always:
            self.add(opening)
            self._contents(member, found)
            self.add(closing)
            return
        mark = f"n{self._inner}"
        self.add(f"{mark} = len(out); {opening}")
        self._contents(member, found)
        self.add(f"if len(out) == {mark} + 1: out.pop()")
        self.add(f"else: {closing}")

    def _contents(self, member: Member, found: Composite) -> None:
        # Small structures are rendered inline, others by a function of their own.
        small = self.compiler.measure.values(found.id) <= _INLINED
        if self.checked or not small or self._top or member.bit_offset % 8:
            name = self.compiler.contents(found, in_array=self.in_array, checked=self.checked)
            self.add(f"{name}(d, {self.place(member)}, {self._pad(1)}, out, end)")
            return
        self._inner += 1
        for one in found.members:
            place = member.bit_offset + one.bit_offset
            self.value(Member(one.name, one.type_id, place, one.bitfield_size))
        self._inner -= 1

    def _array(self, member: Member, found: Array) -> None:
        condition = "True" if self.always else self._array_shown(member, found)
        if condition == "False":
            return
        name = self.compiler.contents(found, in_array=True, checked=self.checked)
        level = 2
        self.add(f"if {condition}:")
        if self.options.emit_strings and self.is_text(found):
            self.add(f"s = d[{self.place(member)}:{self.place(member)} + {found.count}]", 2)
            self.add("k = s.find(0)", 2)
            shown = f"{self.lead(member)}{{STRING(s[:k])}}{self.delimiter}"
            self.add(f'if k >= 0: e(f"{shown}")', 2)
            self.add("else:", 2)
            level = 3
        self.add(f'e(f"{self.lead(member)}[{self.compiler.line_end}")', level)
        self.add(f"{name}(d, {self.place(member)}, {self._pad(1)}, out, end)", level)
        self.add(f'e(f"{self.pad}]{self.delimiter}")', level)

    def is_text(self, found: Array) -> bool:
        """Return True if an array's elements are bytes, which are shown as characters."""
        element = self.compiler.btf.resolve(found.type_id)
        return isinstance(element, Int) and element.size == 1

    def _array_shown(self, member: Member, found: Array) -> str:
        if not found.count:
            return "False"
        place = self.place(member)
        if self.is_text(found):
            return f"{place} >= end or d[{place}]" if self.checked else f"d[{place}]"
        element = self.compiler.btf.resolve(found.type_id)
        size = self.compiler.btf.size_of(member.type_id)
        if self.compiler.scalar(element) is not None:
            zeroes = self.compiler.constant(f"Z{size}", bytes(size))
            return f"d[{place}:{place} + {size}] != {zeroes}"
        test = self.compiler.constant(f"zero{found.id}", self.compiler.zero.test(found.id))
        return f"not {test}(d, {place}, end)"

    def source(self, name: str) -> str:
        """Return the whole function as text."""
        before = ["p", *(f"p{deep}" for deep in range(1, self._deepest + 1))]
        pads = [f" {new} = {old} + STEP" for old, new in itertools.pairwise(before)]
        reads = [] if self.checked else self._reads.lines()
        head = [f"def {name}(d, at, p, out, end):", " e = out.append"]
        return "\n".join([*head, *pads, *reads, *self.lines]) + "\n"

    def elements(self, found: Array) -> None:
        """Add the lines that show the elements of an array."""
        element = self.compiler.btf.resolve(found.type_id)
        scalar = self.compiler.scalar(element)
        if not found.count:
            self.add("pass")
        elif isinstance(element, Int) and element.size == 1:
            self._characters(found, element)
        elif scalar is not None:
            self._numbers(found, scalar)
        elif isinstance(element, Composite | Array):
            self._aggregates(found, element)

    def _characters(self, found: Array, element: Int) -> None:
        count = found.count
        texts = character_texts(signed=element.signed)
        end = "," if self.options.compact else ",\n"
        table = self.compiler.constant(f"C{element.signed:d}", [text + end for text in texts])
        self.add(f"s = d[at:at + {count}]")
        self.add("k = s.find(0)")
        self.add("if k >= 0: s = s[:k]")
        pad = "" if self.options.compact else "p + "
        self.add(f'e("".join([{pad}{table}[v] for v in s]))')
        if self.options.emit_zeroes:
            nul = literal("'\\0'")
            self.add(f'if k >= 0: e(f"{self.pad}{nul}{self.delimiter}")')

    def _numbers(self, found: Array, scalar: Scalar) -> None:
        count, size = found.count, self.compiler.btf.size_of(found.type_id)
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

    def _aggregates(self, found: Array, element: Composite | Array) -> None:
        size, count = self.compiler.btf.size_of(found.type_id), found.count
        choice = tagged_union_of(self.compiler.btf, element)
        if choice is not None:
            shown = self.compiler.chosen(element, choice, self)
            self.add("try:")
            self.add(f"for q in range(at, at + {size * count}, {size}):", 2)
            self.add(f'e(f"{self.pad}"); {shown}(d, q, p, out, end); e(f"{self.delimiter}")', 3)
            self.add("except DumpError: pass")
            return
        name = self.compiler.contents(element, in_array=True, checked=self.checked)
        opened = "{{" if isinstance(element, Composite) else "["
        closed = "}}" if isinstance(element, Composite) else "]"
        inner = "p" if self.options.compact else "p + STEP"
        self.add("try:")
        if size:
            self.add(f"for q in range(at, at + {size * count}, {size}):", 2)
        else:
            self.add(f"for q in [at] * {count}:", 2)
        if self.options.emit_strings and isinstance(element, Array) and self.is_text(element):
            self.add(f"s = d[q:q + {element.count}]", 3)
            self.add("k = s.find(0)", 3)
            self.add(f'if k >= 0: e(f"{self.pad}{{STRING(s[:k])}}{self.delimiter}"); continue', 3)
        self.add(f'e(f"{self.pad}{opened}{self.compiler.line_end}")', 3)
        self.add(f"{name}(d, q, {inner}, out, end)", 3)
        self.add(f'e(f"{self.pad}{closed}{self.delimiter}")', 3)
        self.add("except DumpError: pass")
