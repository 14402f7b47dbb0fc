"""Which variable a name means, and where it is, beside what the symbol table says."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from kept_builds import compile_in
from skips import need_program
from variable_programs import SCOPES, built

from usdt.btf.types import Array, Composite, Pointer
from usdt.dwarf.info import DebugInfo
from usdt.dwarf.variable_types import type_of_variable
from usdt.elf.file import ElfFile
from usdt.elf.symbol_tables import SymbolTables

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from usdt.dwarf.types.variables import VariableDebug

_BUILDS = {
    "gcc -O0": ("gcc", "-O0", "-g"),
    "gcc -O2, DWARF 4": ("gcc", "-O2", "-g", "-gdwarf-4"),
    "gcc -O2, optimized at link time": ("gcc", "-O2", "-g", "-flto"),
    "gcc -O2, split": ("gcc", "-O2", "-g", "-gsplit-dwarf"),
    "gcc, compressed": ("gcc", "-O1", "-g", "-gz"),
    "gcc, 32 bits": ("gcc", "-O1", "-g", "-m32"),
    "clang -O1": ("clang", "-O1", "-g", "-gdwarf-5"),
    "clang, split": ("clang", "-O1", "-g", "-gdwarf-5", "-gsplit-dwarf"),
}


class Program:
    """A program with its debug information and its symbols."""

    def __init__(self, path: Path) -> None:
        self.elf = ElfFile(str(path))
        self.info = DebugInfo.of(self.elf)
        assert self.info is not None
        text = subprocess.run(
            [need_program("nm", "binutils"), path], capture_output=True, text=True, check=True
        ).stdout
        rows = [line.split() for line in text.splitlines()]
        self.symbols: dict[str, list[int]] = {}
        for address, _, name in (row for row in rows if len(row) == 3):
            # state.lto_priv.0, calls.1, clang's work.calls
            source = name.removeprefix("work.").partition(".")[0]
            self.symbols.setdefault(source, []).append(int(address, 16))

    def close(self) -> None:
        assert self.info is not None
        self.info.close()
        self.elf.close()

    def find(self, name: str, function: str, inside: int = 0) -> VariableDebug | None:
        assert self.info is not None
        return self.info.variable(name, self.symbols[function][0] + inside)

    def known(self, name: str, function: str, inside: int = 0) -> VariableDebug:
        found = self.find(name, function, inside)
        assert found is not None, name
        assert not found.problem
        return found


@pytest.fixture(params=_BUILDS.values(), ids=_BUILDS, scope="module")
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler, *options = request.param
    return built(tmp_path_factory.mktemp("two"), *options, compiler=compiler)


@pytest.fixture
def program(path: Path) -> Iterator[Program]:
    made = Program(path)
    yield made
    made.close()


def test_each_variable_is_where_its_symbol_is(program: Program) -> None:
    for name in ("counter", "config", "head", "text", "color", "ratio"):
        assert program.known(name, "work").address == program.symbols[name][0], name
    assert program.known("calls", "work").address == program.symbols["calls"][0]


def test_a_file_has_its_own_static_variables(program: Program) -> None:
    assert program.info is not None
    one, two = program.known("state", "work"), program.known("state", "other")
    assert {one.address, two.address} == set(program.symbols["state"])
    sizes = [program.info.btf.size_of(found.type_id) for found in (one, two)]
    assert sizes == [program.elf.bits // 8, 4]
    assert program.known("state", "far").address == two.address


def test_other_files_have_variables_too(program: Program) -> None:
    for name in ("shared", "lonely"):
        assert program.known(name, "work").address == program.symbols[name][0]
    assert program.known("counter", "other").address == program.symbols["counter"][0]
    assert program.find("calls", "other") is None
    assert program.find("n", "work") is None
    assert program.find("no_such", "work") is None


def test_inside_a_function_names_mean_the_same(program: Program) -> None:
    assert program.known("calls", "work", 8).address == program.symbols["calls"][0]
    assert program.known("state", "other", 8).address == program.known("state", "far").address


def test_types_are_those_of_the_source(program: Program) -> None:
    assert program.info is not None
    btf = program.info.btf
    config = btf.resolve(program.known("config", "work").type_id)
    assert isinstance(config, Composite)
    assert [member.name for member in config.members] == ["a", "low", "high", "name", "next"]
    assert isinstance(btf.resolve(program.known("head", "work").type_id), Pointer)
    table = btf.resolve(program.known("table", "work").type_id)
    assert isinstance(table, Array)
    assert table.count == 4


def test_a_variable_without_an_address_says_why(program: Program) -> None:
    found = program.find("per_thread", "work")
    assert found is not None
    assert "thread-local" in found.problem
    limit = program.find("limit", "work")
    assert limit is not None
    kept = limit.address is not None and limit.address in program.symbols.get("limit", [])
    assert kept or limit.value == 33 or "may have removed it" in limit.problem


def test_names_are_listed_for_messages(program: Program) -> None:
    assert program.info is not None
    for name in ("counter", "config", "shared", "lonely"):
        assert name in program.info.variable_names(f"{name}s")


# What a name means in the method shop::Cart::add, and outside of all scopes: the whole name.
_IN_METHOD = {
    "counter": "shop::counter",
    "::counter": "counter",
    "shop::counter": "shop::counter",
    "hidden": "(anonymous namespace)::hidden",
    "inner": "shop::(anonymous namespace)::inner",
    "shop::inner": "shop::(anonymous namespace)::inner",
    "total": "shop::Cart::total",
    "Cart::total": "shop::Cart::total",
    "Limits::most": "shop::Cart::Limits::most",
    "declared": "shop::declared",
    "opened": "shop::Cart::opened",
    "Pool<int>::used": "shop::Pool<int>::used",
}
_OUTSIDE = {
    "counter": "counter",
    "shop::counter": "shop::counter",
    "shop::Cart::total": "shop::Cart::total",
    "hidden": "(anonymous namespace)::hidden",
    "total": None,
    "inner": None,
    "::shop::counter": "shop::counter",
}


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_names_in_scopes_of_cxx(compiler: str, tmp_path: Path) -> None:
    (tmp_path / "scopes.cc").write_text(SCOPES)
    command = [need_program(compiler), "-std=c++17", "-g", "-O1", "scopes.cc", "-o", "scopes"]
    compile_in(tmp_path, command)
    with ElfFile(str(tmp_path / "scopes")) as elf, SymbolTables(elf) as tables:
        info = DebugInfo.of(elf)
        assert info is not None
        names = (("_ZN4shop4Cart3addEi", _IN_METHOD), ("_Z7outsidei", _OUTSIDE))
        with info:
            for function, meanings in names:
                (code,) = (one.address for one in tables.named(function))
                for name, meaning in meanings.items():
                    found = info.variable(name, code)
                    assert (None if found is None else found.name) == meaning, name
                    if found is not None:
                        symbols = [one.address for one in tables.variables(found.symbol)]
                        assert symbols in ([found.address], []), name


def test_types_of_variables_in_c(path: Path, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("no program")
    with ElfFile(str(path)) as elf:
        own = elf.build_id or ""
    files = ["/nonexistent", str(tmp_path / "other"), str(path)]
    wanted = {"counter": "int", "config": "struct node", "head": "struct node *", "state": ""}
    assert {name: type_of_variable(files, own, name) for name in wanted} == wanted
    assert type_of_variable(files, "12ab", "counter") == "", "of another build"
