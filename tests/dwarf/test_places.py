"""Source lines as places: their addresses are those of gdb's breakpoints, on every line."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest
from gdb_places import breakpoints, function_breakpoints
from kept_builds import compile_in
from line_programs import CXX, C, chains
from place_programs import INLINED, RUST
from skips import need_program
from symbol_programs import compiled

from usdt.base.errors import ProbeNotFound
from usdt.dwarf.info import DebugInfo
from usdt.elf.file import ElfFile
from usdt.uprobes.name_patterns import name_matcher

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_ROW = re.compile(r"^0x([0-9a-f]+)\s+(\d+)\s+\d+\s+(\d+).*is_stmt", re.MULTILINE)

KINDS = [
    pytest.param("gcc", C, ("-O0", "-gdwarf-5"), id="C by gcc"),
    pytest.param("gcc", C, ("-O2", "-gdwarf-5"), id="C by gcc, optimized"),
    pytest.param("gcc", C, ("-Og", "-gdwarf-3", "-gstrict-dwarf"), id="C by gcc, DWARF 3"),
    pytest.param("gcc", C, ("-O3", "-gdwarf-4"), id="C by gcc, DWARF 4"),
    pytest.param("clang", C, ("-O0", "-gdwarf-4"), id="C by clang, DWARF 4"),
    pytest.param("clang", C, ("-O2", "-gdwarf-5"), id="C by clang, optimized"),
    pytest.param("g++", CXX, ("-O0", "-g"), id="C++ by gcc"),
    pytest.param("g++", CXX, ("-O2", "-g"), id="C++ by gcc, optimized"),
    pytest.param("clang++", CXX, ("-O0", "-g"), id="C++ by clang"),
    pytest.param("clang++", CXX, ("-O2", "-g"), id="C++ by clang, optimized"),
    pytest.param("rustc", RUST, ("-g",), id="Rust"),
]


def built(folder: Path, compiler: str, source: str, options: Sequence[str]) -> tuple[Path, Path]:
    ending = "rs" if compiler == "rustc" else "cc" if "++" in compiler else "c"
    path = folder / f"placed.{ending}"
    path.write_text(source)
    program = folder / "program"
    words = [need_program(compiler), *options, "-o", str(program), str(path)]
    compile_in(folder, words)
    return program, path


def statements(program: Path) -> set[tuple[int, int]]:
    """Address and line of each row of a statement, as LLVM reads them."""
    tool = need_program("llvm-dwarfdump")
    done = subprocess.run(
        [tool, "--debug-line", str(program)], capture_output=True, text=True, check=True
    )
    return {(int(one[1], 16), int(one[2])) for one in _ROW.finditer(done.stdout)}


@pytest.fixture
def debug(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[DebugInfo, Path, Path]]:
    compiler, source, options = request.param
    program, path = built(tmp_path, compiler, source, options)
    with ElfFile(program) as elf:
        info = DebugInfo.of(elf)
        assert info is not None
        with info:
            yield info, program, path


@pytest.mark.parametrize(
    "debug", [pytest.param(one.values, id=one.id) for one in KINDS], indirect=True
)
def test_places_of_every_line_are_where_gdb_sets_breakpoints(
    debug: tuple[DebugInfo, Path, Path],
) -> None:
    info, program, source = debug
    lines = len(source.read_text().splitlines())
    gdb = breakpoints(program, source.name, lines)
    rows = statements(program)
    same = 0
    for line in range(1, lines + 1):
        addresses, at = gdb.get(line, ([], []))
        try:
            ours = [place.address for place in info.line_places(source.name, line)]
        except ProbeNotFound:
            assert line not in at, (line, addresses, at)
            continue
        same += ours == addresses
        if at == [line]:
            assert len(ours) >= len(addresses), (line, ours, addresses)
        # gdb forgets lines that are empty, because another file follows at the same address.
        for one in set(ours) - set(addresses):
            assert (one, line) in rows or one in {address for address, _ in rows}, (line, one)
    assert same > 8


_TWO = """
static int helper(int n) { return n + 1; }
int %s(int n)
{
    return helper(n) * 2;

}
"""


def test_a_source_file_is_named_by_the_end_of_its_path(tmp_path: Path) -> None:
    sources = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / "same.c"
        path.write_text(_TWO % f"from_{folder}")
        sources.append(str(path))
    main = tmp_path / "main.c"
    main.write_text(
        "int from_one(int), from_two(int);\nint main(void)\n{\n"
        "    return from_one(1) + from_two(2);\n}\n"
    )
    program = tmp_path / "program"
    subprocess.run([need_program("gcc"), "-g", "-o", program, main, *sources], check=True)
    with ElfFile(program) as elf:
        info = DebugInfo.of(elf)
        assert info is not None
        with info:
            for name in ("one/same.c", f"{tmp_path}/one/same.c", "./one/same.c"):
                (place,) = info.line_places(name, 5)
                assert place.function == "from_one"
            (place,) = info.line_places("main.c", 4)
            assert place.function == "main"
            reasons = {
                (
                    "same.c",
                    5,
                ): f"2 source files are named same.c: write more of the path ({sources[0]}",
                ("ame.c", 5): "no source file ame.c",
                ("two/same.c", 6): "two/same.c:6 has no code; the next line with code is 7",
                ("main.c", 99): "main.c:99 has no code; the last line with code is 5",
                ("main.c", 0): "main.c:0 has no code; the next line with code is 3",
            }
            for (name, line), reason in reasons.items():
                with pytest.raises(ProbeNotFound, match=re.escape(reason)):
                    info.line_places(name, line)


def test_the_variables_of_a_place_are_those_in_scope(tmp_path: Path) -> None:
    source = (
        "int work(int n, int m)\n{\n    int total = n;\n    for (int i = 0; i < n; i++) {\n"
        "        long n = i * 2L;\n        total += n;\n    }\n    return total + m;\n}\n"
        "int main(int argc, char **argv) { return work(argc, 2); }\n"
    )
    program = compiled(tmp_path, source, "-g", "-O0", name="scopes")
    with ElfFile(program) as elf:
        info = DebugInfo.of(elf)
        assert info is not None
        with info:
            names = {}
            for line in (6, 8):
                (place,) = info.line_places("scopes.c", line)
                assert (place.function, place.inlined) == ("work", False)
                names[line] = [(one.name, one.parameter) for one in info.locals(place)]
            assert names == {
                6: [("m", True), ("n", False), ("i", False), ("total", False)],
                8: [("n", True), ("m", True), ("total", False)],
            }


_FUNCTIONS = [
    pytest.param("gcc", C, ("-O2", "-g"), ("thrice", "mixed"), id="C by gcc"),
    pytest.param("gcc", C, ("-O1", "-gdwarf-4"), ("thrice", "mixed"), id="C by gcc, DWARF 4"),
    pytest.param("clang", C, ("-O2", "-g"), ("thrice", "mixed"), id="C by clang"),
    pytest.param("clang", C, ("-O1", "-gdwarf-4"), ("thrice", "mixed"), id="C by clang, DWARF 4"),
    pytest.param("gcc", INLINED, ("-O2", "-g"), ("scaled", "hidden"), id="with a copy of its own"),
    pytest.param(
        "g++",
        CXX,
        ("-O2", "-g"),
        ("shapes::total", "shapes::(anonymous namespace)::scale"),
        id="C++ by gcc",
    ),
    pytest.param(
        "clang++",
        CXX,
        ("-O2", "-g"),
        ("shapes::total", "shapes::(anonymous namespace)::scale"),
        id="C++ by clang",
    ),
]


@pytest.mark.parametrize(("compiler", "source", "options", "functions"), _FUNCTIONS)
def test_inlined_copies_are_those_of_addr2line_and_gdb(
    tmp_path: Path,
    compiler: str,
    source: str,
    options: Sequence[str],
    functions: Sequence[str],
) -> None:
    program, _ = built(tmp_path, compiler, source, options)
    gdb = function_breakpoints(program, functions)
    with ElfFile(program) as elf:
        info = DebugInfo.of(elf)
        assert info is not None
        with info:
            for function in functions:
                wanted = name_matcher(function)
                places = info.inlined_places(wanted)
                assert places
                assert all(place.inlined for place in places)
                assert sum(info.inlined_counts(wanted).values()) == len(places)
                addresses = [place.address for place in places]
                last = function.rpartition("::")[2]
                for chain in chains(program, addresses, "llvm-addr2line"):
                    assert any(last in name for name, _ in chain[:-1]), chain
                # gdb has a breakpoint at each copy, and one at the function itself.
                if source != CXX:  # where gdb does not count lambdas of the function
                    assert len(gdb[function]) - len(places) in (0, 1), (gdb[function], addresses)
