"""``usdt run -l``: the probes that a pattern or a program names, in bpftrace's form.

With ``-v`` the arguments of each follow it, four spaces before each.
"""

from __future__ import annotations

import contextlib
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from usdt.base.errors import ProbeNotFound, TracingError
from usdt.engine.cli.programs.details import arguments_of, fields_of, types_of
from usdt.engine.programs.iterators import iterator_names
from usdt.engine.programs.prepared import prepare_program
from usdt.engine.programs.probes import KINDS
from usdt.engine.programs.syntax.source import Source
from usdt.engine.run.options import TargetOptions
from usdt.engine.run.registry import PROBE_KINDS, probe_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from usdt.engine.runtime.attach.attach_points import AttachPoint

__all__ = ("list_probes",)

_OF_FILES = ("uprobe", "uretprobe", "usdt")
_TIMERS = {"interval": ("hz", "us", "ms", "s"), "profile": ("hz", "us", "ms", "s")}
_COUNTERS = ("software", "hardware")
# bpftrace's kind → ours, whose names are the same.
_OF_KERNEL = {
    **dict.fromkeys(("fentry", "fexit", "kprobe", "kretprobe"), "kprobe"),
    "tracepoint": "tracepoint",
    "rawtracepoint": "rawtp",
}


def list_probes(
    source: Source | None, words: Sequence[str], pids: Sequence[int], *, verbose: bool
) -> list[str]:
    """Return the names of probes, sorted; or the lines of types.

    Args:
        source: a program: its probes are listed.
        words: without a program, a pattern such as ``tracepoint:sched:*``; without one, all probes
            of the kernel that have a place of their own, and those of the processes. One without
            a colon, as ``*sched_switch``, stands for whole names of the kernel's. A pattern
            such as ``struct task_*`` stands for types of the kernel.
        pids: the processes that uprobes and USDT probes are looked for in.
        verbose: whether the arguments of the probes follow them, and types are defined.

    Raises:
        ProbeNotFound: there is none.
        TracingError: the program is not valid, or this system does not show such probes.
    """
    if source is not None:
        requests = prepare_program(source, words, unsafe=True).requests
        patterns = [one.text for one in requests if one.request or one.kind == "iter"]
    else:
        patterns = [*words[:1]] or ["*:*"]
        types = types_of(patterns[0], whole=verbose)
        if types is not None:
            return types
    found: dict[str, list[str]] = {}
    errors: list[TracingError] = []
    for pattern in patterns:
        word, _, rest = pattern.partition(":")
        for kind in _kinds(word):
            try:
                found.update(_names(kind, rest or "*", pids, verbose=verbose))
            except TracingError as err:
                errors.append(err)
        if "*" in word and not rest:
            found.update(_named(pattern, verbose=verbose))
    if not found:
        raise errors[0] if errors else ProbeNotFound(f"no probe matches {', '.join(patterns)}")
    return [line for name in sorted(found) for line in (name, *found[name])]


def _kinds(word: str) -> list[str]:
    if word in KINDS:
        return [KINDS[word]]
    every = [*_OF_KERNEL, *_COUNTERS, *_TIMERS, *_OF_FILES, "iter"]
    return [kind for kind in every if fnmatchcase(kind, word)]


def _named(pattern: str, *, verbose: bool) -> Iterator[tuple[str, list[str]]]:
    # The kernel's probes whose whole names match, as kind:category:event.
    names: dict[str, list[str]] = {}
    for own in dict.fromkeys(_OF_KERNEL.values()):
        with contextlib.suppress(TracingError):  # this kernel does not show them
            names[own] = [*probe_names(PROBE_KINDS[own], "", (), ())]
    for kind, own in _OF_KERNEL.items():
        for name in names.get(own, ()):
            if fnmatchcase(f"{kind}:{name}", pattern):
                yield f"{kind}:{name}", fields_of(kind, name) if verbose else []


def _names(
    kind: str, rest: str, pids: Sequence[int], *, verbose: bool
) -> Iterator[tuple[str, list[str]]]:
    # Names, each with the lines that follow it.
    if kind in _OF_FILES:
        if ":" in rest or pids:
            text = rest if ":" in rest else f"*:{rest}"
            yield from _in_files(kind, text, pids, verbose=verbose)
        return
    if kind == "iter":
        for name in iterator_names():
            if fnmatchcase(name, rest):
                yield f"{kind}:{name}", fields_of(kind, name) if verbose else []
        return
    if kind in _OF_KERNEL:
        names = probe_names(PROBE_KINDS[_OF_KERNEL[kind]], "", (), ())
        for name in names:
            if fnmatchcase(name, rest):
                yield f"{kind}:{name}", fields_of(kind, name) if verbose else []
        return
    names = _TIMERS.get(kind) or probe_names(PROBE_KINDS[kind], "", (), ())
    event = rest.partition(":")[0]
    yield from ((f"{kind}:{name}:", []) for name in names if fnmatchcase(name, event))


def _in_files(
    kind: str, rest: str, pids: Sequence[int], *, verbose: bool
) -> Iterator[tuple[str, list[str]]]:
    # As a program with this probe would find them, which is not attached.
    from usdt.engine.run.programs import AttachedProgram  # noqa: PLC0415 - few patterns are of files

    def found(block: str) -> list[tuple[str, AttachPoint]]:
        prepared = prepare_program(Source(f"{kind}:{rest} {block}", "-l"), (), unsafe=False)
        with contextlib.ExitStack() as stack:
            program = AttachedProgram(stack, prepared, TargetOptions(tuple(pids)))
            return program.session.found()

    points: list[tuple[str, AttachPoint]] | None = None
    if verbose and kind == "uprobe":
        with contextlib.suppress(TracingError):  # no debug information, for example
            points = found("{ print(args); }")
    for name, point in found("{ }") if points is None else points:
        yield name, arguments_of(point) if verbose else []
