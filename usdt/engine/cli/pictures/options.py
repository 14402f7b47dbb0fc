"""The options --flame, --speedscope and --pprof. This module imports nothing of the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from usdt.engine.run.options import Pictures

__all__ = ("PICTURES", "picture_options", "pictures_of")

#: The names of the options.
PICTURES = ("flame", "speedscope", "pprof")

_NONE: Mapping[str, str] = {}
_ENDS = {"flame": (".svg", ".html"), "speedscope": (".json",), "pprof": (".pb.gz",)}
_HELP = {
    "flame": ("FILE.svg|.html", "Draw a flame graph of the stacks."),
    "speedscope": ("FILE.json", "Write the stacks for speedscope."),
    "pprof": ("FILE.pb.gz", "Write the stacks for pprof."),
}


def picture_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --flame, --speedscope and --pprof."""
    for name in reversed(PICTURES):
        metavar, text = _HELP[name]
        function = click.option(f"--{name}", metavar=metavar, help=text)(function)
    return function


def pictures_of(values: dict[str, Any], others: Mapping[str, str] = _NONE) -> Pictures | None:
    """Return the files that the options name; None if they name none.

    Args:
        values: the values parsed by click.
        others: further values that exclude pictures, and their options.

    Raises:
        click.UsageError: a name has another end, or options exclude one another.
    """
    given = {name: values[name] for name in PICTURES if values.get(name)}
    if not given:
        return None
    for name, path in given.items():
        if not path.lower().endswith(_ENDS[name]):
            ends = " or ".join(_ENDS[name])
            raise click.UsageError(f"--{name} {path}: the name must end in {ends}")
    first = next(iter(given))
    refused = {"as_json": "--json", "folded": "--folded", "output": "-o", "interval": "-i"}
    for value, option in (refused | dict(others)).items():
        if values.get(value):
            raise click.UsageError(f"--{first} and {option} exclude one another")
    if len({*given.values()}) < len(given):
        raise click.UsageError("--flame, --speedscope and --pprof need a file each")
    from usdt.engine.run.options import Pictures  # noqa: PLC0415 - not for --help

    return Pictures(**given)
