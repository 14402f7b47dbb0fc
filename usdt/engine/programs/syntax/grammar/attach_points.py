"""The attach points of a probe: where one ends, and its text without blanks.

They are no tokens of the language: ``uprobe:/bin/a-b:f*`` has a path and a pattern. What they mean
is not decided here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from usdt.engine.language.tokens import quotable
from usdt.engine.programs.syntax.program import AttachPoint

if TYPE_CHECKING:
    from usdt.engine.programs.syntax.source import Source

__all__ = ("read_attach_points",)

_BLANKS = re.compile(r"\s*")
_WORD = re.compile(r'(?:[^\s,{}"/;()\\:]++|\\.)++', re.DOTALL)
_QUOTED = re.compile(r'"(?:[^"\\\n]++|\\[^\n])*+"')
_PATH = re.compile(r'(?:[^\s,{}";()\\:]++|\\.)++', re.DOTALL)
_FILE_AND_LINE = re.compile(r"[\w.+/-]+:[0-9]")
_NAMED = re.compile(r"([A-Za-z_]\w*)=(?=[A-Za-z_])")

# Kinds of probes → the field, from 1, that is a path; in others a slash begins the predicate.
_PATHS = {
    **dict.fromkeys(("uprobe", "u", "uretprobe", "ur", "usdt", "U"), 1),
    **dict.fromkeys(("iter", "it"), 2),
}


def read_attach_points(
    source: Source, text: str, start: int
) -> tuple[tuple[AttachPoint, ...], int]:
    """Read the attach points of a probe.

    Args:
        source: the program.
        text: it without comments and directives.
        start: offset of the first attach point, or of blanks before it.

    Returns:
        The attach points, and the offset of the ``/`` or ``{`` after them.

    Raises:
        ProgramError: one is empty or not closed, or what follows is neither.
    """
    points: list[AttachPoint] = []
    at = _skip(text, start)
    while True:
        point, at = _read(source, text, at)
        points.append(point)
        at = _skip(text, at)
        if text[at : at + 1] != ",":
            break
        at = _skip(text, at + 1)
    following = text[at : at + 1]
    if following in ("/", "{") and following:
        return tuple(points), at
    if not following:
        last = points[-1]
        reason = f"the probe {quotable(last.text)} has no block: expected {{ … }} after it"
        raise source.error(last.start, reason)
    found = quotable(text[at:].split(None, 1)[0])
    raise source.error(at, f"found {found}: expected ',', a /predicate/ or '{{' after the probe")


def _skip(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at


def _read(source: Source, text: str, start: int) -> tuple[AttachPoint, int]:
    fields = [""]
    at = start
    while True:
        if text[at : at + 1] == ":":
            fields.append("")
            at = _skip(text, at + 1)
        piece = _piece(source, text, at, fields)
        if piece:
            fields[-1] += piece
            at += len(piece)
            continue
        behind = _skip(text, at)
        if text[behind : behind + 1] != ":":
            break
        at = behind
    written = ":".join(fields)
    if not written:
        found = quotable(text[at : at + 1]) if at < len(text) else "the end of the program"
        raise source.error(at, f"found {found}: expected a probe, as kprobe:vfs_read or begin")
    named = _NAMED.match(written)
    name = named[1] if named else ""
    return AttachPoint(written[named.end() if named else 0 :], name, start, at), at


def _piece(source: Source, text: str, at: int, fields: list[str]) -> str:
    # What is at this place and belongs to the last of the fields.
    if text[at : at + 1] == '"':
        quoted = _QUOTED.match(text, at)
        if quoted is None:
            raise source.error(at, "the string that begins here is not closed: expected '\"'")
        return quoted[0]
    kind = fields[0].rpartition("=")[2]
    number = len(fields) - 1
    path_field = _PATHS.get(kind, 0)
    in_path = bool(number) and (
        number == path_field
        or (path_field == 1 and number == 2 and bool(_FILE_AND_LINE.match(text, at)))
    )
    found = (_PATH if in_path else _WORD).match(text, at)
    return found[0] if found else ""
