"""Source lines as probes: the variables shown equal those that the program prints, and gdb's."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from gdb_places import breakpoints, values
from place_programs import made, marks
from tracing_tools import run_usdt

from usdt.base.errors import ProbeNotFound
from usdt.dwarf.info import DebugInfo
from usdt.elf.file import ElfFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from place_programs import Mark

pytestmark = pytest.mark.usefixtures("ringbuf")

#: Reasons of a compiler that optimizes.
_LOST = ("optimized out here", "values of the function's entry", "that the compiler has removed")
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
    events = [json.loads(line) for line in Path(f"{program}.json").read_text().splitlines()]
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
