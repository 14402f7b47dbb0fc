"""The attach points of a program as probes of the engine."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from usdt.base.errors import BtfError, LanguageError
from usdt.base.frozen import replace
from usdt.btf.lookup import find_type
from usdt.engine.language import parse_probe
from usdt.engine.language.tree import Call, Item, Name
from usdt.engine.programs.check.site import kernel_types
from usdt.engine.programs.session import OWN_SIGNAL, ProbeRequest
from usdt.engine.programs.syntax import tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from usdt.engine.compiler.resolve.btf_types import BtfTypes
    from usdt.engine.language.tree import ProbeText
    from usdt.engine.programs.syntax.program import AttachPoint, Probe, Program
    from usdt.engine.programs.syntax.source import Source

__all__ = ("KINDS", "placed_error", "probe_requests")

#: Kinds as they may be written → the kind.
KINDS = {
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
    **dict.fromkeys(("w", "watchpoint"), "watchpoint"),
    **dict.fromkeys(("it", "iter"), "iter"),
    "self": "self",
    "bench": "bench",
    "test": "test",
}
_NOT_YET = {
    **dict.fromkeys(("asyncwatchpoint", "aw"), "asyncwatchpoint"),
}
_ALONE = ("begin", "end")
_NAMED = ("bench", "test")  # those that run by themselves, with a name that reports show
# What kretprobes call for their own lock.
_LOCKS = (
    *("_raw_spin_lock", "_raw_spin_lock_irqsave", "_raw_spin_unlock_irqrestore"),
    "queued_spin_lock_slowpath",
)
_OF_PROGRAMS = ("uprobe", "uretprobe", "usdt")
_WITH_REGISTERS = ("kprobe", "kretprobe")
_TIMERS = ("interval", "profile")
_COUNTED = (*_TIMERS, "software", "hardware")
_COUNT = r"[0-9](?:_?[0-9])*(?:e[0-9])?"  # 1000, 1_000 or 1e3
_LINE = r"^([^:]+)@([^@:]+:[0-9]+)$"
_UNKNOWN = "(?:unknown name ')?([^':]*)"  # an error of a name, or of args
_PARAMETER = re.compile(r"\$(\d+)")
_ARGUMENT = re.compile(r"arg\d|args")
_ARGS = tree.Identifier("args", 0, 0)


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
        _request(index, point, program, source, arguments)
        for index, probe in enumerate(program.probes)
        for point in probe.attach_points
    ]


def _request(
    index: int, point: AttachPoint, program: Program, source: Source, arguments: Sequence[str]
) -> ProbeRequest:
    probe = program.probes[index]

    def given(found: re.Match[str]) -> str:
        number = int(found[1])
        return arguments[number - 1] if 0 < number <= len(arguments) else ""

    text = _PARAMETER.sub(given, point.text)
    word, _, rest = text.partition(":")
    kind = KINDS.get(word)
    if kind is None:
        reason = f"probes of the kind {_NOT_YET.get(word, word)!r} are not supported yet"
        if word not in _NOT_YET:
            reason = f"{word!r} is no kind of probe"
        raise source.error(point.start, reason)
    if kind in _ALONE:
        if rest:
            raise source.error(point.start, f"{word} stands alone: found {text!r}")
        return ProbeRequest(index, probe, kind, kind, None)
    if kind in _NAMED:
        if not rest:
            raise source.error(point.start, f"expected {kind}:NAME, found {text!r}")
        return ProbeRequest(index, probe, text, kind, None)
    if kind == "self":
        if text != OWN_SIGNAL:
            raise source.error(point.start, f"expected {OWN_SIGNAL}, the only one: found {text!r}")
        return ProbeRequest(index, probe, text, kind, None)
    if kind == "iter":
        text = f"iter:{_iterator(point, rest, source)}"
        return ProbeRequest(index, probe, text, kind, None)
    if kind in _COUNTED:
        rest = _counted(kind, rest)
        text = f"{word}:{rest}"
    if kind in ("fentry", "fexit") and rest.startswith("bpf:"):
        raise source.error(point.start, f"{text}: programs of BPF are no attach points here yet")
    if kind == "kretprobe" and rest in _LOCKS:
        reason = f"{kind}:{rest} can't be used as it might lock up your system"
        raise source.error(point.start, f"{reason}: kretprobes take this lock")
    try:
        request = parse_probe(_of_engine(kind, rest))
    except LanguageError as err:
        raise source.error(point.start, f"{text}: {err.reason}") from err
    if kind == "rawtracepoint":
        request = replace(request, provider=rest.rpartition(":")[0])
    defined = {one.name for one in program.definitions}
    return ProbeRequest(index, probe, text, kind, _with_items(request, probe, kind, defined))


def _iterator(point: AttachPoint, rest: str, source: Source) -> str:
    from usdt.engine.programs.iterators import function_of, unknown_iterator  # noqa: PLC0415 - few programs have one

    name, colon, _ = rest.partition(":")
    if colon:
        reason = "iterators cannot be pinned: what they print comes through this command"
        raise source.error(point.start, f"iter:{rest}: {reason}; leave the path out")
    if not function_of(name):
        raise source.error(point.start, f"iter:{rest}: {unknown_iterator(name)}")
    return name


def _of_engine(kind: str, rest: str) -> str:
    # The engine reads FILE:…; an offset in hexadecimal is one of the language as well.
    names = {"kretprobe": "kr", "uretprobe": "ur", "fexit": "fr", "rawtracepoint": "rawtp"}
    if kind == "usdt":  # an empty part is any
        rest = ":".join(part or "*" for part in rest.split(":"))
    elif kind == "uprobe":  # FILE@SOURCE:LINE
        rest = re.sub(_LINE, r"\1:\2", rest)
    elif kind == "rawtracepoint":  # without the module
        rest = rest.rpartition(":")[2]
    return f"{names.get(kind, kind)}:{rest}"


def _counted(kind: str, rest: str) -> str:
    # What stands behind the kind, with its last number in digits. Alone it is nanoseconds, of
    # which the engine knows microseconds.
    before, _, last = rest.rpartition(":")
    if not re.fullmatch(_COUNT, last):
        return rest
    number = int(float(last)) if "e" in last else int(last)
    if before or kind not in _TIMERS:
        return f"{before}:{number}" if before else rest
    return f"us:{number // 1000}"


def _with_items(request: ProbeText, probe: Probe, kind: str, defined: set[str]) -> ProbeText:
    # Providers read the types of what is named in items: with args all that they find.
    names: dict[str, None] = {}
    registers = False
    for node in _nodes(probe):
        if (name := _argument_of(node)) is not None:
            names[name] = None
        elif kind in _OF_PROGRAMS and _is_of_program(node, defined):
            names["args"] = None
        elif kind in _WITH_REGISTERS and isinstance(node, tree.Call):
            registers = registers or node.function == "reg"
    items = [Item(name, Name(name, 0, 0)) for name in names]
    if registers:  # not every way to attach a probe to a function of the kernel has them
        items.append(Item("reg", Call("reg", (), 0, 0)))
    return replace(request, items=(*request.items, *items))


def placed_error(request: ProbeRequest, err: LanguageError, source: Source) -> LanguageError:
    """Return the error of a probe's provider as one of the place in the program that it is about.

    Args:
        request: the probe.
        err: the error: a name is unknown, or what has it is no value.
        source: the text of the program.
    """
    name = re.match(_UNKNOWN, err.reason)
    for node in _nodes(request.probe):
        known = _argument_of(node)
        if name is not None and known == name[1] and isinstance(node, tree.Expression):
            reason = f"{request.text}: {err.reason}"
            if isinstance(node, tree.Call):
                _, _, hint = err.reason.partition("; did you mean")
                reason = f"uaddr(): {request.text}: its file has no variable {known!r}"
                reason += f"; did you mean{hint}" if hint else ""
            return source.error(node.start, reason)
    return source.error(request.probe.start, f"{request.text}: {err.reason}")


def _argument_of(node: object) -> str | None:
    # The name of the argument that a node is: that of args.x, args, and arg0 to arg9; or of the
    # variable of the program whose address it asks for.
    match node:
        case tree.Member(object=tree.Identifier(name="args"), name=name):
            return name
        case tree.Identifier(name=name) if _ARGUMENT.fullmatch(name):
            return name
        case tree.Call(function="uaddr", arguments=(tree.String(value=symbol),)):
            return symbol.decode("utf-8", "surrogateescape")
    return None


def _is_of_program(node: object, defined: set[str]) -> bool:
    # Whether a node is a structure that only debug information of the traced program can know.
    match node:
        case tree.NamedType(tag="struct" | "union" as tag, name=name) if name not in defined:
            kernel = kernel_types()
            return kernel is None or not _has(kernel, f"{tag} {name}")
    return False


def _has(types: BtfTypes, name: str) -> bool:
    try:
        find_type(types.btf, name)
    except BtfError:
        return False
    return True


def _nodes(probe: Probe) -> Iterator[object]:
    # The nodes of a probe; not args in args.x.
    ahead: list[object] = [probe.predicate, probe.block]
    while ahead:
        node = ahead.pop()
        if isinstance(node, tuple):
            ahead += node
        elif names := getattr(node, "__match_args__", ()):
            yield node
            if not isinstance(node, tree.Member) or node.object != _ARGS:
                ahead += [getattr(node, name) for name in names]
