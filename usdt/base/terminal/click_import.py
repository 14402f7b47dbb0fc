"""click, the parser of command lines, imported without what it does not need.

A quarter of the time of its import goes into modules of Python of which it uses a function or two.
"""

from __future__ import annotations

import os
import sys
import typing
from importlib import import_module
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ("import_click",)


def import_click() -> None:
    """Import click without modules that take a third of its time, of which it needs little.

    Stand-ins have the functions it calls: those that clean documentation and know the system, and
    translations, of which there are none, as there are none of our messages. They take all else
    from the modules themselves, which are imported then; everybody else imports these as usual.

    click asks ``difflib`` for what is like an option of one letter, before it takes it for one, and
    forgets the answer: this stand-in stays until somebody asks it for more.
    """
    _compile_no_annotations()
    stand_ins = [one for one in _stand_ins() if one.__name__ not in sys.modules]
    sys.modules.update((one.__name__, one) for one in stand_ins)
    try:
        import_module("click")
    finally:
        for one in stand_ins:
            one.step_aside()
    if "difflib" not in sys.modules:
        sys.modules["difflib"] = _StandIn("difflib", get_close_matches=_close_matches)


def _compile_no_annotations() -> None:
    # typing compiles each annotation that is a string, as those of a TypedDict and a NamedTuple
    # are, and nobody evaluates it. The first call of compile() makes all classes of syntax trees.
    # eval(), which evaluates them, takes a string as well.
    vars(typing).setdefault("compile", lambda source, *_: source)


def _stand_ins() -> list[_StandIn]:
    return [
        _StandIn("inspect", cleandoc=_cleandoc, isfunction=_is_function),
        _StandIn("platform", system=lambda: os.uname().sysname),
        _StandIn("gettext", gettext=str, ngettext=_singular_or_plural),
        _StandIn("datetime", only_now={"datetime": _Datetime}),
        _StandIn("uuid", only_now={"UUID": object}),  # a class, to name the type of a parameter
    ]


class _DatetimeType(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, import_module("datetime").datetime)


class _Datetime(metaclass=_DatetimeType):
    # What click.DateTime asks of the class, whose name it takes.
    @staticmethod
    def strptime(text: str, form: str) -> Any:
        return import_module("datetime").datetime.strptime(text, form)


class _StandIn(ModuleType):
    # Some functions of a module; the module is imported when another name is asked for. What is
    # only for now, while click is imported, is asked from the module later.
    def __init__(
        self,
        name: str,
        only_now: Mapping[str, Any] | None = None,
        **functions: Callable[..., Any],
    ) -> None:
        super().__init__(name)
        self._only_now = only_now or {}
        vars(self).update(functions, **self._only_now)

    def step_aside(self) -> None:
        for name in self._only_now:
            vars(self).pop(name, None)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python asks a module for, such as __path__
            raise AttributeError(name)
        self.step_aside()
        return getattr(import_module(self.__name__), name)


def _cleandoc(text: str) -> str:
    # inspect.cleandoc(): the first line may be indented differently.
    first, *others = text.expandtabs().split("\n")
    indents = [len(line) - len(line.lstrip()) for line in others if line.strip()]
    least = min(indents, default=0)
    return "\n".join([first.lstrip(), *(line[least:] for line in others)]).strip("\n")


def _close_matches(
    word: str, possibilities: Iterable[str], *more: Any, **by_name: Any
) -> list[str]:
    if len(word) == len("-p") and word.startswith("-"):
        return []
    stand_in = sys.modules["difflib"]
    if isinstance(stand_in, _StandIn):
        stand_in.step_aside()
    found: list[str] = import_module("difflib").get_close_matches(
        word, possibilities, *more, **by_name
    )
    return found


def _is_function(value: object) -> bool:
    return isinstance(value, FunctionType)


def _singular_or_plural(one: str, many: str, number: int) -> str:
    return one if number == 1 else many
