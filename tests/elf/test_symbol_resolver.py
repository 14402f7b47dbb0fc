"""Addresses of symbols: from the file, from its debug file, from the global offset table."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from kept_builds import compile_in
from skips import need_program

from usdt.elf.file import ElfFile
from usdt.elf.symbol_resolver import SymbolResolver

if TYPE_CHECKING:
    from pathlib import Path

ONE = """
static int ti = 1; int shared = 2; extern int *other(void);
static __thread int tl = 3;
int *one(void) { static int counter = 7; tl += shared; return counter++ ? &ti : &shared; }
int *three(void) { return &tl; }
"""
TWO = "static int ti = 5; int only = 6; int *other(void) { return ti++ ? &ti : &only; }\n"
MAIN = "int *one(void); int *other(void); int main(void) { return *one() + *other() == 99; }\n"

LAYOUTS = {
    "x86-64 PIE": ["-fPIE", "-pie"],
    "x86-64 PIE, bound at start": ["-fPIE", "-pie", "-Wl,-z,now"],
    "x86-64, bound when called": ["-fPIE", "-pie", "-Wl,-z,lazy"],
    "x86-64 no PIE": ["-fno-pie", "-no-pie"],
    "i386 PIE": ["-m32", "-fPIE", "-pie"],
    "i386 PIE, bound at start": ["-m32", "-fPIE", "-pie", "-Wl,-z,now"],
    "i386 no PIE": ["-m32", "-fno-pie", "-no-pie"],
    "i386, bound when called": ["-m32", "-fPIE", "-pie", "-Wl,-z,lazy"],
}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("symbols")
    for name, text in (("one", ONE), ("two", TWO), ("main", MAIN)):
        (folder / f"{name}.c").write_text(text)
    return folder


def run(*command: str | Path) -> str:
    return subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=True
    ).stdout


def build(sources: Path, output: Path, *options: str) -> Path:
    units = ["one.c", "two.c"] + ([] if "-shared" in options else ["main.c"])
    compiler = need_program("gcc")
    command = [compiler, "-O0", "-Wl,--build-id", *options, *units, "-o", str(output)]
    done = compile_in(sources, command, check=False)
    if done.returncode and "-m32" in options:
        pytest.skip("needs a compiler of 32-bit programs: apt-get install gcc-multilib")
    assert done.returncode == 0, done.stderr
    return output


@pytest.fixture
def program(sources: Path, tmp_path: Path) -> Path:
    return build(sources, tmp_path / "program")


@pytest.fixture
def stripped(program: Path) -> Path:
    """The program stripped, and its symbols apart in ``symbols.debug`` beside it."""
    run(need_program("objcopy", "binutils"), "--only-keep-debug", program, debug_of(program))
    run("strip", program)
    return program


def debug_of(program: Path) -> Path:
    return program.with_name("symbols.debug")


def nm(path: Path) -> dict[str, set[int]]:
    """What nm says: addresses by name."""
    found: dict[str, set[int]] = {}
    for line in run(need_program("nm", "binutils"), path).splitlines():
        address, _, name = line.rpartition(" ")
        if address.strip()[:1].isalnum() and len(address.split()) == 2:
            found.setdefault(name, set()).add(int(address.split()[0], 16))
    return found


def address(path: Path, name: str, **options: str) -> int | str:
    with ElfFile(path) as elf, SymbolResolver(elf, **options) as symbols:
        return symbols.address(name)


def test_symbols_of_the_file_are_where_nm_has_them(program: Path) -> None:
    listed = nm(program)
    statics = [name for name in listed if name.startswith("counter.")]
    assert len(statics) == 1
    for name in ["one", "shared", "main", *statics]:
        assert {address(program, name)} == listed[name]


def test_a_name_with_two_addresses_is_ambiguous(program: Path) -> None:
    assert len(nm(program)["ti"]) == 2
    assert address(program, "ti") == "ambiguous: 2 symbols named ti"


def test_a_name_nobody_has_says_where_it_was_sought(program: Path) -> None:
    assert address(program, "nobody") == (f"symbol nobody is not in the symbol tables of {program}")


def test_a_thread_local_symbol_has_no_address(program: Path) -> None:
    assert isinstance(address(program, "tl"), str)


def test_a_label_of_the_assembler_says_that_it_is_one(program: Path) -> None:
    assert address(program, ".LC0") == (
        ".LC0 is a local label of the assembler, which symbol tables do not contain"
    )


def test_a_stripped_file_says_what_to_install(stripped: Path, tmp_path: Path) -> None:
    assert address(stripped, "shared", debug_root=str(tmp_path / "none")) == (
        f"symbol shared is not in the symbol tables of {stripped} (stripped);"
        " install its debug symbols"
    )


def by_build_id(program: Path, root: Path) -> Path:
    with ElfFile(program) as elf:
        build_id = elf.build_id
    assert build_id
    return root / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug"


def by_path(program: Path, root: Path) -> Path:
    return root / f"{str(program.resolve()).lstrip('/')}.debug"


@pytest.mark.parametrize("place", [by_build_id, by_path])
def test_a_debug_file_has_the_symbols_of_a_stripped_one(
    stripped: Path, tmp_path: Path, place: object
) -> None:
    root = tmp_path / "debug"
    target = by_build_id(stripped, root) if place is by_build_id else by_path(stripped, root)
    target.parent.mkdir(parents=True)
    target.write_bytes(debug_of(stripped).read_bytes())
    listed = nm(target)
    assert {address(stripped, "shared", debug_root=str(root))} == listed["shared"]
    assert address(stripped, "ti", debug_root=str(root)) == "ambiguous: 2 symbols named ti"
    assert address(stripped, "nobody", debug_root=str(root)) == (
        f"symbol nobody is not in the symbol tables of {stripped}"
    )


def test_a_debug_file_of_another_build_is_not_believed(
    sources: Path, stripped: Path, tmp_path: Path
) -> None:
    root = tmp_path / "debug"
    target = by_path(stripped, root)
    target.parent.mkdir(parents=True)
    build(sources, target, "-DOTHER", "-Wl,-Ttext-segment=0x800000", "-no-pie")
    assert "shared" in nm(target)
    assert "(stripped)" in str(address(stripped, "shared", debug_root=str(root)))


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\x7fELF", id="cut short"),
        pytest.param(b"no ELF at all" * 10, id="something else"),
    ],
)
def test_a_damaged_debug_file_is_as_good_as_none(
    stripped: Path, tmp_path: Path, damage: bytes
) -> None:
    root = tmp_path / "debug"
    target = by_build_id(stripped, root)
    target.parent.mkdir(parents=True)
    target.write_bytes(damage)
    assert "(stripped)" in str(address(stripped, "shared", debug_root=str(root)))


def test_exported_symbols_of_a_stripped_library_are_found(sources: Path, tmp_path: Path) -> None:
    library = build(sources, tmp_path / "lib.so", "-shared", "-fPIC")
    listed = nm(library)
    run("strip", library)
    assert {address(library, "shared")} == listed["shared"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_global_offset_table_is_found_without_its_symbol(
    sources: Path, tmp_path: Path, layout: str
) -> None:
    program = build(sources, tmp_path / "program", *LAYOUTS[layout])
    listed = nm(program)["_GLOBAL_OFFSET_TABLE_"]
    assert {address(program, "_GLOBAL_OFFSET_TABLE_")} == listed
    run("strip", program)
    assert {address(program, "_GLOBAL_OFFSET_TABLE_")} == listed


@pytest.mark.parametrize("options", [[], ["-m32"]], ids=["x86-64", "i386"])
def test_slots_of_the_global_offset_table_are_where_readelf_has_them(
    sources: Path, tmp_path: Path, options: list[str]
) -> None:
    library = build(sources, tmp_path / "lib.so", "-shared", "-fPIC", *options)
    rows = [line.split() for line in run("readelf", "-rW", library).splitlines()]
    slots = {row[4]: int(row[0], 16) for row in rows if len(row) > 4 and "GLOB_DAT" in row[2]}
    assert {"shared", "only"} <= slots.keys()
    for name in ("shared", "only"):
        assert address(library, f"{name}@GOT") == slots[name]
    assert address(library, "ti@GOT") == (
        f"symbol ti has no slot in the global offset table of {library}"
    )


@pytest.mark.parametrize("field", ["sh_offset", "sh_link"])
def test_a_damaged_symbol_table_is_a_reason_and_no_error(program: Path, field: str) -> None:
    with ElfFile(program) as elf:
        index = next(i for i, one in enumerate(elf.sections) if one.name == ".symtab")
    data = bytearray(program.read_bytes())
    header = int.from_bytes(data[0x28:0x30], "little") + 64 * index
    place, size = {"sh_offset": (header + 0x18, 8), "sh_link": (header + 0x28, 4)}[field]
    data[place : place + size] = b"\xff" * (size - 1) + b"\x0f"
    program.write_bytes(data)
    reason = address(program, "shared")
    assert isinstance(reason, str)
    assert str(program) in reason


@pytest.mark.parametrize("field", ["sh_offset", "sh_size", "sh_link"])
def test_damaged_relocations_are_a_reason_and_no_error(
    sources: Path, tmp_path: Path, field: str
) -> None:
    library = build(sources, tmp_path / "lib.so", "-shared", "-fPIC")
    with ElfFile(library) as elf:
        index = next(i for i, one in enumerate(elf.sections) if one.name == ".rela.dyn")
    data = bytearray(library.read_bytes())
    header = int.from_bytes(data[0x28:0x30], "little") + 64 * index
    where = {"sh_offset": (0x18, 8), "sh_size": (0x20, 8), "sh_link": (0x28, 4)}[field]
    data[header + where[0] : header + sum(where)] = b"\xff" * (where[1] - 1) + b"\x0f"
    library.write_bytes(data)
    assert isinstance(address(library, "shared@GOT"), str)


def test_closing_twice_does_no_harm(stripped: Path) -> None:
    with ElfFile(stripped) as elf:
        symbols = SymbolResolver(elf)
        symbols.address("shared")
        symbols.close()
        symbols.close()
