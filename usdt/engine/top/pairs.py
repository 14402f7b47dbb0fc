"""Probes that belong together, and the texts that name them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from usdt.engine.language.tree import ProbeText

__all__ = ("ends_of", "is_call", "probe_text", "stacks_of")

_SUFFIXES = (("start", "done"), ("entry", "return"), ("begin", "end"))
_IN_KERNEL = ("kprobe", "fentry", "tracepoint", "rawtp")
_CALLS = ("uprobe:", "syscall:", "kprobe:", "fentry:")


def ends_of(names: Iterable[str]) -> dict[str, str]:
    """Return the probes that begin something and those that end it: start → end.

    ``X__start`` belongs to ``X__done``, ``X__entry`` to ``X__return``, ``X__begin`` to ``X__end``.
    """
    known = set(names)
    found = {}
    for name in sorted(known):
        stem, mark, word = name.rpartition("__")
        if not mark:  # a probe may be called start, without more
            stem, mark, word = name.rpartition(":")
        for start, end in _SUFFIXES:
            if word == start and f"{stem}{mark}{end}" in known:
                found[name] = f"{stem}{mark}{end}"
    return found


def is_call(name: str) -> bool:
    """Whether a probe has a return of its own: a function or a system call."""
    return name.startswith(_CALLS) or ":" not in name


def stacks_of(name: str) -> tuple[str, ...]:
    """Return the stacks that tell most of a probe: of the process, of Python, or of the kernel."""
    if name.startswith("python:"):
        return ("pystack", "ustack")
    return ("kstack" if name.partition(":")[0] in _IN_KERNEL or ":" not in name else "ustack",)


def probe_text(requests: Sequence[ProbeText], name: str, items: str = "") -> str:
    """Return the text of one attached probe, as a command takes it.

    Args:
        requests: the probes as the user gave them; the file that they name is kept.
        name: the name of the attached probe.
        items: what stands in its parentheses.
    """
    kind, _, rest = name.partition(":")
    path = next((one.path for one in requests if one.path is not None and "/" in one.path), None)
    if path is not None and kind == "uprobe":
        name = f"uprobe:{path}:{rest.partition(':')[2]}"
    elif path is not None and kind not in ("syscall", "tracepoint", "rawtp", "kprobe", "fentry"):
        name = f"{path}:{name}"
    return f"{name}({items})" if items else name
