"""Print types and declarations as C, with libbpf's spacing: ``int (*fn)(struct sock *, int)``.

BTF goes from the outermost type inwards (pointer → array → int). C writes the innermost type first,
pointers before the name, and arrays and parameters after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.errors import BtfError
from usdt.btf.format import Kind, nesting_error
from usdt.btf.types import (
    Array,
    Composite,
    Enum,
    Float,
    Forward,
    FunctionProto,
    Int,
    Modifier,
    Pointer,
    Type,
    Typedef,
    Void,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.btf.reader import Btf

__all__ = ("CDeclarationPrinter", "declaration")

_MAX_PIECES = 20_000  # of one declaration: prototypes may contain prototypes, even themselves
_MAX_DEPTH = 32
_MAX_CHAIN = 128
_QUALIFIERS = {Kind.CONST: "const", Kind.VOLATILE: "volatile", Kind.RESTRICT: "restrict"}
_INNERMOST = (Void, Int, Float, Composite, Enum, Forward, Typedef)


def declaration(btf: Btf, type_id: int, name: str = "", *, strip: bool = False) -> str:
    """Return the C declaration of a variable called ``name``, or the type alone.

    Args:
        btf: the types.
        type_id: ID of the type.
        name: the name that is declared; "" for the type alone.
        strip: leave out const, volatile, restrict and tags.

    Raises:
        BtfError: the type cannot be declared (sections, for example), or is nested too deeply.
    """
    return CDeclarationPrinter(btf).declare(type_id, name, strip=strip)


class CDeclarationPrinter:
    """Prints declarations; ``names`` and ``inline`` decide how the innermost types look.

    Args:
        btf: the types.
        names: returns the name to print for a named type; by default its own.
        inline: returns the definition of an anonymous structure, union or enumeration, for a level
            of indentation; by default these are printed without one.
    """

    def __init__(
        self,
        btf: Btf,
        *,
        names: Callable[[Type], str] | None = None,
        inline: Callable[[Composite | Enum, int], str] | None = None,
    ) -> None:
        self._btf = btf
        self._names = names or (lambda found: found.name)
        self._inline = inline
        self._pieces = 0
        self._depth = 0

    def declare(self, type_id: int, name: str = "", *, strip: bool = False, level: int = 0) -> str:
        """Return a declaration, as :func:`declaration` does.

        Raises:
            BtfError: the type cannot be declared, or is nested too deeply.
        """
        if not self._depth:
            self._pieces = 0
        self._depth += 1
        try:
            chain = self._chain(type_id, strip=strip)
            if self._depth > _MAX_DEPTH or self._pieces > _MAX_PIECES:
                raise BtfError(
                    f"{self._btf.name}: BTF type {type_id} is nested too deeply, or in itself"
                )
            start = self._innermost(chain, level)
            return start + self._rest(chain, name, pointer=False, strip=strip)
        finally:
            self._depth -= 1

    def _chain(self, type_id: int, *, strip: bool) -> list[Type]:
        # From the outermost to the innermost.
        chain: list[Type] = []
        for _ in range(_MAX_CHAIN):
            found = self._type(type_id)
            self._pieces += 1
            if not (strip and isinstance(found, Modifier)):
                chain.append(found)
            if isinstance(found, _INNERMOST):
                return chain
            if not isinstance(found, Modifier | Pointer | Array | FunctionProto):
                raise BtfError(f"{self._btf.name}: BTF type {type_id} cannot be declared in C")
            type_id = found.return_type_id if isinstance(found, FunctionProto) else found.type_id
        raise nesting_error(self._btf.name, type_id)

    def _type(self, type_id: int) -> Type:
        return self._btf.type(type_id)

    def _innermost(self, chain: list[Type], level: int) -> str:
        found = chain.pop()
        before = _qualifiers(chain)
        if isinstance(found, Void):
            return before + "void"
        if isinstance(found, Composite | Enum) and not found.name and self._inline:
            return before + self._inline(found, level)
        name = self._names(found)
        if isinstance(found, Composite):
            return before + f"{found.kind.name.lower()} {name}".rstrip()
        if isinstance(found, Enum):
            return f"{before}enum {name}"
        if isinstance(found, Forward):
            return f"{before}{'union' if found.union else 'struct'} {name}"
        return before + name

    def _rest(self, chain: list[Type], name: str, *, pointer: bool, strip: bool) -> str:
        parts: list[str] = []
        while chain:
            found = chain.pop()
            if isinstance(found, Array | FunctionProto):
                parts.append(self._after(found, chain, name, pointer=pointer, strip=strip))
                return "".join(parts)
            parts.append(self._before(found, chain, pointer=pointer))
            pointer = isinstance(found, Pointer)
        parts.append(_spaced(name, pointer=pointer))
        return "".join(parts)

    def _before(self, found: Type, chain: list[Type], *, pointer: bool) -> str:
        if isinstance(found, Pointer):
            return "*" if pointer else " *"
        if found.kind in _QUALIFIERS:
            return f" {_QUALIFIERS[Kind(found.kind)]}"
        before = _qualifiers(chain)  # a tag
        plain = isinstance(found, Modifier) and found.flag
        text = found.name if plain else f'btf_type_tag("{found.name}")'
        return f"{before} __attribute__(({text}))"

    def _after(
        self,
        found: Array | FunctionProto,
        chain: list[Type],
        name: str,
        *,
        pointer: bool,
        strip: bool,
    ) -> str:
        # Compilers repeat an element's qualifiers on its array, and record noreturn as volatile.
        while chain and isinstance(chain[-1], Modifier):
            chain.pop()
        if isinstance(found, Array):
            tail = f"[{found.count}]"
            if not chain:
                return _spaced(name, pointer=pointer) + tail
            space = " " if name and not pointer else ""
            several = isinstance(chain[-1], Array)
            inner = self._rest(chain, name, pointer=True, strip=strip)
            return f"{space}{inner}{tail}" if several else f"{space}({inner}){tail}"
        tail = f"({self._parameters(found, strip=strip)})"
        if not chain:
            return _spaced(name, pointer=pointer) + tail
        return f" ({self._rest(chain, name, pointer=True, strip=strip)}){tail}"

    def _parameters(self, found: FunctionProto, *, strip: bool) -> str:
        parameters = found.parameters
        if not parameters or (len(parameters) == 1 and not parameters[0].type_id):
            return "void"
        texts = []
        for index, one in enumerate(parameters, 1):
            if index == len(parameters) and not one.type_id:
                texts.append("...")
            else:
                texts.append(self.declare(one.type_id, one.name, strip=strip))
        return ", ".join(texts)


def _qualifiers(chain: list[Type]) -> str:
    # Removes the qualifiers of the type that follows from the chain.
    text = ""
    while chain and chain[-1].kind in _QUALIFIERS:
        text += f"{_QUALIFIERS[Kind(chain.pop().kind)]} "
    return text


def _spaced(name: str, *, pointer: bool) -> str:
    return f" {name}" if name and not pointer else name
