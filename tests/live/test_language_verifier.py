"""Every construct of the language before this kernel's verifier, and what it then does at a hit."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from constructs import ALL_AT_ONCE, CONTEXT, NUMBERS, PREDICATES, STACKS, TEXTS
from fixtures import build, start
from tracing_tools import tracing

import usdt
from usdt.arch.locations import Constant, Unreadable, ValueClass, ValueType
from usdt.base.closeable import FD
from usdt.bpf import features
from usdt.bpf._syscall import bpf
from usdt.bpf._uapi import BPF_F_SLEEPABLE, AttachType, Command, MapType
from usdt.bpf.asm.disasm import listing
from usdt.bpf.maps import MapSpec
from usdt.bpf.program import _LAYOUT, ProgramSpec
from usdt.engine.compiler.arguments import Argument
from usdt.engine.compiler.codegen.model import COUNTERS, ProgramVariant, TaskFilter
from usdt.engine.compiler.codegen.program import generate
from usdt.engine.compiler.codegen.ring_writes import EVENTS
from usdt.engine.compiler.ir import Number, Unavailable
from usdt.engine.compiler.plan import make_plan
from usdt.engine.compiler.resolve.expressions import resolve
from usdt.engine.compiler.scope import Scope
from usdt.engine.language import parse_expression, parse_probe
from usdt.probes.matching import matching
from usdt.probes.probe import read_probes
from usdt.probes.sites import points_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.bpf.asm.assembler import Code
    from usdt.bpf.maps import Map
    from usdt.engine.compiler.plan import ProbePlan

pytestmark = pytest.mark.usefixtures("ringbuf")

_AT_ONCE = 60  # values of one probe
_ITEMS = {
    "numbers": ("args", "args:mixed12", NUMBERS),
    "texts": ("strings", "strings:two", tuple(TEXTS)),
    "context": ("strings", "strings:two", CONTEXT),
    "stacks": ("strings", "strings:two", STACKS),
    "everything": ("strings", "strings:two", (ALL_AT_ONCE,)),
    "predicates": ("strings", "strings:two", tuple(PREDICATES)),
}


def _plan(program: str, probe: str, items: str) -> ProbePlan:
    path = str(build("default", program))
    request = parse_probe(f"{probe}({items})")
    (found,) = matching(request, read_probes(path).probes)
    point = next(iter(points_of(found, path)))
    count = len(point.arguments)
    return make_plan(request.items, point.arguments, text=request.text, probe=probe, declared=count)


@pytest.fixture(scope="module")
def maps() -> Iterator[dict[str, Map]]:
    """What programs refer to."""
    events = MapSpec(MapType.RINGBUF, 0, 0, 1 << 18, EVENTS)
    counters = MapSpec(MapType.ARRAY, 4, 16, 8, COUNTERS)
    with events.create() as ring, counters.create() as table:
        yield {EVENTS: ring, COUNTERS: table}


def _programs(kind: str) -> Iterator[tuple[str, Code, int]]:
    # Every construct alone, in a program that may sleep and in one that may not.
    program, probe, constructs = _ITEMS[kind]
    sleepables = (False, True) if features.have_sleepable_uprobes() else (False,)
    for items in constructs:
        plan = _plan(program, probe, items)
        for sleepable in sleepables:
            code = generate([ProgramVariant(1, 0, plan)], TaskFilter((1, 2)), sleepable=sleepable)
            yield items, code, BPF_F_SLEEPABLE if sleepable else 0


@pytest.mark.parametrize("kind", _ITEMS)
def test_the_verifier_takes_every_construct(kind: str, maps: dict[str, Map]) -> None:
    count = 0
    for _, code, flags in _programs(kind):
        ProgramSpec(code, flags=flags, name="construct").load(maps).close()
        count += 1
    assert count >= len(_ITEMS[kind][2])


def test_the_verifier_takes_many_cases_of_several_pids(maps: dict[str, Map]) -> None:
    if not features.have_cookies():
        pytest.skip("needs BPF cookies: without them each case has a program of its own")
    plans = [_plan("strings", "strings:two", items) for items in (*TEXTS, *CONTEXT, *PREDICATES)]
    cases = [ProgramVariant(number, number % 8, plan) for number, plan in enumerate(plans, 1)]
    own = Path("/proc/self/ns/pid").stat()
    for accept in (TaskFilter(tuple(range(1, 40))), TaskFilter((7,), (own.st_dev, own.st_ino))):
        code = generate(cases, accept, sleepable=False)
        ProgramSpec(code, name="cases").load(maps).close()


_LINE = re.compile(r"^\s*(\d+): \(([0-9a-f]{2})\) (.*?)\s*(?:(?:[;\t]|//).*)?$", re.MULTILINE)


def test_the_disassembly_is_the_kernels_own(maps: dict[str, Map]) -> None:
    seen: set[str] = set()
    numbers = {name: item.fd.fileno() for name, item in maps.items()}
    log = bytearray(1 << 27)  # a loop is in it as often as the verifier went through it
    for kind in ("texts", "predicates"):
        for items, code, flags in _programs(kind):
            license_ = b"GPL\0"
            insns = code.link(numbers)
            fields = (len(insns) // 8, insns, license_, 2, len(log), log, 0, flags)
            FD(bpf(Command.PROG_LOAD, _LAYOUT, 2, *fields, b"log", 0, AttachType.NONE)).close()
            ours = {int(line.split(":")[0]): line for line in listing(code)}
            walked = set()
            for number, opcode, text in _LINE.findall(log[: log.index(0)].decode()):
                known = ours[int(number)]
                walked.add(known)
                # The kernel shows addresses of its own, and no names of maps. Linux 7.2 has made
                # a goto of a branch that constants decide before it shows anything.
                if opcode == "18" or (opcode == "05" and ") if r" in known):
                    continue
                assert known == f"{int(number):4}: ({opcode}) {text}", items
                seen.add(opcode)
            assert len(walked) > len(ours) // 2
    assert len(seen) > 30, "a few instructions say nothing"


def test_the_command_shows_the_program_when_asked_twice() -> None:
    with start(build("default", "strings"), "-w") as process:
        process.wait_ready()
        words = ("-p", process.pid, 'strings:two(str(arg0) == "sec*")')
        for times, shown in ((1, False), (2, True)):
            with tracing(*["-v"] * times, *words) as tool:
                tool.stop()
            read = [
                line for line in tool.errors if line.endswith("call bpf_probe_read_user_str#114")
            ]
            assert bool(read) is shown
            assert (tool.errors[-3].endswith("(95) exit")) is shown


# --- what they do ---------------------------------------------------------------------------------


def _events(program: str, probe: str, *items: str) -> tuple[list[Any], list[dict[str, Any]]]:
    # What was seen of one round, one list for each of the items; and what was fired.
    path = build("default", program)
    with start(path, "-w", "-n", 2) as process:
        process.wait_ready()
        requests = [f"{probe}({one})" for one in items]
        with usdt.attach(*requests, pid=process.pid) as events:
            process.fire()
            found: list[Any] = []
            while batch := events.poll(0.3):
                found += batch
        hits = [hit for hit in process.finish() if hit["probe"] == probe]
    return found, hits


def _parts(items: tuple[str, ...]) -> list[str]:
    return [", ".join(items[i : i + _AT_ONCE]) for i in range(0, len(items), _AT_ONCE)]


def _folded(text: str, known: dict[str, Argument]) -> int | None:
    node = resolve(parse_expression(text).expression, Scope(text, "p:q", known, 12))
    if isinstance(node, Unavailable):
        return None
    assert isinstance(node, Number), text
    return node.value


_MIXED = "s8 u16 s64 u64 f64 s32 u64 u8 s8 f32 s64 u64"


def test_numbers_at_a_hit() -> None:
    found, fired = _events("args", "args:mixed12", *_parts(NUMBERS))
    assert len(found) == 2 * len(_parts(NUMBERS))
    kinds = [
        ValueType(ValueClass.SIGNED if word[0] == "s" else ValueClass.UNSIGNED, int(word[1:]) // 8)
        for word in _MIXED.split()
    ]
    hits = [
        [value["ptr"] if isinstance(value, dict) else value for value in hit["args"]]
        for hit in fired
    ]
    seen: dict[str, int] = {}
    wrong = []
    for event in found:
        first = next(iter(event.args))
        row = seen[first] = seen.get(first, -1) + 1
        known = {
            f"arg{n}": Argument(f"arg{n}", kind, Constant(value))
            for n, (kind, value) in enumerate(zip(kinds, hits[row], strict=True))
            if isinstance(value, int)
        }
        for item, value in event.args.items():
            shown = None if isinstance(value, Unreadable) else value
            if shown != (expected := _folded(item, known)):
                wrong.append((item, shown, expected))
    assert not wrong


def test_texts_at_a_hit() -> None:
    found, hits = _events("strings", "strings:two", *_parts(tuple(TEXTS)))
    assert len(hits) == 2
    odd = found[-1].args
    assert odd["func"] == "strings:two"
    assert {item: odd[item] for item in TEXTS} == TEXTS


def test_the_context_at_a_hit() -> None:
    found, hits = _events("strings", "strings:two", ", ".join(CONTEXT))
    args = found[0].args
    assert args["pid"] == args["tid"] == hits[0]["pid"]
    assert (args["uid"], args["gid"], args["comm"]) == (os.getuid(), os.getgid(), "strings")
    assert args['(comm=="strings")+0'] == args["(pid==tid)+0"] == 1
    assert args['(comm!="str*")+0'] == 0
    assert args["cpu"] == found[0].cpu
    assert found[0].time <= args["ts"] < found[0].time + 10**9
    assert not [key for key, value in args.items() if isinstance(value, Unreadable)]


def test_predicates_at_a_hit() -> None:
    requests = [f"{one}, {number}" for number, one in enumerate(PREDICATES)]
    found, _ = _events("strings", "strings:two", *requests)
    expected = {number for number, truth in enumerate(PREDICATES.values()) if truth}
    passed = [int(next(iter(event.args))) for event in found]
    assert set(passed) >= expected
    rejected = set(range(len(PREDICATES))) - expected
    assert not rejected & {n for n in passed if passed.count(n) > 1}
