"""Every hit of every fixture, with every value, is what the program itself printed."""

from __future__ import annotations

import json
import struct
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from fixtures import FIXTURES, Fixture, build, start

from tracing_tools import by_thread, tracing, until
from tracing_values import compare, unreadable_operands, words_for

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

ROUNDS = 2
_LONGEST = ("--max-string", 6000)  # strings:long has 5000 bytes
_LIBRARIES = {"libpair": "libpair.so", "dlopened": "libplugin.so"}
_SILENT = {  # guarded by a semaphore: not known from the hits of an untraced run
    "sema_shared": ["sema_shared:guarded"],
    "sema_each": ["sema_each:guarded"],
}
_PROVIDERS = {"inline": "inlined", "cxx": "cxx"}

# Two notes for one instruction: the kernel says nothing about which of them comes first.
_SAME_PLACE = ("oddnotes:first_name", "oddnotes:second_name")

_EVERY = pytest.mark.parametrize(
    ("variant", "program"), [pytest.param(*pair, id="/".join(pair)) for pair in FIXTURES]
)


def _options(program: str) -> list[object]:
    rounds = 1 if program == "many10k" else ROUNDS
    return ["-w", "-n", rounds, *(["loop", "-n", 0] if program == "execer" else [])]


def _files(path: Path) -> tuple[Path, ...]:
    library = _LIBRARIES.get(path.name)
    return (path, path.parent / library) if library else (path,)


def _words(program: Fixture, path: Path) -> list[str]:
    # What is there is learnt from an untraced run: printed strings ask for str().
    if path.name == "oddnames":  # names that are no words of the language
        return [f"{path}:*:*"]
    if path.name in ("execer", "many10k", "inline"):
        return [f"{_PROVIDERS.get(path.name, path.name)}:*"]
    program.fire()
    return words_for(program.hits) + _SILENT.get(path.name, [])


def _as_passed(hit: dict[str, Any], variant: str) -> dict[str, Any]:
    # On the x87 gcc prints f + g with more bits than the float has that it passes.
    if variant == "m32O0" and hit["probe"] == "floats:sums":
        single = struct.unpack("f", struct.pack("f", hit["args"][0]))[0]
        return {**hit, "args": [single, *hit["args"][1:]]}
    return hit


def _in_order(hits: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    ordered = list(hits)
    for i in range(len(ordered) - 1):
        pair = ordered[i]["probe"], ordered[i + 1]["probe"]
        if pair == _SAME_PLACE[::-1]:
            ordered[i], ordered[i + 1] = ordered[i + 1], ordered[i]
    return ordered


def _assert_same(
    path: Path, printed: list[dict[str, Any]], events: list[dict[str, Any]]
) -> None:
    """Thread by thread the same probes in the same order with the same values."""
    variant = path.parent.name
    one = by_thread(_as_passed(hit, variant) for hit in printed)
    other = by_thread(events)
    assert Counter(h["probe"] for h in printed) == Counter(e["probe"] for e in events)
    assert one.keys() == other.keys()
    unreadable = unreadable_operands(*_files(path))
    found = [
        text for tid in one for text in compare(one[tid], _in_order(other[tid]), unreadable)
    ]
    assert not found, "\n".join(found[:20])
    assert all(hit["pid"] == event["pid"] for tid in one for hit, event in zip(one[tid], other[tid]))


def _own(program: str, hits: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    # Not those of the program that execer becomes.
    return [hit for hit in hits if program != "execer" or hit["probe"] == "execer:before"]


@_EVERY
def test_by_process_every_value_is_what_the_program_printed(variant: str, program: str) -> None:
    path = build(variant, program)
    with start(path, *_options(program)) as fixture:
        fixture.wait_ready()
        words = _words(fixture, path)
        before = len(fixture.hits)
        with tracing("-p", fixture.pid, *_LONGEST, *words) as tool:
            if program != "execer":
                fixture.fire()
            printed = _own(program, fixture.finish()[before:])
            events = tool.wait_end()
            assert tool.closing[1] == 0
    # Children inherit the breakpoints, and must not be shown.
    assert {event["pid"] for event in events} == {fixture.pid}
    _assert_same(path, [hit for hit in printed if hit["pid"] == fixture.pid], events)
    assert [event["time"] for event in events] == sorted(event["time"] for event in events)
