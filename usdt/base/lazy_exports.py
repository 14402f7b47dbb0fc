"""Names of a package that are imported when they are first used."""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False  # importing typing takes 5 ms, in which ^C would show a traceback
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

__all__ = ("lazy_exports",)


def lazy_exports(
    package: str, homes: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package; the latter lists public names only.

    Args:
        package: its ``__name__``.
        homes: module → the names that the package takes from it, each as in an import statement:
            ``"Name"`` or ``"Name as Other"``. A module without names is exported itself.

    Examples:
        >>> __getattr__, __dir__ = lazy_exports(__name__, {"usdt.bcc": (), "usdt.api": ("attach",)})
    """
    sources: dict[str, tuple[str, str]] = {}
    for module, names in homes.items():
        for entry in names:
            name, _, alias = entry.partition(" as ")
            sources[alias or name] = module, name
        if not names:
            sources[module.rpartition(".")[2]] = module, ""

    def get(name: str) -> Any:
        if name not in sources:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home, attribute = sources[name]
        module = import_module(home)
        value = getattr(module, attribute) if attribute else module
        setattr(sys.modules[package], name, value)  # found without this function from now on
        return value

    def list_names() -> list[str]:
        own = vars(sys.modules[package])
        shown = {"__version__"} & own.keys()
        return sorted({*shown, *own.get("__all__", ()), *sources})

    return get, list_names
