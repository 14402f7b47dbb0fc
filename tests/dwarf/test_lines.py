"""Source lines and inlined functions: equal to addr2line's, of every kind of debug information."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from typing import TYPE_CHECKING

import cross
import debian
import pytest
from line_programs import CXX, C, chains, code_addresses, differences, made
from skips import need_program

from usdt.dwarf.lines.source_lines import SourceLines
from usdt.dwarf.units.ranges import RangeMap
from usdt.elf.file import ElfFile
from usdt.symbolize import FileSymbols

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

KINDS = [
    pytest.param("gcc", C, ("-O2", "-g", "-gdwarf-5"), id="C by gcc, DWARF 5"),
    pytest.param("gcc", C, ("-O2", "-g", "-gdwarf-4"), id="C by gcc, DWARF 4"),
    pytest.param("gcc", C, ("-O2", "-g", "-gdwarf-3", "-gstrict-dwarf"), id="C by gcc, DWARF 3"),
    pytest.param("gcc", C, ("-O0", "-g"), id="C by gcc without optimisation"),
    pytest.param("gcc", C, ("-O2", "-g", "-gz=zlib"), id="compressed sections"),
    pytest.param("gcc", C, ("-O2", "-g", "-flto"), id="C by gcc, optimised when linked"),
    pytest.param("gcc", C, ("-O2", "-g", "-ffunction-sections", "-Wl,--gc-sections"), id="gaps"),
    pytest.param("clang", C, ("-O2", "-g", "-gdwarf-5"), id="C by clang, DWARF 5"),
    pytest.param("clang", C, ("-O2", "-g", "-gdwarf-4"), id="C by clang, DWARF 4"),
    pytest.param("clang", C, ("-O2", "-gline-tables-only"), id="C by clang, lines only"),
    pytest.param("g++", CXX, ("-O2", "-g", "-gdwarf-5"), id="C++ by gcc, DWARF 5"),
    pytest.param("clang++", CXX, ("-O2", "-g", "-gdwarf-5"), id="C++ by clang, DWARF 5"),
]


@pytest.mark.parametrize(("compiler", "source", "options"), KINDS)
def test_every_address_of_a_program_is_as_addr2line_has_it(
    tmp_path: Path, compiler: str, source: str, options: Sequence[str]
) -> None:
    path = made(tmp_path, source, compiler, *options)
    with ElfFile(path) as elf:
        lines = SourceLines(elf)
        addresses = code_addresses(path, 400)
        # binutils 2.40 do not read clang's lists of ranges (DW_FORM_rnglistx).
        program = "llvm-addr2line" if "clang" in compiler else "addr2line"
        assert not differences(path, lines, addresses, program)
        found = [lines.at(address) for address in addresses]
        assert sum(map(bool, found)) > 100
        assert "-O0" in options or any(len(places) > 1 for places in found)
        assert not lines.notices
        lines.close()


@pytest.mark.parametrize("machine", ["s390x", "arm", "mips64el", "ppc64le", "aarch64", "riscv64"])
def test_files_of_other_machines(tmp_path: Path, machine: str) -> None:
    command, environment = cross._compiler(machine)
    source = tmp_path / "library.c"
    source.write_text(C)
    path = tmp_path / "library.so"
    flags = ["-O2", "-g", "-shared", "-fPIC", "-nostdlib", "-w"]
    subprocess.run(
        [*command, *flags, "-o", str(path), str(source)], check=True, env=environment, timeout=60
    )
    addr2line = str(command[0]).removesuffix("gcc") + "addr2line"
    assert shutil.which(addr2line), addr2line
    with ElfFile(path) as elf:
        lines = SourceLines(elf)
        addresses = code_addresses(path, 300)
        assert not differences(path, lines, addresses, addr2line, environment)
        assert any(len(lines.at(address)) > 1 for address in addresses)
        lines.close()


def _debug_files() -> list[Path]:
    folder = debian.files("python3.11-dbg") / "usr"
    found = [folder / "bin/python3.11d", *(folder / "lib/debug/.build-id").glob("*/*.debug")]
    libc = debian.files("libc6-dbg") / "usr/lib/debug/.build-id"
    return [*found[:2], max(libc.glob("*/*.debug"), key=lambda path: path.stat().st_size)]


def test_debug_files_of_a_distribution() -> None:
    for path in _debug_files():
        with ElfFile(path) as elf:
            lines = SourceLines(elf)
            assert not differences(path, lines, code_addresses(path, 500)), path
            assert not lines.notices
            lines.close()


def test_a_stack_is_fast_once_it_is_known_and_soon_the_first_time() -> None:
    path = max(_debug_files(), key=lambda one: one.stat().st_size)
    addresses = code_addresses(path, 20)
    with ElfFile(path) as elf:
        lines = SourceLines(elf)
        started = time.process_time()
        first = [lines.at(address) for address in addresses]
        middle = time.process_time()
        for _ in range(50):
            assert [lines.at(address) for address in addresses] == first
        ended = time.process_time()
        lines.close()
    assert middle - started < 5
    assert (ended - middle) / (50 * len(addresses)) < 500e-6


# ------------------------------------------------------------ debug information elsewhere


@pytest.mark.parametrize("version", ["-gdwarf-4", "-gdwarf-5"])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("packaged", [False, True], ids=["dwo", "dwp"])
def test_split_debug_information(
    tmp_path: Path, compiler: str, version: str, packaged: bool
) -> None:
    plain = made(tmp_path / "plain", C, compiler, "-O2", "-g", version)
    source = plain.parent / "program.c"
    folder = tmp_path / "split"
    folder.mkdir()
    options = ["-O2", "-g", version, "-gsplit-dwarf", "-w"]
    words = [need_program(compiler), *options, "-c", "-o", "program.o", str(source)]
    subprocess.run(words, check=True, cwd=folder, timeout=60)
    path = folder / "program"
    subprocess.run([compiler, "-o", str(path), "program.o"], check=True, cwd=folder, timeout=60)
    if packaged:
        tool = need_program("llvm-dwp", "llvm") if version == "-gdwarf-5" else need_program("dwp")
        subprocess.run([tool, "-e", str(path), "-o", f"{path}.dwp"], check=True, cwd=folder)
        (folder / "program.dwo").unlink()
    addresses = code_addresses(plain, 400)
    with FileSymbols(str(plain)) as whole, FileSymbols(str(path)) as parts:
        for address in addresses:
            expected = [(one.function, one.line) for one in whole.locations(address)]
            assert [(one.function, one.line) for one in parts.locations(address)] == expected
        assert not parts.take_notices()
    for file in folder.glob("*.dw[op]"):
        file.unlink()
    with FileSymbols(str(path)) as parts:
        assert any(parts.locations(address) for address in addresses)  # lines are left
        notices = parts.take_notices()
        assert len(notices) == 1
        assert "program.dwo was not found" in notices[0]


def test_debug_information_that_dwz_moved_to_a_shared_file(tmp_path: Path) -> None:
    tool = debian.files("dwz") / "usr/bin/dwz"
    plain = made(tmp_path / "plain", CXX, "g++", "-O2", "-g")
    folder = tmp_path / "shared"
    folder.mkdir()
    paths = [folder / name for name in ("one", "two")]
    for path in paths:
        shutil.copy(plain, path)
    words = [str(tool), "-m", "common.debug", "-M", str(folder / "common.debug")]
    subprocess.run([*words, *map(str, paths)], check=True, cwd=folder, timeout=60)
    assert (folder / "common.debug").exists()
    addresses = code_addresses(plain, 500)
    with FileSymbols(str(plain)) as whole, FileSymbols(str(paths[0])) as parts:
        assert [parts.locations(one) for one in addresses] == [
            whole.locations(one) for one in addresses
        ]
        assert not parts.take_notices()


def test_a_separate_debug_file(tmp_path: Path) -> None:
    path = made(tmp_path, C, "gcc", "-O2", "-g", "-Wl,--build-id")
    addresses = code_addresses(path, 200)
    with FileSymbols(str(path)) as symbols:
        expected = [symbols.locations(address) for address in addresses]
        build_id = symbols.build_id or ""
    folder = tmp_path / "root/.build-id" / build_id[:2]
    folder.mkdir(parents=True)
    subprocess.run(
        ["objcopy", "--only-keep-debug", path, folder / f"{build_id[2:]}.debug"], check=True
    )
    # With a symbol table of its own it has no need of the debug file but for lines.
    subprocess.run(["strip", "--strip-debug", path], check=True)
    with FileSymbols(str(path), debug_root=str(tmp_path / "root")) as symbols:
        assert symbols.find(addresses[0])
        assert [symbols.locations(address) for address in addresses] == expected
    with FileSymbols(str(path), debug_root=str(tmp_path / "nowhere")) as symbols:
        assert not any(symbols.locations(address) for address in addresses)


# ------------------------------------------------------------ damaged files


@pytest.mark.parametrize("version", ["-gdwarf-4", "-gdwarf-5"])
def test_damage_is_at_most_one_notice(tmp_path: Path, version: str) -> None:
    path = made(tmp_path, C, "gcc", "-O2", "-g", version)
    data = path.read_bytes()
    with ElfFile(path) as elf:
        places = [(one.offset, one.size) for one in elf.sections if one.name.startswith(".debug_")]
    addresses = code_addresses(path, 20)
    damaged = tmp_path / "damaged"
    rng = random.Random(7)
    notices = 0
    started = time.process_time()
    for _ in range(120):
        changed = bytearray(data)
        for _ in range(rng.choice((1, 3, 20))):
            offset, size = rng.choice(places)
            changed[offset + rng.randrange(size)] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        damaged.write_bytes(changed)
        with FileSymbols(str(damaged)) as symbols:
            for address in addresses:
                symbols.locations(address)
            found = symbols.take_notices()
            assert len(found) <= 1
            notices += len(found)
            assert all("\n" not in one and str(damaged) in one for one in found)
    assert notices > 10
    assert time.process_time() - started < 60


def test_ranges_show_the_innermost() -> None:
    ranges = RangeMap(
        [(0x10, 0x50, 0, 0), (0x20, 0x40, 1, 1), (0x24, 0x28, 2, 2), (0x60, 0x70, 0, 3)]
    )
    found = {at: ranges.find(at) for at in (0xF, 0x10, 0x20, 0x24, 0x28, 0x40, 0x50, 0x6F, 0x70)}
    assert found == {
        0xF: None, 0x10: 0, 0x20: 1, 0x24: 2, 0x28: 1, 0x40: 0, 0x50: None, 0x6F: 3, 0x70: None
    }  # fmt: skip


def test_the_oracle_knows_inlined_functions(tmp_path: Path) -> None:
    path = made(tmp_path, C, "gcc", "-O2", "-g")
    names = {name for chain in chains(path, code_addresses(path, 600)) for name, _ in chain}
    assert {"thrice", "mixed", "outer"} <= names
