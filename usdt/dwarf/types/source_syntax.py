"""Types and prototypes in the syntax of the source language."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from usdt.base.errors import TracingError
from usdt.btf.dump.declare import CDeclarationPrinter
from usdt.btf.format import Kind
from usdt.btf.types import (
    Array,
    Composite,
    Enum,
    FunctionProto,
    Modifier,
    Pointer,
    Void,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from usdt.btf.types import Type
    from usdt.dwarf.types.dwarf_btf import DwarfTypes
    from usdt.dwarf.types.functions import ParameterDebug

__all__ = ("SourceSyntax",)

_MAX_DEPTH = 16
_MAX_PIECES = 1000  # of one type: prototypes may contain prototypes
_UNKNOWN = "?"


class SourceSyntax:
    """A printer of types and prototypes.

    Args:
        types: the types of the program.
        references: IDs of pointers that are references → "&" or "&&".
    """

    def __init__(self, types: DwarfTypes, references: Mapping[int, str]) -> None:
        self._types = types
        self._references = references
        self._pieces = 0

    def type(self, language: str, type_id: int, name: str = "") -> str:
        """Return a type, or the declaration of a variable of that type."""
        try:
            if language == "rust":
                text = self._rust(type_id, 0)
                return f"{name}: {text}" if name else text
            if language == "go":
                text = self._go(type_id, 0)
                return f"{name} {text}" if name else text
            plain = language != "c"
            return _Declarer(self._types, self._references, plain=plain).declare(type_id, name)
        except TracingError:  # damaged: show the rest
            return f"{_UNKNOWN} {name}".rstrip()

    def function(
        self,
        language: str,
        name: str,
        parameters: Sequence[ParameterDebug],
        returns: int,
        *,
        variadic: bool,
    ) -> str:
        """Return a prototype, without parameters that the compiler has added."""
        shown = [
            self.type(language, one.type_id, one.name)
            if not one.problem
            else f"{_UNKNOWN} {one.name}".rstrip()
            for one in parameters
            if not one.artificial
        ]
        if variadic:
            shown.append("...")
        if language == "rust":
            arrow = f" -> {self._rust(returns, 0)}" if returns else ""
            return f"fn {name}({', '.join(shown)}){arrow}"
        if language == "go":
            return f"func {name}({', '.join(shown)})"
        listed = ", ".join(shown) or ("void" if language == "c" else "")
        whole = f"{name}({listed}){' const' if self._is_const(parameters) else ''}"
        # Constructors and destructors return nothing, not even void.
        return whole if _is_structor(name) else self.type(language, returns, whole)

    def _is_const(self, parameters: Sequence[ParameterDebug]) -> bool:
        # True for a const method.
        this = parameters[0] if parameters else None
        if this is None or not this.artificial or this.name != "this":
            return False
        found = self._types.resolve(this.type_id)
        target = self._types.type(found.type_id) if isinstance(found, Pointer) else found
        return target.kind == Kind.CONST

    def _rust(self, type_id: int, depth: int) -> str:
        found = self._types.type(type_id)
        die = self._types.die(type_id)
        self._pieces = self._pieces + 1 if depth else 0
        if depth > _MAX_DEPTH or self._pieces > _MAX_PIECES:
            return "…"
        if isinstance(found, Pointer):
            own = "" if die is None else die.text()  # "&str", "*const u8": rustc writes it
            return own or f"*{self._rust(found.type_id, depth + 1)}"
        if isinstance(found, Array):
            return f"[{self._rust(found.type_id, depth + 1)}; {found.count}]"
        if isinstance(found, Void):
            return "()"
        if isinstance(found, FunctionProto):
            shown = found.parameters[:_MAX_PIECES]
            return f"fn({', '.join(self._rust(one.type_id, depth + 1) for one in shown)})"
        return found.name or _UNKNOWN

    def _go(self, type_id: int, depth: int) -> str:
        found = self._types.type(type_id)
        if depth > _MAX_DEPTH:
            return "…"
        if isinstance(found, Pointer):
            return f"*{self._go(found.type_id, depth + 1)}"
        if isinstance(found, Array):
            return f"[{found.count}]{self._go(found.type_id, depth + 1)}"
        return found.name or _UNKNOWN


class _Declarer(CDeclarationPrinter):
    # Declarations of C with references; for C++ without the keywords struct, union and enum.
    def __init__(self, types: DwarfTypes, references: Mapping[int, str], *, plain: bool) -> None:
        super().__init__(types)
        self._types = types
        self._references = references
        self._plain = plain

    def _type(self, type_id: int) -> Type:
        return self._types.outline(type_id)

    def _before(self, found: Type, chain: list[Type], *, pointer: bool) -> str:
        if isinstance(found, Pointer) and found.id in self._references:
            mark = self._references[found.id]
            return mark if pointer else f" {mark}"
        if isinstance(found, Modifier) and found.flag:
            return ""  # _Atomic and the like are not shown
        return super()._before(found, chain, pointer=pointer)

    def _innermost(self, chain: list[Type], level: int) -> str:
        found = chain[-1]
        text = super()._innermost(chain, level)
        if isinstance(found, Composite | Enum) and not found.name:
            return text + "{…}"
        return _TAG.sub(r"\1", text) if self._plain else text


def _is_structor(name: str) -> bool:
    owner, _, last = _without_arguments(name).rpartition("::")
    return bool(owner) and last.removeprefix("~") == owner.rpartition("::")[2]


def _without_arguments(name: str) -> str:
    # The name without template arguments, up to the word "operator".
    depth, kept = 0, []
    for sign in name.partition("operator")[0]:
        depth += (sign == "<") - (sign == ">")
        if not depth and sign != ">":
            kept.append(sign)
    return "".join(kept)


_TAG = re.compile(r"^((?:(?:const|volatile|restrict) )*)(?:struct|union|enum) ")
