"""Without BPF and with it, side by side: every hit of every fixture has the same values.

Both sessions are in this process and record the same hits. All programs of a group share their
definitions, as the kernel waits tens of milliseconds for each event that goes.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fixtures import FIXTURES, build, start
from patience import patient
from skips import need_program, requires_root
from tracing_tools import by_thread
from tracing_values import words_for

from usdt.base.errors import NotSupported
from usdt.bpf.features import have_sleepable_uprobes, have_uprobe_multi
from usdt.engine.compiler.codegen.model import TaskFilter
from usdt.engine.language import parse_probe
from usdt.engine.output.formatters.json import JsonFormatter
from usdt.engine.runtime.session import RingBufferSession
from usdt.engine.runtime.tracefs_backend.session import TracefsSession
from usdt.probes.probe import read_probes
from usdt.probes.sites import declared_arguments, points_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fixtures import Fixture

    from usdt.engine.runtime.attach.attach_points import AttachPoint

    Hits = list[dict[str, Any]]

pytestmark = [requires_root, pytest.mark.usefixtures("ringbuf")]

_ROOM = 32 << 20
_LIBRARIES = {"libpair": "libpair.so", "dlopened": "libplugin.so"}
_SITES = "many10k"  # ten thousand: by themselves
_UNORDERED = "oddnotes"  # two notes for one instruction
_LONG = "strings:long"  # strings of about a page make the kernel warn, of any version
_OPERANDS = re.compile(r"Name: (.*)\n\s*Location: .*\n\s*Arguments: (.*)$", re.MULTILINE)
_UNREADABLE = {"error": "memory not readable"}


def _options(program: str) -> list[object]:
    return ["-w", "-n", 1, *(["loop", "-n", 0] if program == "execer" else [])]


def _files(path: Path, pid: int) -> Iterator[Path]:
    yield path
    if path.name in _LIBRARIES:
        yield path.parent / _LIBRARIES[path.name]
    if path.name == "cxx":
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
        yield from {Path(line.split()[-1]) for line in lines if "libstdc++" in line}


def _asked(running: dict[Path, Fixture]) -> dict[tuple[str, int], list[AttachPoint]]:
    """(Probes and items, arguments) → where, in all programs."""
    found: dict[tuple[str, int], list[AttachPoint]] = defaultdict(list)
    seen = set()
    for path, program in running.items():
        words = (word.partition("(") for word in words_for(program.hits))
        items = {probe: brace + rest for probe, brace, rest in words if probe != _LONG}
        for file in _files(path, program.pid):
            probes = () if file in seen else read_probes(str(file)).probes
            seen.add(file)
            for probe in probes:
                key = f"*:*{items.get(probe.full_name, '')}", declared_arguments([probe])
                points = list(points_of(probe, str(file)))
                # The kernel needs the longer for each definition the more there are.
                found[key] += points[::10] if path.name == _SITES else points
    return found


def _both(running: dict[Path, Fixture]) -> tuple[Hits, Hits, list[str]]:
    """The hits of one round as BPF has them, as the kernel's tracer has them, and its notes."""
    accept = TaskFilter(tuple(program.pid for program in running.values()))
    options: dict[str, Any] = {
        "accept": accept,
        "buffer": _ROOM,
        "backlog": _ROOM,
        "max_string": 6000,
    }
    with (
        RingBufferSession(JsonFormatter(), **options) as bpf,
        TracefsSession(JsonFormatter(), **options) as events,
    ):
        for (text, declared), points in _asked(running).items():
            for session in (bpf, events):
                failures = session.attach(parse_probe(text), points, declared=declared)
                assert not failures, failures[0].error
        for path, program in running.items():
            if path.name != "execer":  # which fires when it ends
                program.fire(timeout=patient(100))
        for program in running.values():
            program.finish(timeout=patient(100))
        one, other = (
            [json.loads(line) for batch in session.drain() for line in batch]
            for session in (bpf, events)
        )
        assert not [*bpf.lost(), *events.lost()]
        return one, other, events.closing_notes()


@functools.cache
def _indexed(path: Path) -> frozenset[str]:
    """Probes with an operand in indexed memory at some site, as readelf has them."""
    done = subprocess.run(
        [need_program("readelf", "binutils"), "--notes", path],
        capture_output=True,
        text=True,
        errors="replace",
        check=True,
    )
    pairs = _OPERANDS.findall(done.stdout)
    return frozenset(name for name, operands in pairs if re.search(r"\([^)]*,[^)]*\)", operands))


def _excused(path: Path, probe: str, key: str, bpf: Any, event: Any) -> str | None:
    """Why an item may differ: what no event can fetch, None if it may not."""
    if isinstance(event, dict) and "error" in event:
        if isinstance(bpf, dict) and "error" in bpf and key.startswith("str("):
            return ""  # of a string nobody can read the reasons differ
        if event["error"].startswith("indexed memory"):
            return "indexed memory" if probe.partition(":")[2] in _indexed(path) else None
        narrow = "of 4 bytes" in event["error"] and path.parent.name.startswith("m32")
        return "a pointer" if narrow and key.startswith("str(") else None
    late = bpf == _UNREADABLE and not have_sleepable_uprobes()
    return "" if late else None  # a page that nobody has read: only events fault it in


def _differences(path: Path, one: Hits, other: Hits, closing_notes: str) -> Iterator[str]:
    if [hit["probe"] for hit in one] != [hit["probe"] for hit in other]:
        yield f"{path}: other probes, or in another order"
        return
    for hit, event in zip(one, other, strict=True):
        probe = hit["probe"]
        if hit["args"].keys() != event["args"].keys():
            yield f"{path} {probe}: {hit['args'].keys()}, {event['args'].keys()}"
            continue
        for key, value in hit["args"].items():
            found = event["args"][key]
            why = "" if value == found else _excused(path, probe, key, value, found)
            listed = (
                not why or f"{probe}: {key} is not read through tracefs: {why}" in closing_notes
            )
            if why is None or not listed:
                yield f"{path} {probe} {key}: by BPF {value}, through tracefs {found}"


def _of_each(hits: Hits) -> dict[int, dict[int, Hits]]:
    # Process → thread → hits; NaN is not equal to itself, its text is.
    found: dict[int, Hits] = defaultdict(list)
    for hit in hits:
        args = {key: "NaN" if repr(value) == "nan" else value for key, value in hit["args"].items()}
        found[hit["pid"]].append({**hit, "args": args})
    return {pid: by_thread(own) for pid, own in found.items()}


def _check(programs: Iterable[tuple[str, str]]) -> None:
    with contextlib.ExitStack() as stack:
        paths = [build(variant, program) for variant, program in programs]
        running = {path: stack.enter_context(start(path, *_options(path.name))) for path in paths}
        for path, program in running.items():
            program.wait_ready()
            if path.name != "execer":
                program.fire(timeout=patient(100))  # for what it prints: which items are strings
        bpf, events, closing_notes = _both(running)
    assert not [line for line in closing_notes if "not recorded" in line]
    one, other = _of_each(bpf), _of_each(events)
    assert one.keys() == other.keys() == {program.pid for program in running.values()}
    found: list[str] = []
    for path, program in running.items():
        threads, others = one[program.pid], other[program.pid]
        assert threads.keys() == others.keys(), path
        for tid, hits in threads.items():
            both = hits, others[tid]
            if path.name == _UNORDERED:
                both = tuple(sorted(part, key=lambda hit: str(hit["probe"])) for part in both)
            found += _differences(path, *both, "\n".join(closing_notes))
    assert not found, "\n".join(found[:20])
    assert len(bpf) == len(events)


@pytest.mark.parametrize("bits", [64, 32])
def test_every_value_is_what_bpf_gives(bits: int) -> None:
    _check(
        (variant, program)
        for variant, program in FIXTURES
        if program != _SITES
        and variant != "stripped"  # code and notes of "default"
        and variant.startswith("m32") == (bits == 32)
    )


def test_thousands_of_sites() -> None:
    if not have_uprobe_multi():
        raise NotSupported("10,000 sites without 20,000 descriptors (uprobe_multi)", (6, 6))
    _check([("default", _SITES)])
