"""JSON output of the commands, validated against the schema that ``usdt schema`` prints."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ("SCHEMA", "check_lines", "kind_of")

SCHEMA = json.loads((Path(__file__).parents[2] / "usdt/schema.json").read_text())
_MOST = 50  # lines at both ends of an output that are validated: it takes 0.2 ms each

# Kinds by members that no other kind has.
_KINDS = (
    ("usdt", "header"),
    ("lost", "lost"),
    ("unfinished", "unpaired"),
    ("left_out", "left_out"),
    ("fleet", "fleet"),
    ("answer", "answer"),
    ("end_args", "span"),
    ("duration", "span"),
    ("age", "span"),
    ("args", "event"),
    ("count", "result"),
    ("clock", "clock"),
    ("sites", "probe"),
    ("ok", "checked"),
    ("function", "function"),
    ("features", "features"),
    ("cleared", "cache"),
    ("prototype", "kernel_function"),
    ("kind", "kernel_probe"),
)


def kind_of(found: dict[str, Any]) -> str:
    """The name of an object's definition; "" if it is none of ours."""
    if {"machine", "args", "operands"} == found.keys():
        return "decoded"
    return next((kind for member, kind in _KINDS if member in found), "")


def check_lines(words: Sequence[str], lines: Iterable[str]) -> None:
    """Fail unless each line of a command's output is valid; the output of -c may be among them."""
    validators = _validators()
    if validators is None or "--json" not in words or "dump" in words:
        return
    every = list(lines)
    for line in every if len(every) <= 2 * _MOST else every[:_MOST] + every[-_MOST:]:
        try:
            found = json.loads(line)
        except ValueError:
            assert "-c" in words, line
            continue
        kind = kind_of(found) if isinstance(found, dict) else ""
        if "-c" in words and kind and not found.keys() >= {*SCHEMA["$defs"][kind]["required"]}:
            continue  # the traced program has written it
        assert kind or "-c" in words, f"an object of no kind: {line}"
        if kind:
            problem = validators(kind, found)
            assert not problem, f"{problem}: {line}"


@functools.cache
def _validators() -> Callable[[str, object], str] | None:
    try:
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import best_match
    except ImportError:  # in a virtual machine
        return None
    whole = Draft202012Validator(SCHEMA)

    def problem(kind: str, found: object) -> str:
        one = whole.evolve(schema={"$ref": f"#/$defs/{kind}", "$defs": SCHEMA["$defs"]})
        error = best_match(one.iter_errors(found))
        return "" if error is None else f"{kind}: {error.json_path}: {error.message[:200]}"

    return problem
