"""The attach points of a program as probes of the engine."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from usdt.base.errors import LanguageError
from usdt.base.frozen import replace
from usdt.engine.language import parse_probe
from usdt.engine.language.tree import Item, Name
from usdt.engine.programs.session import ProbeRequest
from usdt.engine.programs.syntax import tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from usdt.engine.language.tree import ProbeText
    from usdt.engine.programs.syntax.program import AttachPoint, Probe, Program
    from usdt.engine.programs.syntax.source import Source

__all__ = ("probe_requests",)

# Kinds as they may be written → the kind.
_KINDS = {
    **dict.fromkeys(("begin", "BEGIN"), "begin"),
    **dict.fromkeys(("end", "END"), "end"),
    **dict.fromkeys(("f", "kfunc", "fentry"), "fentry"),
    **dict.fromkeys(("fr", "kretfunc", "fexit"), "fexit"),
    **dict.fromkeys(("k", "kprobe"), "kprobe"),
    **dict.fromkeys(("kr", "kretprobe"), "kretprobe"),
    **dict.fromkeys(("rt", "rawtracepoint"), "rawtracepoint"),
    **dict.fromkeys(("t", "tracepoint"), "tracepoint"),
    **dict.fromkeys(("u", "uprobe"), "uprobe"),
    **dict.fromkeys(("ur", "uretprobe"), "uretprobe"),
    **dict.fromkeys(("U", "usdt"), "usdt"),
    **dict.fromkeys(("i", "interval"), "interval"),
    **dict.fromkeys(("p", "profile"), "profile"),
    **dict.fromkeys(("s", "software"), "software"),
    **dict.fromkeys(("h", "hardware"), "hardware"),
}
_NOT_YET = {
    **dict.fromkeys(("w", "watchpoint", "asyncwatchpoint", "aw"), "watchpoint"),
    **dict.fromkeys(("it", "iter"), "iter"),
    "self": "self",
    "bench": "bench",
    "test": "test",
}
_ALONE = ("begin", "end")
_PARAMETER = re.compile(r"\$(\d+)")


def probe_requests(
    program: Program, source: Source, arguments: Sequence[str]
) -> list[ProbeRequest]:
    """Return the probes of a program.

    Args:
        program: the program.
        source: its text, for errors.
        arguments: the arguments of the script, which may be parts of attach points.

    Raises:
        LanguageError: an attach point is not valid, or of a kind that is not supported.
    """
    return [
        _request(index, probe, point, source, arguments)
        for index, probe in enumerate(program.probes)
        for point in probe.attach_points
    ]


def _request(
    index: int, probe: Probe, point: AttachPoint, source: Source, arguments: Sequence[str]
) -> ProbeRequest:
    def given(found: re.Match[str]) -> str:
        number = int(found[1])
        return arguments[number - 1] if 0 < number <= len(arguments) else ""

    text = _PARAMETER.sub(given, point.text)
    word, _, rest = text.partition(":")
    kind = _KINDS.get(word)
    if kind is None:
        reason = f"probes of the kind {_NOT_YET.get(word, word)!r} are not supported yet"
        if word not in _NOT_YET:
            reason = f"{word!r} is no kind of probe"
        raise source.error(point.start, reason)
    if kind in _ALONE:
        if rest:
            raise source.error(point.start, f"{word} stands alone: found {text!r}")
        return ProbeRequest(index, probe, kind, kind, None)
    try:
        request = parse_probe(_of_engine(kind, rest))
    except LanguageError as err:
        raise source.error(point.start, f"{text}: {err.reason}") from err
    return ProbeRequest(index, probe, text, kind, _with_items(request, probe))


def _of_engine(kind: str, rest: str) -> str:
    # The engine reads FILE:…; an offset in hexadecimal is one of the language as well.
    names = {"kretprobe": "kr", "uretprobe": "ur", "fexit": "fr", "rawtracepoint": "rawtp"}
    return f"{names.get(kind, kind)}:{rest}"


def _with_items(request: ProbeText, probe: Probe) -> ProbeText:
    # Providers read the types of what is named in items.
    names = dict.fromkeys(_arguments_of(probe))
    items = (Item(name, Name(name, 0, 0)) for name in names)
    return replace(request, items=(*request.items, *items))


def _arguments_of(probe: Probe) -> Iterator[str]:
    # The names of the arguments that a probe uses: those of args.x, and arg0 to arg9.
    ahead: list[object] = [probe.predicate, probe.block]
    while ahead:
        node = ahead.pop()
        match node:
            case tree.Member(object=tree.Identifier(name="args"), name=name):
                yield name
                continue
            case tree.Identifier(name=name) if re.fullmatch(r"arg\d", name):
                yield name
        if isinstance(node, tuple):
            ahead += node
        elif hasattr(node, "__match_args__"):
            ahead += [getattr(node, name) for name in node.__match_args__]
