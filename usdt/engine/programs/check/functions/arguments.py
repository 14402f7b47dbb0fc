"""What the functions share: the check of their arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.engine.programs.check.builtins import BuiltinChecker
from usdt.engine.programs.syntax import tree
from usdt.engine.programs.typed import (
    Scalar,
)
from usdt.engine.programs.types import (
    StringType,
    spelled,
)

if TYPE_CHECKING:
    from usdt.engine.programs.typed import Bytes

__all__ = ("FunctionChecker",)


class FunctionChecker(BuiltinChecker):
    """A checker of the arguments of functions."""

    def arguments(self, node: tree.Call, least: int, most: int) -> tuple[tree.Expression, ...]:
        """Return the arguments of a call.

        Raises:
            LanguageError: there are too few or too many, or one is a type.
        """
        found = node.arguments
        if not least <= len(found) <= most:
            takes = str(least) if least == most else f"{least} to {most}"
            reason = f"{node.function}() takes {takes} arguments, {len(found)} given"
            raise self.error(node, reason)
        for one in found:
            if isinstance(one, tree.NamedType | tree.PointerType | tree.ArrayType):
                raise self.error(one, f"{node.function}() takes values, not types")
        return found  # type: ignore[return-value] # checked above

    def text_value(self, node: tree.Expression, what: str) -> Bytes:
        """Return the value of an argument that must be a string; ``what`` takes it."""
        value = self.value(node)
        if isinstance(value, Scalar) or not isinstance(value.type, StringType):
            raise self.error(node, f"{what} takes a string, not {spelled(value.type)}")
        return value
