"""Elements of arrays, in generated code (:mod:`usdt.btf.values.tree_codegen`)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from usdt.btf.tagged_union import choice_of
from usdt.btf.types import Array, Composite, Int
from usdt.btf.values.scalars import character_texts, literal, substituted

if TYPE_CHECKING:
    from usdt.btf.values.scalars import Scalar
    from usdt.btf.values.tree_codegen import Body

__all__ = ("Elements",)


class Elements:
    """The lines of an array's elements."""

    def __init__(self, body: Body, found: Array) -> None:
        self._body = body
        self._found = found
        self._compiler = body.compiler
        self._size = self._compiler.btf.size_of(found.target)
        self._element = self._compiler.btf.resolve(found.target)

    def write(self) -> None:
        """Add them to the body."""
        if not self._found.count:
            self._body.add("pass")
            return
        scalar = self._compiler.scalar(self._element)
        if isinstance(self._element, Int) and self._size == 1:
            self._characters(self._element)
        elif scalar is not None:
            self._numbers(scalar)
        elif isinstance(self._element, Composite | Array):
            self._aggregates(self._element)

    def _characters(self, element: Int) -> None:
        body, count = self._body, self._found.count
        texts = character_texts(signed=element.signed)
        end = "," if body.options.compact else ",\n"
        table = self._compiler.constant(f"C{element.signed:d}", [text + end for text in texts])
        body.add(f"s = d[at:at + {count}]")
        body.add("k = s.find(0)")
        body.add("if k >= 0: s = s[:k]")
        pad = "" if body.options.compact else "p + "
        body.add(f'e("".join([{pad}{table}[v] for v in s]))')
        if body.options.emit_zeroes:
            nul = literal("'\\0'")
            body.add(f'if k >= 0: e(f"{body.pad}{nul}{body.delimiter}")')

    def _numbers(self, scalar: Scalar) -> None:
        body, count, size = self._body, self._found.count, self._size
        if not scalar.text:
            body.add(f'if at < end: e(f"{body.pad}")')
            return
        code = f"{count}{scalar.code}" if len(scalar.code) == 1 else scalar.code * count
        values = f"{body.reader(code)}(d, at)"
        if body.checked:
            layout = self._compiler.mark(scalar.code)
            one = self._compiler.constant(f"I_{scalar.code}", struct.Struct(layout).iter_unpack)
            body.add(f"k = max(0, min({count}, (end - at) // {size}))")
            values = f"[v for v, in {one}(d[at:at + k * {size}])]"
        text = substituted(scalar.text, "v", "at" if size % 8 == 0 else "1")
        body.add(f'e("".join([f"{body.pad}{text}{body.delimiter}" for v in {values}]))')

    def _aggregates(self, element: Composite | Array) -> None:
        body = self._body
        choice = choice_of(self._compiler.btf, element)
        if choice is not None:
            shown = self._compiler.chosen(element, choice, body)
            size, count = self._size, self._found.count
            body.add("try:")
            body.add(f"for q in range(at, at + {size * count}, {size}):", 2)
            body.add(f'e(f"{body.pad}"); {shown}(d, q, p, out, end); e(f"{body.delimiter}")', 3)
            body.add("except DumpError: pass")
            return
        name = self._compiler.contents(element, in_array=True, checked=body.checked)
        size = self._size
        opened = "{{" if isinstance(element, Composite) else "["
        closed = "}}" if isinstance(element, Composite) else "]"
        inner = "p" if body.options.compact else "p + STEP"
        body.add("try:")
        if size:
            body.add(f"for q in range(at, at + {size * self._found.count}, {size}):", 2)
        else:
            body.add(f"for q in [at] * {self._found.count}:", 2)
        if body.options.emit_strings and isinstance(element, Array) and body.is_text(element):
            body.add(f"s = d[q:q + {element.count}]", 3)
            body.add("k = s.find(0)", 3)
            body.add(f'if k >= 0: e(f"{body.pad}{{STRING(s[:k])}}{body.delimiter}"); continue', 3)
        body.add(f'e(f"{body.pad}{opened}{self._compiler.line_end}")', 3)
        body.add(f"{name}(d, q, {inner}, out, end)", 3)
        body.add(f'e(f"{body.pad}{closed}{body.delimiter}")', 3)
        body.add("except DumpError: pass")
