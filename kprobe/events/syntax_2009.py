"""Translate the syntax of 2009, before kprobe events were merged, into today's."""

from __future__ import annotations

import re

__all__ = ("translate",)

_WORD = re.compile(
    r"(?<![\w$%@\\.>:-])(?:a(?P<argument>\d{1,3})|s(?P<slot>\d{1,4})|sa|rv)(?![\w.-])"
)


def translate(line: str) -> tuple[str, list[str]]:
    """Return a definition in today's syntax, and a message for each replacement.

    ``aN`` counts from 0 and becomes ``$argN+1``; ``sN`` becomes ``$stackN``, ``sa`` ``$stack``,
    ``rv`` ``$retval``. ``ra`` is dropped: return events always record the return address.
    """
    words = line.split()
    told = []
    kept = words[:2]
    for word in words[2:]:
        name, equal, body = word.rpartition("=")
        if body == "ra":
            told.append("ra: left out, every return event has it")
            continue
        new = _WORD.sub(_modern, body)
        if new != body:
            told.append(f"{body}: {new}")
        kept.append(f"{name}{equal}{new}")
    return (" ".join(kept), told) if told else (line, [])


def _modern(match: re.Match[str]) -> str:
    if match["argument"]:
        return f"$arg{int(match['argument']) + 1}"
    if match["slot"]:
        return f"$stack{match['slot']}"
    return {"sa": "$stack", "rv": "$retval"}[match[0]]
