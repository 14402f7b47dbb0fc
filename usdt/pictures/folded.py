"""Folded stacks, ``comm;outer;…;inner COUNT``, to profiles and from them; other tools have them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from usdt.base.text import printable
from usdt.pictures.profile import Frame, Profile

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ("add_folded", "folded_lines")

_KINDS = {"_[k]": "kernel", "_[i]": "inlined", "_[j]": "jit"}
_MARKS = {"kernel": "_[k]", "inlined": "_[i]"}
_SOURCE = re.compile(r"(.+) \(([^()]+):(\d+|\?)\)")
_KEY = re.compile(r"[\w.]+=.*")


def add_folded(profile: Profile, lines: Iterable[str]) -> int:
    """Add folded stacks to a profile; return how many lines are none.

    The first name of a line is that of the command. Names that end in ``_[k]``, ``_[i]`` and
    ``_[j]`` are functions of the kernel, inlined and JIT-compiled ones.
    """
    wrong = 0
    known: dict[str, Frame] = {}
    for line in lines:
        stack, _, number = line.rstrip().rpartition(" ")
        if not stack or not re.fullmatch(r"-?\d{1,19}", number, re.ASCII):
            wrong += 1
            continue
        comm, *names = stack.split(";")
        for name in names:
            if name not in known:
                known[name] = _frame(name)
        labels = (("comm", comm),)
        profile.add(labels, tuple(known[name] for name in names), (int(number),))
    return wrong


def folded_lines(profile: Profile) -> list[str]:
    """Return each stack with its number of hits; those of several probes are added up."""
    counts: dict[str, int] = {}
    for sample in profile.samples():
        labels = [
            text if name == "comm" else f"{name}={text}"
            for name, text in sample.labels
            if name != "probe"
        ]
        words = [*labels, *map(_marked, sample.frames)]
        line = ";".join(printable(word).replace(";", ":") for word in words)
        counts[line] = counts.get(line, 0) + sample.values[0]
    return [f"{line} {count}\n" for line, count in sorted(counts.items())]


def _marked(frame: Frame) -> str:
    return frame.title + ("" if frame.unnamed else _MARKS.get(frame.kind, ""))


def _frame(name: str) -> Frame:
    kind = _KINDS.get(name[-4:], "native")
    name = name[:-4] if name[-4:] in _KINDS else name
    source = _SOURCE.fullmatch(name)
    if name.startswith("["):
        return Frame(name, "note" if name.endswith(("frames]", "incomplete]")) else kind)
    if source is None:
        return Frame(name, "label" if _KEY.fullmatch(name) else kind)
    function, file, line = source.groups()
    if kind == "native" and file.endswith((".py", ">")):
        kind = "python"
    return Frame(function, kind, file=file, line=0 if line == "?" else int(line))
