"""What the functions share: the check of their arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.engine.programs.check.builtins import BuiltinChecker
from usdt.engine.programs.syntax import tree
from usdt.engine.programs.typed import Read, ReadText, Scalar
from usdt.engine.programs.types import ArrayType, IntegerType, PointerType, StringType, spelled

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
            plural = "" if most == 1 else "s"
            reason = f"{node.function}() takes {takes} argument{plural}, {len(found)} given"
            raise self.error(node, reason)
        for one in found:
            if isinstance(one, tree.NamedType | tree.PointerType | tree.ArrayType):
                raise self.error(one, f"{node.function}() takes values, not types")
        return found  # type: ignore[return-value] # checked above

    def message(self, node: tree.Call, kind: str, form: str) -> str:
        """Return the format of an error or a warning that a program says: it names the place."""
        name = self.state.source.at(node.start)[0].name
        return str(self.error(node, f"{kind}: {form}")).replace(name, name.replace("%", "%%"), 1)

    def text_at(self, node: tree.Expression, what: str) -> Bytes:
        """Return a string, or that at an address or in an array of characters."""
        value = self.value(node)
        match value:
            case Scalar(type=PointerType()):
                return ReadText(value, StringType(self.state.max_string))
            case Read(address=address, type=ArrayType(element=IntegerType(size=1), count=count)):
                return ReadText(address, StringType(min(count + 1, self.state.max_string)))
        if isinstance(value, Scalar) or not isinstance(value.type, StringType):
            raise self.error(node, f"{what} takes a string, not {spelled(value.type)}")
        return value
