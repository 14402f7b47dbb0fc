"""Tables of names by linkers and gdb: types and functions are found without index and search."""

from __future__ import annotations

import random
import struct
import subprocess
from typing import TYPE_CHECKING

import pytest
from kept_builds import compile_in
from skips import need_program

from usdt.dwarf.index import index
from usdt.dwarf.index.debug_names import DebugNames
from usdt.dwarf.index.gdb_index import GdbIndex
from usdt.dwarf.index.name_tables import NameTables
from usdt.dwarf.index.type_search import TypeSearch
from usdt.dwarf.info import DebugInfo
from usdt.dwarf.units.errors import MalformedDwarf
from usdt.dwarf.units.sections import DebugSections
from usdt.elf.file import ElfFile
from usdt.elf.symbol_table import symbol_addresses

if TYPE_CHECKING:
    from pathlib import Path

FIRST = """
struct Point { int x, y; };
int add(struct Point *point) { return point->x + point->y; }
int two(void);
int main(void) { struct Point one = {1, 2}; return add(&one) + two(); }
"""
SECOND = """
namespace shop {
class Thing { public: long id; char name[24]; enum class Kind : short { Book, Toy }; Kind kind; };
union Price { int whole; double exact; };
enum Colour { RED = 3 };
typedef Thing *Handle;
}
int sell(shop::Thing thing, shop::Price price, shop::Colour colour, shop::Handle handle)
{
    return thing.id + price.whole + colour + (handle != 0);
}
extern "C" int two(void) { return sell({}, {}, shop::RED, nullptr); }
"""
SIZES = {"struct Point": 8, "shop::Thing": 40, "shop::Price": 8, "shop::Colour": 4}

#: gdb writes "long" and "short"; clang leaves out what no source has.
UNLISTED = {"long int", "short int", "__ARRAY_SIZE_TYPE__"}

GOLD = ("-fuse-ld=gold", "-Wl,--gdb-index")
LLD = ("-fuse-ld=lld", "-Wl,--gdb-index")  # it takes the names from -ggnu-pubnames alone
#: Compilers, options, and the program that adds a table, if the linker did not.
BUILDS = {
    "gold": ("gcc", "g++", GOLD, ()),
    "gold, pubnames": ("gcc", "g++", ("-ggnu-pubnames", *GOLD), ()),
    "gold, clang": ("clang", "clang++", ("-gdwarf-4", "-ggnu-pubnames", *GOLD), ()),
    "lld, pubnames": ("gcc", "g++", ("-ggnu-pubnames", *LLD), ()),
    "lld, clang": ("clang", "clang++", ("-gdwarf-4", "-ggnu-pubnames", *LLD), ()),
    "gdb": ("gcc", "g++", (), ("gdb-add-index",)),
    "gdb, DWARF 4": ("gcc", "g++", ("-gdwarf-4",), ("gdb-add-index",)),
    "gdb, clang": ("clang", "clang++", ("-gdwarf-5",), ("gdb-add-index",)),
    "gdb, split": ("gcc", "g++", ("-gsplit-dwarf",), ("gdb-add-index",)),
    "gdb, debug_names": ("gcc", "g++", (), ("gdb-add-index", "-dwarf-5")),
    "clang, debug_names": ("clang", "clang++", ("-gdwarf-5", "-gpubnames"), ()),
    "clang, debug_names, 64-bit": (
        *("clang", "clang++"),
        ("-gdwarf-5", "-gdwarf64", "-gpubnames", "-mcmodel=medium"),
        (),
    ),
    "clang, debug_names, compressed": ("clang", "clang++", ("-gdwarf-5", "-gpubnames", "-gz"), ()),
}
WITHOUT_NAMES = ("gcc", "g++", LLD, ())  # the index has units and addresses


@pytest.fixture(autouse=True)
def cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No index of an earlier run."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def built(folder: Path, build: str) -> Path:
    """A program of two units, in C and in C++, with a table of names."""
    compiler, cxx, options, adder = BUILDS.get(build, WITHOUT_NAMES)
    folder.mkdir(exist_ok=True)
    (folder / "first.c").write_text(FIRST)
    (folder / "second.cpp").write_text(SECOND)
    need_program(compiler)
    need_program(cxx)
    if "gold" in build:
        need_program("ld.gold", "binutils")
    if "lld" in build:
        need_program("ld.lld", "lld")
    link = [one for one in options if one.startswith(("-fuse", "-Wl"))]
    plain = ["-g", *(one for one in options if one not in link)]
    program = folder / "program"
    for command in (
        [compiler, *plain, "-c", "first.c"],
        [cxx, *plain, "-c", "second.cpp"],
        [cxx, *link, "first.o", "second.o", "-o", program],
    ):
        compile_in(folder, command)
    if adder:
        need_program("gdb")
        need_program(adder[0], "gdb")
        subprocess.run([*adder, program], cwd=folder, check=True, capture_output=True, timeout=120)
    return program


@pytest.fixture(scope="module", params=BUILDS)
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program of each kind, for tests that only read it."""
    return built(tmp_path_factory.mktemp("names"), request.param)


def test_types_are_found_without_index_and_search(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "build", None)
    monkeypatch.setattr(TypeSearch, "_patterns", None)
    with ElfFile(program) as elf, DebugInfo.of(elf) as info:
        assert {name: info.btf.size_of(info.type_id(name)) for name in SIZES} == SIZES


def test_they_are_what_the_index_has(program: Path) -> None:
    with ElfFile(program) as elf, DebugInfo.of(elf) as info:
        listed = [one for one in info._index.types() if "unsigned" not in one[1]]
        tables = NameTables(info._files.main)
        starts = [one.at for one in info._files.main.headers]
        missed = [
            name for _, name, position in listed if starts[position.unit] not in tables.units(name)
        ]
        assert len(listed) >= len(SIZES)
        assert set(missed) <= UNLISTED
        assert tables.units("Nothing") == tables.units("") == tables.units("Ünit") == []


@pytest.mark.parametrize("build", ["gold", "lld, pubnames", "gdb", "gdb, clang"])
def test_functions_are_found_by_the_ranges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build: str
) -> None:
    program = built(tmp_path, build)
    need_program("objcopy", "binutils")
    subprocess.run(["objcopy", "-R", ".debug_aranges", program], check=True, timeout=60)
    monkeypatch.setattr(index, "build", None)
    with ElfFile(program) as elf, DebugInfo.of(elf) as info:
        (address,) = symbol_addresses(elf, "add")
        found = info.function(address, "add")
        assert [one.name for one in found.parameters] == ["point"]


def test_types_are_found_beside_an_index_without_names(tmp_path: Path) -> None:
    with ElfFile(built(tmp_path, "lld")) as elf, DebugInfo.of(elf) as info:
        assert not list(GdbIndex(DebugSections(elf)[".gdb_index"]).types("shop::Thing"))
        assert {name: info.btf.size_of(info.type_id(name)) for name in SIZES} == SIZES


def test_an_older_index_is_not_read() -> None:
    with pytest.raises(MalformedDwarf, match="version 6; 7 to 9 are read"):
        GdbIndex(memoryview(struct.pack("<7I", 6, *[28] * 6)))


def test_version_9_has_one_more_table(tmp_path: Path) -> None:
    with ElfFile(built(tmp_path, "gdb")) as elf:
        data = bytes(DebugSections(elf)[".gdb_index"][:])
    version, *places = struct.unpack_from("<6I", data)
    assert version in (7, 8)
    shortcuts = places[-1]  # an empty table, before the strings
    newer = struct.pack("<7I", 9, *(one + 4 for one in (*places[:-1], shortcuts, shortcuts)))
    wanted = list(GdbIndex(memoryview(data)).types("shop::Thing"))
    assert list(GdbIndex(memoryview(newer + data[24:])).types("shop::Thing")) == wanted != []


@pytest.mark.parametrize("build", ["gdb", "gold", "gdb, debug_names", "clang, debug_names"])
def test_damaged_tables_are_as_if_absent(tmp_path: Path, build: str) -> None:
    program = built(tmp_path, build)
    name = ".debug_names" if "names" in build else ".gdb_index"
    with ElfFile(program) as elf:
        section = elf.section(name)
    whole = program.read_bytes()
    chance = random.Random(build)
    for number in range(24):
        data = bytearray(whole)
        head = 64 if number % 2 else section.size
        for _ in range(1 + number % 5):
            at = section.offset + chance.randrange(min(head, section.size))
            data[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
        program.write_bytes(data)
        with ElfFile(program) as elf, DebugInfo.of(elf) as info:
            assert info.btf.size_of(info.type_id("shop::Thing")) == SIZES["shop::Thing"]
            assert info.btf.size_of(info.type_id("struct Point")) == SIZES["struct Point"]


def test_tables_that_lead_in_circles_end() -> None:
    full = struct.pack("<7I", 7, *[24] * 4, 24 + 8 * 4096, 0)[:24]
    slots = struct.pack("<II", 4, 0) * 4096
    assert list(GdbIndex(memoryview(full + slots + bytes(64))).types("absent")) == []
    # One bucket with a thousand names of the same hash, none of which is the one that is wanted.
    count, number = 1000, 5381 * 33 + ord("x") & 0xFFFFFFFF
    body = struct.pack("<HHIIIIIII", 5, 0, 1, 0, 0, 1, count, 1, 0)
    body += struct.pack("<II", 0, 1) + struct.pack("<I", number) * count
    body += bytes(8 * count) + b"\0"
    table = memoryview(struct.pack("<I", len(body)) + body)
    assert list(DebugNames(table, memoryview(b"other\0"), "little").types("x")) == []
