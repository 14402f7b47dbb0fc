"""The requested probes of a tracer, and the files that it searches for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from usdt.base.errors import ProbeNotFound, TargetError
from usdt.base.frozen import frozen
from usdt.probes.sites import closest_match
from usdt.procfs import process

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from usdt.engine.language.tree import Item, ProbeText
    from usdt.uprobes.provider import FunctionRequest

__all__ = ("TraceRequest", "TracedFile", "describe_process", "probe_not_found")


@frozen
class TracedFile:
    """A file in which probes are searched; ``pid`` is the only process to attach in, 0 for all."""

    path: str
    open_path: str
    identity: tuple[tuple[int, int], int]
    pid: int = 0


class TraceRequest:
    """A requested probe, and what the tracer has found of it."""

    def __init__(self, text: ProbeText, keys: Sequence[Item]) -> None:
        self.text = text
        self.keys = keys
        self.functions: FunctionRequest | None = None
        if text.kind == "uprobe":
            from usdt.uprobes.provider import FunctionRequest  # noqa: PLC0415 - not for USDT alone

            self.functions = FunctionRequest(text, keys=keys)
        self.found = False
        self.reported_missing = False
        self.seen: set[tuple[Any, int]] = set()  # files already searched, by identity and pid


def probe_not_found(
    request: TraceRequest, path: str, pids: Sequence[int], names: Iterable[str]
) -> ProbeNotFound:
    """Return the error for a probe that no searched file has.

    Args:
        request: the requested probe.
        path: the searched file, if the probe names one.
        pids: the traced processes; empty for all.
        names: the probes of the searched files.
    """
    wanted = f"{request.text.provider}:{request.text.name}"
    if request.text.path is not None and path:
        where, what = path, path
    elif pids:
        where, what = describe_process(pids[0]), f"-p {pids[0]}"
    else:
        where, what = "all processes", "-a"
    names = dict.fromkeys(names)
    if not names:
        return ProbeNotFound(f"{where}: no USDT probes, so no {wanted}")
    near = closest_match(wanted, names)
    hint = f"nearest is {near}" if near else f"{len(names)} other probes"
    return ProbeNotFound(f"{where}: no probe {wanted}; {hint} (list them with: usdt list {what})")


def describe_process(pid: int) -> str:
    """Return a process's ID and, while it lives, its name, for messages."""
    try:
        return f"process {pid} ({process.command_name(pid)})"
    except TargetError:
        return f"process {pid}"
