"""Where functions, variables and types are is kept for later runs, and not trusted there."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from kept_builds import compile_in
from skips import need_program
from variable_programs import SCOPES, built

from usdt.dwarf.index import indexer
from usdt.dwarf.index.unit_functions import UnitFunctions
from usdt.dwarf.info import DebugInfo
from usdt.dwarf.units import answers, cache
from usdt.dwarf.units.answers import Answers
from usdt.dwarf.units.scopes import Scopes
from usdt.elf.file import ElfFile
from usdt.elf.symbol_tables import SymbolTables

if TYPE_CHECKING:
    from pathlib import Path

_VARIABLES = ("counter", "config", "no_such", "per_thread", "limit", "work")
_OPTIONS = {"DWARF 5": ("-gdwarf-5",), "DWARF 4, compressed": ("-gdwarf-4", "-gz")}


@pytest.fixture(params=_OPTIONS.values(), ids=_OPTIONS, scope="module")
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A C program of several files."""
    return built(tmp_path_factory.mktemp("answers"), "-O1", "-g", *request.param, compiler="gcc")


@pytest.fixture(autouse=True)
def _all_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(answers, "_MIN_COST", 0)


def _asked(path: Path) -> list[object]:
    # What functions, variables and types are, as a later run is told them, too.
    with ElfFile(str(path)) as elf, SymbolTables(elf) as tables, DebugInfo.of(elf) as info:
        assert info is not None
        found: list[object] = []
        for name in ("work", "other", "main"):
            address = tables.named(name)[0].address
            found.append(info.function(address, name))
            found += (info.variable(one, address) for one in _VARIABLES)
        found.append(info.btf.size_of(info.type_id("struct node")))
        return found


def _key(path: Path) -> str:
    with ElfFile(str(path)) as elf, DebugInfo.of(elf) as info:
        assert info is not None
        return info._files.main.sections.identity


def test_a_later_run_reads_no_whole_unit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = _asked(path)
    monkeypatch.setattr(UnitFunctions, "function", None)
    monkeypatch.setattr(indexer, "UnitIndexer", None)
    assert _asked(path) == expected


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("x@0", id="no number"),
        pytest.param("0", id="no position of a unit"),
        pytest.param("ffffff00000000@0", id="a unit that is not there"),
        pytest.param("b@7fffffffff", id="a unit after the section"),
        pytest.param("b@1", id="no unit"),
        pytest.param("3fffffff@0", id="after the unit"),
        pytest.param("b@0", id="another entry"),
        pytest.param("\udcff\x01", id="bytes that are not UTF-8"),
    ],
)
def test_damaged_positions_are_as_if_they_were_not_there(path: Path, value: str) -> None:
    expected = _asked(path)
    lines = bytes(cache.load(_key(path), "answers") or b"").split(b"\n")
    damage = value.encode("utf-8", "surrogateescape")
    rows = [line.split(b"\t") for line in lines]
    damaged = [
        b"\t".join((row[0], *(damage for one in row[1:]))) if b"@" in b"".join(row[1:]) else line
        for row, line in zip(rows, lines, strict=True)
    ]
    assert damaged != lines
    cache.store(_key(path), "answers", lambda: iter((b"\n".join(damaged),)))
    assert _asked(path) == expected


@pytest.mark.parametrize(
    "text",
    [b"", b"\0" * 64, b"\t\t\n\t", b"\xff\n" * 32],
    ids=["empty", "zeros", "tabs", "no text"],
)
def test_files_of_anything(path: Path, text: bytes) -> None:
    expected = _asked(path)
    cache.store(_key(path), "answers", lambda: iter((text,)))
    assert _asked(path) == expected


def test_a_cut_file_is_not_used(path: Path, tmp_path: Path) -> None:
    expected = _asked(path)
    (kept,) = (tmp_path / "cache/usdt-toolkit/dwarf").glob("*.answers")
    kept.write_bytes(kept.read_bytes()[:-7])
    assert cache.load(_key(path), "answers") is None
    assert _asked(path) == expected


_PUT = """
import sys
from usdt.dwarf.units.answers import Answers
from usdt.dwarf.units.scopes import Scopes
made = Answers(lambda: "a file")
made.note_cost(1 << 30)
for one in range(8):
    made.put(f"f{sys.argv[1]}", str(one))
    made.close()
"""


def test_processes_at_once_leave_a_whole_file() -> None:
    processes = [subprocess.Popen([sys.executable, "-c", _PUT, str(one)]) for one in range(4)]
    assert [one.wait(timeout=60) for one in processes] == [0] * 4
    made = Answers(lambda: "a file")
    found = [made.get(f"f{number}") for number in range(4)]
    assert ("7",) in found  # of the process that was the last
    assert {*found} <= {None, *((str(one),) for one in range(8))}


def test_the_newest_answers_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "_MAX_ROWS", 3)
    for names in ("abc", "de"):
        made = Answers(lambda: "a file")
        for name in names:
            made.put(name, "1")
        made.close()
    made = Answers(lambda: "a file")
    assert [name for name in "abcde" if made.get(name)] == ["c", "d", "e"]


def test_cheap_answers_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "_MIN_COST", 1 << 20)
    for cost, expected in ((0, None), (1 << 16, ("1",))):
        made = Answers(lambda: "a file")
        made.put("key", "1")
        made.note_cost(0, cost)
        made.close()
        assert Answers(lambda: "a file").get("key") == expected


def test_a_row_that_cannot_be_written_is_left_out() -> None:
    made = Answers(lambda: "a file")
    for key in ("a\tb", "a\nb", "x" * (1 << 13)):
        made.put(key, "1")
        assert made.get(key) is None


_WITHOUT_SPACE = """
import resource, sys
from usdt.dwarf.info import DebugInfo
from usdt.elf.file import ElfFile
from usdt.elf.symbol_tables import SymbolTables
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # as on a full disk
with ElfFile(sys.argv[1]) as elf, SymbolTables(elf) as tables, DebugInfo.of(elf) as info:
    info._files.answers.note_cost(1 << 30)
    address = tables.named("work")[0].address
    print(info.function(address, "work").declaration, info.variable("counter", address).name)
"""


@pytest.mark.parametrize("cache_home", ["full", "a file", "missing/folders"])
def test_questions_are_answered_where_nothing_can_be_kept(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache_home: str
) -> None:
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / cache_home))
    command = [sys.executable, "-c", _WITHOUT_SPACE, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split("(")[0].split() == ["int", "work"]
    assert done.stdout.split()[-1] == "counter"
    assert not [*tmp_path.glob("*/usdt-toolkit/dwarf/*")]


def test_a_later_run_reads_no_scopes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scopes.cc").write_text(SCOPES)
    command = [need_program("g++"), "-std=c++17", "-g", "-O1", "scopes.cc", "-o", "scopes"]
    compile_in(tmp_path, command)
    found = []
    for _ in range(2):
        path = str(tmp_path / "scopes")
        with ElfFile(path) as elf, SymbolTables(elf) as tables, DebugInfo.of(elf) as info:
            assert info is not None
            address = tables.named("_ZN4shop4Cart3addEi")[0].address
            function, total = info.function(address, ""), info.variable("total", address)
            assert function is not None
            assert total is not None
            found.append((function.declaration, total.address, info.type_id("shop::Cart")))
        monkeypatch.setattr(Scopes, "prefix", None)
    assert found[0] == found[1]
    assert "shop::Cart::add" in found[0][0]
