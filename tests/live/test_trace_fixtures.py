"""Every hit of every fixture, with every value, is what the program itself printed."""

from __future__ import annotations

import contextlib
import json
import struct
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fixtures import FIXTURES, PROGRAMS, Fixture, build, start
from patience import patient
from streams import read_events
from tracing_tools import (
    Tool,
    by_thread,
    one_error,
    private,
    run_usdt,
    tracing,
    until,
    usdt,
)
from tracing_values import compare, unreadable_operands, words_for

from usdt.base.errors import NotSupported
from usdt.base.machine import PROCESS_MACHINE
from usdt.bpf.features import have_uprobe_multi
from usdt.probes.probe import read_probes

if TYPE_CHECKING:
    from collections.abc import Iterable

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
    # What is there is learnt from an untraced run: printed strings ask for str(). Not every
    # build of libstdc++ has probes.
    if path.name == "oddnames":  # names that are no words of the language
        return [f"{path}:*:*"]
    if path.name == "many10k":  # test_trace_volume.py takes all of its sites: 10 s of CPU
        return ["many10k:p?"]
    if path.name in ("execer", "inline"):
        return [f"{_PROVIDERS.get(path.name, path.name)}:*"]
    program.fire()
    words = words_for(program.hits) + _SILENT.get(path.name, [])
    # Debian's for arm is Thumb code, in which Linux has no uprobes.
    libraries = [] if PROCESS_MACHINE == "arm" else _mapped(program.pid)
    noted = {probe for probe, _ in unreadable_operands(*libraries)}
    return [word for word in words if not word.startswith("libstdcxx:") or word in noted]


def _mapped(pid: int) -> list[Path]:
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return [Path(line.split()[-1]) for line in lines if "r-xp" in line and "libstdc++" in line]


def _as_passed(hit: dict[str, Any], variant: str) -> dict[str, Any]:
    # On the x87 gcc prints f + g with more bits than the float has that it passes.
    x87 = variant == ("O0" if PROCESS_MACHINE == "i386" else "m32O0")
    if x87 and hit["probe"] == "floats:sums":
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


def _assert_same(path: Path, printed: list[dict[str, Any]], events: list[dict[str, Any]]) -> None:
    """Thread by thread the same probes in the same order with the same values."""
    variant = path.parent.name
    one = by_thread(_as_passed(hit, variant) for hit in printed)
    other = by_thread(events)
    assert Counter(h["probe"] for h in printed) == Counter(e["probe"] for e in events)
    assert {(h["pid"], h["tid"]) for h in printed} == {(e["pid"], e["tid"]) for e in events}
    unreadable = unreadable_operands(*_files(path))
    found = [text for tid in one for text in compare(one[tid], _in_order(other[tid]), unreadable)]
    assert not found, "\n".join(found[:20])


def _own(words: Iterable[str], hits: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    # What was asked for: not the probes of the program that execer becomes.
    asked = [word.partition("(")[0] for word in words]
    every = any(word.startswith("/") for word in asked)
    return [hit for hit in hits if every or any(fnmatchcase(hit["probe"], w) for w in asked)]


@_EVERY
def test_by_process_every_value_is_what_the_program_printed(variant: str, program: str) -> None:
    if program == "many10k" and not have_uprobe_multi():
        raise NotSupported("10,000 sites without 20,000 descriptors (uprobe_multi)", (6, 6))
    path = build(variant, program)
    with start(path, *_options(program)) as fixture:
        fixture.wait_ready()
        words = _words(fixture, path)
        before = len(fixture.hits)
        with tracing("-p", fixture.pid, *_LONGEST, *words) as tool:
            if program != "execer":
                fixture.fire()
            printed = _own(words, fixture.finish()[before:])
            events = tool.wait_end()
            assert tool.closing[1] == 0
    # Children inherit the breakpoints, and must not be shown.
    assert {event["pid"] for event in events} == {fixture.pid}
    _assert_same(path, [hit for hit in printed if hit["pid"] == fixture.pid], events)
    for own in by_thread(events).values():
        times = [event["time"] for event in own]
        assert times == sorted(times)


# ---------------------------------------------------------------- other ways to say whom to trace

_SOME = pytest.mark.parametrize(
    ("variant", "program"),
    [
        pytest.param(*pair, id="/".join(pair))
        for pair in (
            ("default", "args"),
            ("default", "ints"),
            ("nopie", "strings"),
            ("default", "sema_shared"),
            ("default", "threads"),
            ("default", "forker"),
            ("default", "libpair"),
            ("m32", "args"),
            ("m32", "sema_shared"),
            ("static", "ints"),
        )
    ],
)


def _learnt(path: Path) -> list[str]:
    """Words for a program, learnt from a run of it."""
    with start(path, *_options(path.name)) as fixture:
        return _words(fixture.wait_ready(), path)


@_SOME
def test_by_command_every_value_is_what_the_program_printed(
    variant: str, program: str, tmp_path: Path
) -> None:
    path = build(variant, program)
    words, output = _learnt(path), tmp_path / "events"
    with tracing("-c", f"{path} -n {ROUNDS}", *_LONGEST, "-o", output, *words) as tool:
        tool.wait_all()
        assert tool.code == 0, tool.errors
    printed = [json.loads(line) for line in tool.lines]
    events = read_events(output.read_text())
    first = printed[0]["pid"]
    _assert_same(path, [hit for hit in printed if hit["pid"] == first], events)


@_SOME
def test_by_file_every_process_is_traced_that_runs_it(variant: str, program: str) -> None:
    path = build(variant, program)
    words = [f"{_file_of(path, word)}:{word}" for word in _learnt(path)]
    if program == "libpair":  # one probe in both files
        words.append(f"{path.parent / 'libpair.so'}:libpair:both(arg0,arg1,str(arg1))")
    with (
        start(path, *_options(program)) as running,
        tracing(*_LONGEST, *words) as tool,
        start(path, *_options(program)) as later,
    ):
        for one in (running, later):
            one.wait_ready().fire()
        printed = [*running.finish(), *later.finish()]
        events = _of(printed, _stopped(tool, len(printed)))
    _assert_same(path, printed, events)
    if program == "forker":  # 1 parent, 3 children, 1 grandchild in each round
        assert len({event["pid"] for event in events}) == 2 * (1 + ROUNDS * 4)


def _file_of(path: Path, word: str) -> Path:
    return path.parent / "libpair.so" if "library_only" in word else path


_PARTS = 6
_MANY = "inline"  # of 1280 sites at -O0: links of their own take a minute where a CPU is emulated


def _part(variant: str, part: int) -> list[str]:
    programs = [name for name in PROGRAMS[variant] if name not in ("many10k", _MANY)]
    return [_MANY] if part == _PARTS - 1 else programs[part :: _PARTS - 1]


@pytest.mark.parametrize("part", range(_PARTS), ids=lambda part: f"part {part + 1}")
@pytest.mark.parametrize("variant", ["default", "O0"])
def test_one_trace_takes_all_programs(variant: str, part: int) -> None:
    """All values of a CPU by few starts of the tracer, which take time where it is emulated."""
    with contextlib.ExitStack() as stack:
        running = {
            path: stack.enter_context(start(path, *_options(path.name))).wait_ready()
            for path in (build(variant, name) for name in _part(variant, part))
        }
        asked = {path: _words(fixture, path) for path, fixture in running.items()}
        known = {path: len(fixture.hits) for path, fixture in running.items()}
        words = [f for path, own in asked.items() for f in _by_file(path, own, running[path].pid)]
        tool = stack.enter_context(usdt("trace", "--json", *_LONGEST, *words))
        tool.wait_tracing(timeout=patient(100))  # some 200 sites
        printed = {
            path: _own(asked[path], _fired(fixture)[known[path] :])
            for path, fixture in running.items()
        }
        events = _stopped(tool, sum(map(len, printed.values())))
        assert tool.closing[1] == 0
    for path, hits in printed.items():
        assert hits
        _assert_same(path, hits, _of(hits, events))


def _by_file(path: Path, words: Iterable[str], pid: int) -> Iterable[str]:
    """Words of a program, each with the file that it is in."""
    for word in words:
        provider = word.partition(":")[0]
        if word.startswith("/"):
            yield word
        elif provider == "libstdcxx":
            yield from (f"{library}:{word}" for library in _mapped(pid))
        elif provider == "plugin":
            yield f"{path.parent / 'libplugin.so'}:{word}"
        else:
            yield f"{_file_of(path, word)}:{word}"
            if word.startswith("libpair:both"):  # one probe in both files
                yield f"{path.parent / 'libpair.so'}:{word}"


def _fired(fixture: Fixture) -> list[dict[str, Any]]:
    if "/execer " not in fixture.name:  # which fires when its input ends
        fixture.fire()
    return fixture.finish()


def _stopped(tool: Tool, least: int) -> list[dict[str, Any]]:
    # Nothing ends a trace of files but a signal.
    tool.wait_events(least)
    return tool.stop()


def _of(printed: list[dict[str, Any]], events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    # Other tests may run the same programs at the same time.
    pids = {hit["pid"] for hit in printed}
    return [event for event in events if event["pid"] in pids]


@_SOME
def test_everything_traces_the_program_too(variant: str, program: str) -> None:
    path = build(variant, program)
    words = _learnt(path)
    with start(path, *_options(program)) as fixture:
        fixture.wait_ready()
        with tracing("-a", *_LONGEST, *words) as tool:
            fixture.fire()
            printed = fixture.finish()
            events = _of(printed, _stopped(tool, len(printed)))
    _assert_same(path, printed, events)


# ---------------------------------------------------------------- Thumb code

_THUMB = "Thumb code, for which Linux has no uprobes"
_on_arm = pytest.mark.skipif(PROCESS_MACHINE != "arm", reason="only 32-bit ARM has Thumb code")


@_on_arm
def test_a_program_in_thumb_code_is_refused_and_runs_on() -> None:
    path = build("thumb", "args")
    probes = read_probes(str(path)).probes
    with start(path, "-w", "-n", ROUNDS) as fixture:
        fixture.wait_ready()
        for probe in probes[:2]:
            said = one_error(run_usdt("trace", "-p", fixture.pid, probe.full_name))
            where = f"{probe.full_name} at {probe.sites[0].address:#x} in {path}"
            assert said == f"{where}: {_THUMB}"
        fixture.fire()
        assert {hit["probe"] for hit in fixture.finish()} == {probe.full_name for probe in probes}
    checked = run_usdt("check", path)
    assert checked.returncode == 1
    lines = [line for line in checked.stdout.splitlines() if line.endswith(_THUMB)]
    assert len(lines) == sum(len(probe.sites) for probe in probes)


@_on_arm
def test_what_is_beside_thumb_code_is_traced() -> None:
    with start(path := build("default", "cxx"), "-w", "-n", ROUNDS) as fixture:
        (library,) = _mapped(fixture.wait_ready().pid)
        sites = [
            (probe, site) for probe in read_probes(str(library)).probes for site in probe.sites
        ]
        words = _words(fixture, path)
        before = len(fixture.hits)
        with tracing("-p", fixture.pid, *words, "libstdcxx:*") as tool:
            fixture.fire()
            printed = _own(words, fixture.finish()[before:])
            events = tool.wait_end()
    refused = [line for line in tool.errors if line.startswith("not attached: ")]
    assert sorted(refused) == sorted(
        f"not attached: {probe.full_name} at {site.address:#x} in {library}: {_THUMB}"
        for probe, site in sites
    )
    assert sites
    _assert_same(path, printed, events)


# ---------------------------------------------------------------- semaphores

_SEMAPHORES = pytest.mark.parametrize(
    ("variant", "program"),
    [
        pytest.param(variant, program, id=f"{variant}/{program}")
        for variant in ("default", "nopie", "static", "m32", "m32nopie")
        for program in ("sema_shared", "sema_each", "libpair")
        if (variant, program) in FIXTURES
    ],
)


def _counts(fixture: Fixture) -> list[int]:
    return [count for counts in fixture.state().values() for count in counts]


@_SEMAPHORES
def test_semaphores_are_up_while_anybody_traces_and_then_zero(
    variant: str, program: str, tmp_path: Path
) -> None:
    with start(private(build(variant, program), tmp_path), "-w") as fixture:
        assert set(_counts(fixture.wait_ready())) == {0}
        with tracing("-p", fixture.pid, f"{program}:*") as one:
            first = _counts(fixture)
            assert min(first) > 0
            # The kernel counts places with a breakpoint, not those who look at it.
            with tracing("-p", fixture.pid, f"{program}:*") as two:
                assert _counts(fixture) == first
                two.stop()
            assert _counts(fixture) == first
            one.stop()
        assert set(_counts(fixture)) == {0}
        if program != "libpair":  # its probes are not guarded
            before = len(fixture.hits)
            fixture.fire()
            assert not [h for h in fixture.hits[before:] if h["probe"].endswith("guarded")]


@_SEMAPHORES
def test_semaphores_are_zero_after_the_tracer_was_killed(
    variant: str, program: str, tmp_path: Path
) -> None:
    with start(private(build(variant, program), tmp_path), "-w") as fixture:
        fixture.wait_ready()
        with tracing("-p", fixture.pid, f"{program}:*") as tool:
            assert min(_counts(fixture)) > 0
            tool.kill()
        until(lambda: set(_counts(fixture)) == {0}, "the semaphores to be 0")
        fixture.fire()
        fixture.finish()


@pytest.mark.parametrize("program", ["sema_shared", "sema_each"])
def test_a_process_that_starts_later_has_its_semaphores_counted(
    program: str, tmp_path: Path
) -> None:
    path = private(build("default", program), tmp_path)
    with tracing(f"{path}:*:*") as tool, start(path, "-w") as fixture:
        assert min(_counts(fixture.wait_ready())) > 0
        tool.stop()
        assert set(_counts(fixture)) == {0}
