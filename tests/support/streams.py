"""JSON streams of the commands, in one place: the objects behind the header."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from json_schema import check_lines

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ("answers", "is_about", "read_events", "without_header")


def is_about(line: str) -> bool:
    """Whether a line is the header of a stream, or its clock again: no result."""
    return line.startswith(('{"usdt": ', '{"clock": '))


def without_header(text: str) -> str:
    """The lines of a stream without those about it; the output of programs stays."""
    return "".join(line for line in text.splitlines(keepends=True) if not is_about(line))


def read_events(text: str | Iterable[str]) -> list[dict[str, Any]]:
    """The objects of a stream without those about it."""
    lines = text.splitlines() if isinstance(text, str) else text
    return [json.loads(line) for line in lines if not is_about(line)]


def answers(words: Iterable[object], text: str) -> str:
    """What a command wrote, without what is about its stream if it was asked for JSON.

    JSON lines must be as the schema has them.
    """
    check_lines([*map(str, words)], text.splitlines())
    asked = {"--json", "json"} & {*map(str, words)}  # or --format json
    return without_header(text) if asked else text
