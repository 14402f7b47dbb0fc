"""Forms that compilers, linkers and packagers give to debug information, beside the plain one."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from debug_programs import CXX_SOURCE, compiled, layout
from dwarf_programs import program as built
from fixtures import TESTBINS
from skips import need_program

from usdt.base.errors import TracingError
from usdt.btf.types import Composite
from usdt.dwarf.info import DebugInfo
from usdt.dwarf.units import sections, split_dwarf
from usdt.dwarf.units.constants import TypeKind
from usdt.elf.file import ElfFile

C_TYPES = ("struct node", "struct tight")
CXX_TYPES = ("shop::Toy", "shop::Priced", "shop::Price")
_DWO = ("-gsplit-dwarf", "-fdebug-types-section")


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/nowhere")


def run(folder: Path, package: str, *words: str) -> None:
    need_program(words[0], package)
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert not done.returncode, done.stderr


def functions(program: Path) -> dict[str, str]:
    """Prototypes by name, without those of the C++ library: in its names compilers differ."""
    with ElfFile(program) as elf, DebugInfo.of(elf) as info:
        own = [one for one in info.functions() if not one[0].startswith(("std::", "__gnu"))]
        return {name: info.function(address).declaration for name, address in own}


def layouts(program: Path, names: tuple[str, ...]) -> dict[str, object]:
    with ElfFile(program) as elf, DebugInfo.of(elf) as info:
        return {name: (layout(info, name), info.btf.size_of(info.type_id(name))) for name in names}


@functools.cache
def plain(compiler: str) -> tuple[dict[str, object], dict[str, str]]:
    """Types and functions of the program in the plain form."""
    source, names = ({"source": CXX_SOURCE}, CXX_TYPES) if "++" in compiler else ({}, C_TYPES)
    with TemporaryDirectory() as folder:
        program = compiled(Path(folder), compiler, "-gdwarf-4", **source)
        return layouts(program, names), functions(program)


def same_as_plain(compiler: str, program: Path) -> None:
    """What is said of a program is what is said of the same one in the plain form."""
    types, theirs = plain(compiler)
    assert layouts(program, tuple(types)) == types
    ours = functions(program)
    assert {name: ours.get(name) for name in theirs} == theirs
    assert len(theirs) > 3


@pytest.mark.parametrize("package", [False, True], ids=["dwo", "dwp"])
@pytest.mark.parametrize(
    ("compiler", "version"),
    [("gcc", 4), ("gcc", 5), ("g++", 4), ("g++", 5), ("clang++", 4), ("clang++", 5)],
    ids=str,
)
def test_type_units_of_split_debug_information(
    tmp_path: Path, compiler: str, version: int, *, package: bool
) -> None:
    source = {"source": CXX_SOURCE} if "++" in compiler else {}
    program = compiled(tmp_path, compiler, f"-gdwarf-{version}", *_DWO, **source)
    halves = list(tmp_path.glob("*.dwo"))
    assert halves
    if package:
        tool, provider = ("dwp", "binutils") if version == 4 else ("llvm-dwp", "llvm")
        run(tmp_path, provider, tool, "-e", "program", "-o", "program.dwp")
        for half in halves:
            half.unlink()
    same_as_plain(compiler, program)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("-m", "shared.debug"), id="shared, as GNU has it"),
        pytest.param(("-5", "-m", "shared.debug"), id="shared, as DWARF 5 has it"),
        pytest.param((), id="partial units"),
    ],
)
def test_what_dwz_made_of_it(tmp_path: Path, version: int, options: tuple[str, ...]) -> None:
    program = compiled(tmp_path, "gcc", f"-gdwarf-{version}")
    files = ("program", "second") if options else ("program",)
    shutil.copy(program, tmp_path / "second")
    run(tmp_path, "dwz", "dwz", *options, *files)
    with ElfFile(program) as elf:
        assert (elf.section(".debug_sup") is not None) == ("-5" in options)
    same_as_plain("gcc", program)
    if "-5" in options:  # another file under that name is not taken
        (tmp_path / "shared.debug").write_bytes((tmp_path / "second").read_bytes())
        with ElfFile(program) as elf:
            found = split_dwarf.find_alternative(elf, lambda _: iter(()), "/nonexistent")
            assert found is None


@pytest.mark.parametrize(
    ("compiler", "options"),
    [
        pytest.param("clang++", ("-Xclang", "-gsimple-template-names=simple"), id="simple names"),
        pytest.param("clang++", ("-O0", "-fdebug-info-for-profiling"), id="for profiling"),
        pytest.param("g++", ("-flto", "-fno-inline"), id="link-time optimisation"),
        pytest.param("g++", ("-g3",), id="macros"),
        pytest.param("gcc", ("-fdebug-types-section", "-gdwarf-5", "-gdwarf64"), id="64 bits"),
    ],
)
def test_options_of_compilers(tmp_path: Path, compiler: str, options: tuple[str, ...]) -> None:
    source = {"source": CXX_SOURCE} if "++" in compiler else {}
    same_as_plain(compiler, compiled(tmp_path, compiler, *options, **source))


def test_zstd_is_refused_by_name(tmp_path: Path) -> None:
    program = compiled(tmp_path, "gcc")
    need_program("objcopy", "binutils")
    done = subprocess.run(
        ["objcopy", "--compress-debug-sections=zstd", program],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"this objcopy does not write zstd: {done.stderr}")
    try:
        import compression.zstd  # type: ignore[import-not-found]  # noqa: F401
    except ImportError:
        with (
            ElfFile(program) as elf,
            DebugInfo.of(elf) as info,
            pytest.raises(TracingError, match=r"^[^\n]*zstd[^\n]*objcopy --decompress"),
        ):
            info.function(0x1000)
    else:
        same_as_plain("gcc", program)


@pytest.mark.parametrize("cpu", ["s390x", "mips64el", "arm64", "riscv64", "ppc64el"])
def test_other_cpus_of_64_bits_have_the_same_types(cpu: str) -> None:
    program = TESTBINS / "cross" / cpu / "dwarf/gccO0v4/values"
    if not program.is_file():
        pytest.skip(f"no cross compiler for {cpu}: make -C testbins cross-{cpu}")
    here = built("gccO0v4", "values")
    assert functions(program) == functions(here)
    with ElfFile(here) as elf, DebugInfo.of(elf) as info:
        listed = {
            f"struct {name}" for kind, name, _ in info._index.types() if kind is TypeKind.STRUCT
        }
        found = {
            name for name in listed if isinstance(info.btf.type(info.type_id(name)), Composite)
        }
    assert len(found) > 10
    assert layouts(program, tuple(found)) == layouts(here, tuple(found))


def test_a_split_half_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = compiled(tmp_path, "gcc", "-gdwarf-5", "-gsplit-dwarf")
    opened: list[str] = []
    made = split_dwarf.DebugSections

    def counted(elf: ElfFile) -> sections.DebugSections:
        opened.append(elf.path)
        return made(elf)

    monkeypatch.setattr(split_dwarf, "DebugSections", counted)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with ElfFile(program) as elf, DebugInfo.of(elf) as info:
        for _, address in list(info.functions()):
            assert info.function(address).parameters is not None
        assert info.btf.size_of(info.type_id("struct node")) > 0
    assert len(opened) == 1
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


# ------------------------------------------------------------ functions in functions

NESTED_C = r"""
#include <stdio.h>
struct point { int x; long y; };
__attribute__((noinline)) int outer(int a, struct point *p)
{
    __attribute__((noinline)) int inner(int b, struct point *q) { return b + q->x + a; }
    {
        struct point here = {a, 2};
        __attribute__((noinline)) int deep(struct point *z) { return z->x * a; }
        a += deep(&here);
    }
    return inner(a, p) + 1;
}
int main(int c, char **v) { struct point p = {c, 3}; printf("%d %s\n", outer(c, &p), v[0]); }
"""
NESTED_CXX = r"""
#include <cstdio>
struct point { int x; long y; };
template <class F> __attribute__((noinline)) int call(F f, point *p) { return f(p, 3); }
__attribute__((noinline)) int outer(int a, point *p)
{
    struct local {
        int k;
        __attribute__((noinline)) int method(point *q, int r) const { return q->x + r + k; }
    };
    auto add = [&](point *z, int n) __attribute__((noinline)) { return z->x * n + a; };
    local one{a};
    return call(add, p) + one.method(p, 2);
}
int main(int c, char **v) { point p = {c, 3}; std::printf("%d %s\n", outer(c, &p), v[0]); }
"""


def by_symbol(program: Path, word: str) -> tuple[str, int]:
    need_program("nm", "binutils")
    text = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in text.splitlines()]
    row = next(row for row in rows if len(row) == 3 and row[1] in "tTwW" and word in row[2])
    return row[2], int(row[0], 16)


@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_functions_within_functions_of_c(tmp_path: Path, level: str) -> None:
    program = compiled(tmp_path, "gcc", level, source=NESTED_C)
    with ElfFile(program) as elf, DebugInfo.of(elf) as info:
        for word, declaration, line in (
            ("inner.", "int inner(int b, struct point *q)", 6),
            ("deep.", "int deep(struct point *z)", 9),
        ):
            symbol, address = by_symbol(program, word)
            found = info.function(address, symbol)
            assert (found.declaration, found.line) == (declaration, line)
            assert info.function(address + 1) is None


@pytest.mark.parametrize("options", [("-O0",), ("-O2",), ("-gsplit-dwarf", "-gdwarf-5")], ids=str)
@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_lambdas_and_methods_of_local_classes(
    tmp_path: Path, compiler: str, options: tuple[str, ...]
) -> None:
    program = compiled(tmp_path, compiler, *options, source=NESTED_CXX)
    with ElfFile(program) as elf, DebugInfo.of(elf) as info:
        symbol, address = by_symbol(program, "5local6method")
        found = info.function(address, symbol)
        assert found.declaration == "int outer()::local::method(point *q, int r) const"
        assert [one.name for one in found.parameters] == ["this", "q", "r"]
        assert info.type_id("struct point") in [
            info.btf.type(one.type_id).type_id for one in found.parameters[1:2]
        ]
        symbol, address = by_symbol(program, "clES0_i")  # operator() of a lambda
        names = [one.name for one in info.function(address, symbol).parameters]
        assert names[-2:] == ["z", "n"]
