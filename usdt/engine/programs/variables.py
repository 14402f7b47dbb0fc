"""The variables and maps of a program, as its parts refer to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.frozen import field, frozen

if TYPE_CHECKING:
    from usdt.engine.programs.types import Type

__all__ = ("MapVariable", "Variable")


@frozen
class Variable:
    """A variable ``$x``, or a value that a step saves.

    Attributes:
        number: distinguishes the variables of a probe.
        type: the type of its values.
    """

    number: int
    type: Type = field(compare=False)


@frozen
class MapVariable:
    """A map ``@x``; ``number`` is its index in the maps of the program."""

    number: int
    name: str = field(compare=False)
