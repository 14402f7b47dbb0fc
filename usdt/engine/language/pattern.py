"""Parsing of the text before a probe's items: the kind, path, provider and name.

    provider:name          name                    PATH:provider:name    usdt:[PATH:]provider:name
    uprobe:TARGET:FUNCTION uprobe:TARGET:SOURCE:LINE
    kprobe:[MODULE:]FUNCTION fentry:[MODULE:]FUNCTION
    interval:1s profile:99hz interval:UNIT:NUMBER software:EVENT[:COUNT] hardware:EVENT[:COUNT]
    tracepoint:CATEGORY:EVENT                       rawtp:EVENT           syscall:NAME

Kinds may be written as in bpftrace (``k:``, ``kretprobe:``): :data:`_KINDS_OF_BPFTRACE`.
Names may be patterns with ``*``, ``?`` and ``[…]``. Double quotes take everything between them
literally, including colons, parentheses and stars, except for C's escapes.
"""

from __future__ import annotations

import functools
import re
from typing import cast, get_args

from usdt.base.errors import LanguageError
from usdt.base.frozen import frozen, replace
from usdt.engine.language.tokens import STRING, quotable, string_value
from usdt.engine.language.tree import BUILTINS, ProbeKind

__all__ = ("Pattern", "find_items", "read_pattern", "source_line", "written_kind")

_KINDS = frozenset(get_args(ProbeKind))
# The maximum number of separating colons after the kind.
_COLONS = {
    "usdt": 2,
    "uprobe": 1,
    "kprobe": 1,
    "tracepoint": 1,
    "rawtp": 0,
    "syscall": 0,
    "fentry": 1,
    "watchpoint": 2,
    **dict.fromkeys(("interval", "profile", "software", "hardware"), 1),
}
# bpftrace's names of kinds → the kind, and whether it is the return of a function. A USDT provider
# of such a name is written usdt:provider:name.
_KINDS_OF_BPFTRACE: dict[str, tuple[ProbeKind, bool]] = {
    **dict.fromkeys(("f", "kfunc"), ("fentry", False)),
    **dict.fromkeys(("fr", "fexit", "kretfunc"), ("fentry", True)),
    "k": ("kprobe", False),
    **dict.fromkeys(("kr", "kretprobe"), ("kprobe", True)),
    **dict.fromkeys(("rt", "rawtracepoint", "raw_tracepoint"), ("rawtp", False)),
    **dict.fromkeys(("t", "tp"), ("tracepoint", False)),
    "u": ("uprobe", False),
    **dict.fromkeys(("ur", "uretprobe"), ("uprobe", True)),
    "U": ("usdt", False),
}
_LINE_USAGE = "uprobe:TARGET:SOURCE:LINE"
_USAGE = {
    "usdt": "PROVIDER:NAME",
    "uprobe": "uprobe:TARGET:FUNCTION",
    "kprobe": "kprobe:FUNCTION",
    "tracepoint": "tracepoint:CATEGORY:EVENT",
    "rawtp": "rawtp:EVENT",
    "syscall": "syscall:NAME",
    "fentry": "fentry:FUNCTION",
    "interval": "interval:1s",
    "profile": "profile:99hz",
    "software": "software:EVENT:COUNT",
    "hardware": "hardware:EVENT:COUNT",
    "watchpoint": "watchpoint:ADDRESS:LENGTH:MODE",
}


@frozen
class Pattern:
    """The parsed text before the items.

    The fields are those of :class:`~usdt.engine.language.tree.ProbeText`; ``text`` is its
    ``pattern``. ``returns`` is whether the kind says that the probe is the return of a function.
    """

    kind: ProbeKind
    text: str
    path: str | None
    provider: str
    name: str
    returns: bool = False


@functools.cache
def _quoted_pattern() -> re.Pattern[str]:
    # A string, or a character constant that is a parenthesis, a double quote or an escape. Other
    # character constants do not match, because a path may have an apostrophe in it.
    return re.compile(STRING + r"""|'(?:[()"]|\\.)'""", re.DOTALL)


def _masked(text: str) -> str:
    # Replace quoted text by "q"s, so that columns stay the same.
    if '"' not in text and "'" not in text:
        return text
    return _quoted_pattern().sub(lambda found: "q" * len(found[0]), text)


def source_line(name: str) -> tuple[str, int] | None:
    """Return the source file and the number of the line that a probe's name means, if it does."""
    file, _, number = name.rpartition(":")
    if not file or "\n" in file or not (number.isascii() and number.isdecimal()):
        return None
    return file, int(number)


def find_items(text: str) -> tuple[int, int]:
    """Return the columns of the two parentheses around the items.

    The closing one is the last character of the text, apart from blanks. Without items, both
    columns are the length of the text.

    Raises:
        LanguageError: a quote or the last parenthesis is unbalanced.
    """
    masked = _masked(text)
    if '"' in masked:
        reason = "the string that begins here is not closed: expected '\"' at its end"
        raise LanguageError(text, masked.index('"'), reason)
    last = len(masked.rstrip()) - 1
    if last < 0 or masked[last] != ")":
        return len(text), len(text)
    open_columns: list[int] = []
    closed = -1
    for column, letter in enumerate(masked):
        if letter == "(":
            open_columns.append(column)
        elif letter == ")":
            closed = open_columns.pop() if open_columns else -1
    if closed < 0:
        raise LanguageError(text, last, "found ')', but nothing is open that it would close")
    return closed, last


def written_kind(text: str) -> ProbeKind | None:
    """Return the kind that the text of a probe begins with; None if it names none."""
    word, colon, _ = text.partition(":")
    return _known_kind(word.strip())[0] if colon else None


def _known_kind(word: str) -> tuple[ProbeKind | None, bool]:
    # The kind that a word names, and whether it is the return of a function.
    if word in _KINDS:
        return cast("ProbeKind", word), False
    return _KINDS_OF_BPFTRACE.get(word, (None, False))


def read_pattern(text: str, end: int, default: ProbeKind) -> Pattern:
    """Parse ``text[:end]``; ``default`` is the kind if it does not name one.

    Raises:
        LanguageError: a name is missing, there are too many, or characters must be quoted.
    """
    if "\0" in text[:end]:
        raise LanguageError(text, text.index("\0"), "found a NUL, which no name can hold")
    masked = _masked(text)[:end]
    kind, returns, start = _read_kind(text, masked, default)
    return replace(_read_names(text, masked, kind, start), returns=returns)


def _read_names(text: str, masked: str, kind: ProbeKind, start: int) -> Pattern:
    end = len(masked)
    part = functools.partial(_part, text, masked, kind)
    colons = _separators(text, masked, kind, start)
    if kind == "uprobe" and colons and masked[colons[-1] + 1 :].strip().isdecimal():
        return _read_source_line(text, masked, start, colons[-1])
    name = part(colons[-1] + 1 if colons else start, end)
    shown = text[start:end].strip()
    if not colons:
        if kind == "usdt" and "/" in masked[start:]:
            reason = "found a file without a probe: expected PATH:PROVIDER:NAME"
            raise LanguageError(text, start, reason)
        if kind == "usdt" and _is_item(masked[start:].strip()):
            reason = "found an item where a probe belongs: expected PROVIDER:NAME(ITEM, …)"
            hint = f"; a probe of this name is *:{shown}" if shown.isidentifier() else ""
            raise LanguageError(text, start, reason + hint)
        return Pattern(kind, shown, None, "*" if kind in ("usdt", "tracepoint") else "", name)
    last, before = colons[-1], colons[-2] if len(colons) > 1 else start - 1
    if kind == "uprobe":
        return Pattern(kind, shown, _path(text, start, last), "", name)
    if kind == "usdt" and "/" in masked[before + 1 : last]:  # PATH:NAME
        return Pattern(kind, shown, _path(text, start, last), "*", name)
    path = _path(text, start, before) if len(colons) > 1 else None
    return Pattern(kind, shown, path, part(before + 1, last), name)


def _read_source_line(text: str, masked: str, start: int, last: int) -> Pattern:
    # TARGET:SOURCE:LINE; ``last`` is the column of the colon before the line.
    star = re.compile(r"[*?]").search(masked, start)
    if star is not None:
        reason = f"found {star[0]!r}: a source line is that of one file, and no pattern"
        raise LanguageError(text, star.start(), reason)
    colon = next((n for n in reversed(range(start, last)) if masked[n] == ":"), None)
    begin = start if colon is None else colon + 1
    source = _unquoted(text, begin, last, escape=False).strip()
    if not source:
        reason = f"found ':' where a source file belongs: expected {_LINE_USAGE}"
        raise LanguageError(text, last, reason)
    path = None if colon is None else _path(text, start, colon)
    line = text[last + 1 : len(masked)].strip()
    return Pattern("uprobe", text[start : len(masked)].strip(), path, "", f"{source}:{line}")


def _is_item(word: str) -> bool:
    # Whether somebody wrote an item as a word of its own: arg0, comm=="x".
    return word in BUILTINS or re.search(r"^arg\d+$|[=<>&|]", word) is not None


def _read_kind(text: str, masked: str, default: ProbeKind) -> tuple[ProbeKind, bool, int]:
    # Return the kind, whether it is the return of a function, and the column after its colon.
    colon = masked.find(":")
    kind, returns = _known_kind(text[: max(colon, 0)].strip())
    return (default, False, 0) if kind is None else (kind, returns, colon + 1)


def _separators(text: str, masked: str, kind: ProbeKind, start: int) -> list[int]:
    # Return the columns of the colons between path, provider and name. Take the last ones, as a
    # path may contain colons. The "::" of a C++ name does not separate.
    colon = r"(?<!:):(?!:)" if kind == "uprobe" else ":"
    columns = [found.start() for found in re.compile(colon).finditer(masked, start)]
    most = _COLONS[kind]
    if len(columns) > most and kind not in ("usdt", "uprobe"):
        raise LanguageError(text, columns[most], f"found one ':' too many: expected {_USAGE[kind]}")
    return columns[len(columns) - most :] if len(columns) > most else columns


def _path(text: str, start: int, end: int) -> str | None:
    return _unquoted(text, start, end, escape=False).strip() or None


def _part(text: str, masked: str, kind: ProbeKind, start: int, end: int) -> str:
    # Return a provider or a name as a pattern for fnmatch.
    while start < end and masked[start].isspace():
        start += 1
    while start < end and masked[end - 1].isspace():
        end -= 1
    if start == end:
        found = f"found {quotable(text[end])}" if end < len(text) else "found the end"
        raise LanguageError(text, end, f"{found} where a name belongs: expected {_USAGE[kind]}")
    columns = range(start, end)
    odd = next((at for at in columns if masked[at] in "()" or masked[at].isspace()), None)
    if odd is None:
        return _unquoted(text, start, end, escape=True)
    if masked[odd] == "(":
        raise _stray_parenthesis(text, masked, odd)
    if masked[odd] == ")":
        reason = "found ')', but nothing is open that it would close"
    else:
        reason = "found a blank in a name: expected '(' before items, or the name in double quotes"
    raise LanguageError(text, odd, reason)


def _stray_parenthesis(text: str, masked: str, column: int) -> LanguageError:
    # The error for a parenthesis in a name, which does not begin the items.
    depth = 0
    for found in re.compile(r"[()]").finditer(masked, column):
        depth += 1 if found[0] == "(" else -1
        if depth:
            continue
        after = found.end()
        while after < len(text) and text[after].isspace():
            after += 1
        reason = f"found {quotable(text[after])} after the items: expected the end (a name with "
        return LanguageError(text, after, reason + "parentheses stands in double quotes)")
    return LanguageError(text, column, "this '(' is not closed: expected ')' at the end")


def _unquoted(text: str, start: int, end: int, *, escape: bool) -> str:
    # Decode quoted pieces. With ``escape``, fnmatch takes them literally.
    if '"' not in text:
        return text[start:end]
    pieces: list[str] = []
    at = start
    for found in re.compile(STRING, re.DOTALL).finditer(text, start, end):
        literal = string_value(text, *found.span()).decode("utf-8", "surrogateescape")
        if "\0" in literal:
            raise LanguageError(text, found.start(), "found a NUL, which no name can hold")
        pieces += [text[at : found.start()], _escaped(literal) if escape else literal]
        at = found.end()
    return "".join((*pieces, text[at:end]))


def _escaped(literal: str) -> str:
    return re.sub(r"[*?\[]", r"[\g<0>]", literal)
