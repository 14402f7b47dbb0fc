"""Render values as text by functions that are generated per type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.errors import BtfError
from usdt.btf.dump.declare import declaration
from usdt.btf.types import DataSection, Variable
from usdt.btf.values.options import DumpError, Options, Rendered
from usdt.btf.values.read_plan import max_text
from usdt.btf.values.tree_codegen import TreeCodegen

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.btf.reader import Btf

__all__ = ("Renderer", "render")

_LINKAGES = {0: "static ", 2: "extern "}


class Renderer:
    """Renders values of any type with the same options; keeps the functions it generated.

    Args:
        btf: the types.
        options: how values are shown.
        symbol: returns the name of a code address, or None; called if options are symbolic.
    """

    def __init__(
        self,
        btf: Btf,
        options: Options = Options(),  # noqa: B008 - immutable
        *,
        symbol: Callable[[int], str | None] | None = None,
    ) -> None:
        self.btf = btf
        self.options = options
        self._compiler = TreeCodegen(btf, options, symbol)
        self._pad = "" if options.compact else options.indent_str * options.indent_level

    def render(self, type_id: int, data: bytes) -> Rendered:
        """Return a value as text; if the data is too short, the text up to its end.

        Raises:
            BtfError: the type is damaged, nested too deeply or too large.
        """
        enough = self._compiler.plans.of(type_id).extent <= len(data)
        out: list[str] = [] if enough else _Bounded(4 * max_text(len(data)))
        try:
            self._put(type_id, bytes(data), 0, out)
        except DumpError as err:
            return Rendered("".join(out), None, err.error)
        return Rendered("".join(out), self.btf.size_of(type_id), "")

    def text_of(self, type_id: int) -> Callable[[bytes], str]:
        """Return a function that renders values of one type: the fastest way to render many.

        Raises:
            BtfError: the type is damaged, nested too deeply, too large or without a size.
        """
        size = max(self._compiler.plans.of(type_id).extent, self.btf.size_of(type_id))
        function = self._compiler.top(type_id, checked=False)
        pad = self._pad

        def text(data: bytes) -> str:
            if len(data) < size:
                return self.render(type_id, data).text
            out: list[str] = []
            try:
                function(data, 0, pad, out, size)
            except DumpError:
                return "".join(out)  # values of a type in it cannot be shown
            return "".join(out)

        return text

    def _put(self, type_id: int, data: bytes, at: int, out: list[str]) -> None:
        found = self.btf.type(type_id)
        if isinstance(found, Variable):
            cast = declaration(self.btf, found.type_id, strip=True)
            linkage = _LINKAGES.get(found.linkage, "")
            out.append(f"{self._pad}{linkage}{cast} {found.name} = ")
            self._put(found.type_id, data, at, out)
        elif isinstance(found, DataSection):
            self._compiler.plans.of(type_id)  # refuses what is nested or large without end
            out.append(f'{self._pad}SEC("{found.name}") ')
            for item in found.items:
                if not isinstance(self.btf.type(item.type_id), Variable):
                    raise BtfError(f"{self.btf.name}: BTF type {item.type_id} is not a variable")
                self._put(item.type_id, data, at + item.offset, out)
                out.append(";")
        else:
            enough = at + self._compiler.plans.of(type_id).extent <= len(data)
            function = self._compiler.top(type_id, checked=not enough)
            function(data, at, self._pad, out, len(data))


class _Bounded(list[str]):
    # The text of data that end too early; damaged types may describe their first bytes for ever.
    def __init__(self, most: int) -> None:
        super().__init__()
        self._left = most

    def append(self, text: str) -> None:
        self._left -= len(text)
        if self._left < 0:
            raise DumpError("E2BIG")
        super().append(text)


def render(
    btf: Btf,
    type_id: int,
    data: bytes,
    options: Options = Options(),  # noqa: B008 - immutable
) -> Rendered:
    """Return one value as text; for many values of a type, keep a :class:`Renderer`.

    Raises:
        BtfError: the type is damaged, nested too deeply or too large.
    """
    return Renderer(btf, options).render(type_id, data)
