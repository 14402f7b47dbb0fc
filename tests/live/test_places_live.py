"""Source lines as probes: the variables shown equal those that the program prints, and gdb's."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from gdb_places import breakpoints, values
from place_programs import INLINED, made, marks
from skips import need_program
from streams import read_events
from symbol_programs import compiled
from tracing_tools import one_error, run_usdt

from usdt.base.errors import ProbeNotFound
from usdt.dwarf.info import DebugInfo
from usdt.elf.file import ElfFile
from usdt.uprobes.functions import FunctionFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from place_programs import Mark

pytestmark = pytest.mark.usefixtures("ringbuf")

#: Reasons of a compiler that optimizes.
_LOST = ("optimized out here", "values of the function's entry", "compiler has removed", "32-bit")
_WORD = re.compile(r"(\S+?)=(\"[^\"]*\"|\S+)")


def shown(value: object) -> str:
    """A value of an event as the programs print it."""
    return f'"{value}"' if isinstance(value, str) else str(value)


def where_gdb_stops(program: Path, source: Path) -> list[Mark]:
    """The marked lines for which gdb has the same addresses: it passes over empty lines."""
    known = breakpoints(program, source.name, len(source.read_text().splitlines()))
    found = []
    with ElfFile(program) as elf, contextlib.ExitStack() as stack:
        info = DebugInfo.of(elf)
        assert info is not None
        stack.enter_context(info)
        for mark in marks(source):
            with contextlib.suppress(ProbeNotFound):
                places = info.line_places(source.name, mark.line)
                if known[mark.line][0] == [place.address for place in places]:
                    found.append(mark)
    return found


def traced(program: Path, *probes: str) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """The events, and what the program printed."""
    done = run_usdt("trace", "--json", "-o", f"{program}.json", "-c", str(program), *probes)
    assert done.returncode == 0, done.stderr
    assert done.stderr.rstrip().endswith(" 0 lost"), done.stderr
    events = read_events(Path(f"{program}.json").read_text())
    lines = [line for line in done.stdout.splitlines() if line.startswith("MARK ")]
    return events, [dict(_WORD.findall(line)) for line in lines]


_PLAIN = [
    pytest.param("gcc", ("-O0", "-g", "-gdwarf-5"), id="C by gcc"),
    pytest.param("gcc", ("-O0", "-g", "-gdwarf-4", "-no-pie"), id="C by gcc, DWARF 4"),
    pytest.param("clang", ("-O0", "-g", "-gdwarf-4"), id="C by clang"),
    pytest.param("g++", ("-O0", "-g"), id="C++ by gcc"),
    pytest.param("clang++", ("-O0", "-g"), id="C++ by clang"),
    pytest.param("rustc", ("-g",), id="Rust"),
]
_OPTIMIZED = [
    pytest.param("gcc", ("-O2", "-g", "-gdwarf-5"), id="C by gcc"),
    pytest.param("gcc", ("-O1", "-g", "-gdwarf-4", "-no-pie"), id="C by gcc, DWARF 4"),
    pytest.param("clang", ("-O2", "-g", "-gdwarf-5"), id="C by clang"),
    pytest.param("clang", ("-O1", "-g", "-gdwarf-4"), id="C by clang, DWARF 4"),
    pytest.param("gcc", ("-O1", "-gdwarf-4", "-gsplit-dwarf"), id="split DWARF 4"),
    pytest.param("clang", ("-O1", "-gdwarf-5", "-gsplit-dwarf"), id="split DWARF 5"),
    pytest.param("gcc", ("-O1", "-g", "-m32"), id="32 bits"),
    pytest.param("gcc", ("-O1", "-g", "-flto"), id="optimized when linked"),
    pytest.param("g++", ("-Og", "-g"), id="C++ by gcc"),
    pytest.param("clang++", ("-O2", "-g"), id="C++ by clang"),
    pytest.param("rustc", ("-g", "-O"), id="Rust"),
]


def probes_of(program: Path, source: Path, marked: Sequence[Mark]) -> list[str]:
    return [
        f"uprobe:{program}:{source.name}:{mark.line}({', '.join(mark.items)})" for mark in marked
    ]


@pytest.mark.parametrize(("compiler", "options"), _PLAIN)
def test_variables_at_lines_are_those_that_the_program_prints(
    tmp_path: Path, compiler: str, options: Sequence[str]
) -> None:
    program, source = made(tmp_path, compiler, *options)
    events, lines = traced(program, *probes_of(program, source, marks(source)))
    hits = [{name: shown(value) for name, value in event["args"].items()} for event in events]
    assert len(hits) >= 5
    assert hits == lines


@pytest.mark.parametrize(("compiler", "options"), _OPTIMIZED)
def test_variables_of_optimized_code_are_those_of_gdb(
    tmp_path: Path, compiler: str, options: Sequence[str]
) -> None:
    program, source = made(tmp_path, compiler, *options)
    marked = where_gdb_stops(program, source)
    stops = values(program, source.name, marked)
    events, _ = traced(program, *probes_of(program, source, marked))
    lines = [int(event["probe"].rpartition(":")[2]) for event in events]
    assert lines == [line for line, _ in stops]
    read = 0
    for event, (_, known) in zip(events, stops, strict=True):
        for name, value in event["args"].items():
            if isinstance(value, int) and name in known:
                assert value == known[name], (event, known)
                read += 1
            elif isinstance(value, dict) and "error" in value:
                assert name not in known or any(one in value["error"] for one in _LOST), event
    assert read >= 2


def test_a_separate_debug_file_has_the_places(tmp_path: Path) -> None:
    program, source = made(tmp_path, "gcc", "-O0", "-g")
    debug = tmp_path / "places.debug"
    objcopy = need_program("objcopy")
    subprocess.run([objcopy, "--only-keep-debug", program, debug], check=True)
    linked = f"--add-gnu-debuglink={debug}"
    subprocess.run([objcopy, "--strip-all", linked, program], check=True)
    events, lines = traced(program, *probes_of(program, source, marks(source)))
    hits = [{name: shown(value) for name, value in event["args"].items()} for event in events]
    assert hits == lines
    debug.unlink()
    (probe, *_) = probes_of(program, source, marks(source))
    reason = one_error(run_usdt("trace", "-c", str(program), probe), code=1)
    assert "has no debug information" in reason


def test_places_are_recorded_counted_and_paired(tmp_path: Path) -> None:
    program, source = made(tmp_path, "gcc", "-O0", "-g")
    start, end = (f"uprobe:{program}:{source.name}:{mark.line}" for mark in marks(source)[1:3])
    recording = tmp_path / "recording"
    done = run_usdt("record", "-o", recording, "-c", str(program), f"{start}(i, total)")
    assert done.returncode == 0, done.stderr
    text = run_usdt("report", "--format", "json", recording).stdout
    recorded = [json.loads(line)["args"] for line in text.splitlines()]
    assert [one["i"] for one in recorded] == [0, 1, 2, 3]
    done = run_usdt("count", "--json", "-c", str(program), start, "--by", "i % 2")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert "uprobe:places:places.c" in json.dumps(rows)
    done = run_usdt("spans", "--json", "-c", str(program), f"{start}(i)", f"{end}(text)")
    assert done.returncode == 0, done.stderr
    assert '"text": "t3"' in done.stdout


@pytest.fixture(scope="module")
def inlined(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("inlined"), INLINED, "-O2", "-g", name="inlined")


def test_inlined_copies_are_probed_when_asked(inlined: Path) -> None:
    events, lines = traced(inlined, f"uprobe:{inlined}:scaled+inlined(n)")
    assert len(lines) == 3
    assert [event["args"]["n"] for event in events] == [int(line["n"]) for line in lines]
    assert {event["probe"] for event in events} == {"uprobe:inlined:scaled+inlined"}
    events, _ = traced(inlined, f"uprobe:{inlined}:hidden+inlined(func)")
    assert [event["args"] for event in events] == [{"func": "hidden"}]


def test_copies_in_much_debug_information_are_not_counted(
    inlined: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("usdt.uprobes.functions._MAX_COUNTED", 10)
    with FunctionFile(str(inlined)) as file:
        assert file.inlined_copies("scaled") == {}
        (note,) = file.notes
    assert note.startswith(f"{inlined}: inlined copies of scaled are not counted, in 0 MiB")


def test_copies_that_are_not_probed_are_reported(inlined: Path) -> None:
    done = run_usdt("count", "-c", str(inlined), f"uprobe:{inlined}:scaled")
    assert done.returncode == 0
    assert (
        f"{inlined}: 2 inlined copies of scaled are not probed; scaled+inlined probes these, too"
        in done.stderr.splitlines()
    )


@pytest.mark.parametrize(
    ("probe", "code", "reason"),
    [
        pytest.param("scaled+inlined(return)", 2, "an inlined copy has no return", id="return"),
        pytest.param("scaled+inlined(duration)", 2, "has no duration: trace scaled", id="duration"),
        pytest.param("scaled+inlined(arg0)", 2, "arguments by number", id="an argument by number"),
        pytest.param("scaled+inlined(k)", 2, "unknown name 'k'", id="no such name"),
        pytest.param("hidden", 1, "inlined it at 1 place, which hidden+inlined", id="no function"),
        pytest.param("hid*", 1, "inlined it at 1 place, which hid*+inlined", id="a pattern"),
        pytest.param("other+inlined", 1, "no function other, and none is inlined", id="nothing"),
    ],
)
def test_what_inlined_copies_do_not_have_is_refused(
    inlined: Path, probe: str, code: int, reason: str
) -> None:
    done = run_usdt("trace", "-c", str(inlined), f"uprobe:{inlined}:{probe}")
    assert reason in one_error(done, code=code)


def test_check_tells_of_each_place(inlined: Path) -> None:
    line = next(n for n, text in enumerate(INLINED.splitlines(), 1) if "MARK" in text)
    done = run_usdt("check", f"uprobe:{inlined}:inlined.c:{line}(n, m)")
    assert done.stdout == f"{inlined}: 3 functions, all would attach and decode\n"
    done = run_usdt("check", f"uprobe:{inlined}:scaled+inlined(m)")
    assert done.returncode == 1
    assert f"{inlined}: scaled+inlined: m cannot be read: optimized out here\n" in done.stdout
    assert f"{inlined}: scaled+inlined: m cannot be read: not in scope here\n" in done.stdout
