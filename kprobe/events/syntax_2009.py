"""Translate the syntax of 2009, before kprobe events were merged, into today's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ("translate",)

_WORD = re.compile(
    r"(?<![\w$%@\\.>:-])(?:a(?P<argument>\d{1,3})|s(?P<slot>\d{1,4})|sa|rv)(?![\w.-])"
)


_RETURNS = ("ra", "rv")


def translate(line: str, parameters: Collection[str] = ()) -> tuple[str, list[str]]:
    """Return a definition in today's syntax, and a message for each replacement.

    ``aN`` counts from 0 and becomes ``$argN+1``; ``sN`` becomes ``$stackN``, ``sa`` ``$stack``.
    At a return, ``rv`` becomes ``$retval``, and ``ra`` is dropped: return events always record the
    return address. Definitions other than ``p`` and ``r`` came later, and are not translated.

    Args:
        line: the definition.
        parameters: names of the function's parameters, which keep their meaning.
    """
    words = line.split()
    if len(words) < 2 or words[0][0] not in "pr":
        return line, []
    returns = words[0][0] == "r" or words[1].endswith("%return")
    kept_names = {*parameters, *(() if returns else _RETURNS)}
    notices = []
    kept = words[:2]
    for word in words[2:]:
        name, equal, body = word.partition("=") if "=" in word else ("", "", word)
        if body == "ra" and body not in kept_names:
            notices.append("ra: left out, every return event has it")
            continue
        new = body if body.startswith("\\") else _modern(body, kept_names)
        if new != body:
            notices.append(f"{body}: {new}")
        kept.append(f"{name}{equal}{new}")
    return (" ".join(kept), notices) if notices else (line, [])


def _modern(body: str, kept: Collection[str]) -> str:
    def replacement(match: re.Match[str]) -> str:
        if match[0] in kept:
            return match[0]
        if match["argument"]:
            return f"$arg{int(match['argument']) + 1}"
        if match["slot"]:
            return f"$stack{match['slot']}"
        return {"sa": "$stack", "rv": "$retval"}[match[0]]

    return _WORD.sub(replacement, body)
