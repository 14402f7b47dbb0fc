"""Types by name without the index: the same as the index has, or the index is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from debug_programs import CXX_SOURCE, compiled, layout
from kept_builds import compile_in
from skips import need_program

from usdt.dwarf.index import index
from usdt.dwarf.index.abbrev_skim import TYPE, AbbrevDecl, AbbrevSection
from usdt.dwarf.index.type_search import NotSearchable, TypeSearch
from usdt.dwarf.info import DebugInfo
from usdt.dwarf.units import answers
from usdt.dwarf.units.constants import TypeKind
from usdt.dwarf.units.errors import DwarfError
from usdt.dwarf.units.forms import UnitEncoding, read_uleb128
from usdt.elf.file import ElfFile

if TYPE_CHECKING:
    from pathlib import Path

BUILDS = [
    pytest.param("gcc", ("-gdwarf-5",), id="gcc, DWARF 5"),
    pytest.param("gcc", ("-gdwarf-4", "-gz"), id="gcc, DWARF 4, compressed"),
    pytest.param("g++", ("-gdwarf-5",), id="g++, DWARF 5"),
    pytest.param("clang", ("-gdwarf-4",), id="clang, DWARF 4"),
]


@pytest.fixture(autouse=True)
def cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No index of an earlier run."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize(("compiler", "options"), BUILDS)
def test_it_finds_what_the_index_has(
    tmp_path: Path, compiler: str, options: tuple[str, ...]
) -> None:
    source = {"source": CXX_SOURCE} if compiler == "g++" else {}
    program = compiled(tmp_path, compiler, *options, **source)
    with ElfFile(program) as elf, DebugInfo.of(elf) as info:
        search = TypeSearch(info._files)
        listed = [(kind, name, position) for kind, name, position in info._index.types()]
        found = [(kind, name, search.find(kind, name)) for kind, name, _ in listed]
        assert len(listed) > 5
        assert found == listed
        assert all(search.find(kind, "absent_everywhere") is None for kind in TypeKind)


@pytest.mark.parametrize(("compiler", "options"), BUILDS)
def test_declarations_of_types_are_those_of_whole_tables(
    tmp_path: Path, compiler: str, options: tuple[str, ...]
) -> None:
    source = {"source": CXX_SOURCE} if compiler == "g++" else {}
    program = compiled(tmp_path, compiler, *options, **source)
    with ElfFile(program) as elf, DebugInfo.of(elf) as info:
        main = info._files.main
        section = AbbrevSection(main.abbreviation_bytes, "program")
        for header in main.headers:
            table = section.table(header.abbreviations, header.encoding)
            whole = [*table.short.values(), *table.long.values()]
            wanted = {one for one in whole if isinstance(one, AbbrevDecl) and one.interest == TYPE}
            found = list(section.types(header.abbreviations, header.encoding))
            assert {decl for _, decl in found} == wanted != set()
            assert all(table[read_uleb128(code, 0)[0]] is decl for code, decl in found)


#: A structure with children, a name and a size; a variable with a name.
STRUCTURE, VARIABLE = b"\x13\1\x03\x0e\x0b\x0b\0\0", b"\x34\0\x03\x0e\0\0"


@pytest.mark.parametrize(
    ("data", "codes"),
    [
        pytest.param(b"\1" + STRUCTURE + b"\2" + VARIABLE + b"\0", [b"\1"], id="a type first"),
        pytest.param(b"\x81\1" + STRUCTURE + b"\0", [b"\x81\1"], id="a code of two bytes"),
        pytest.param(b"\2" + VARIABLE + b"\0", [], id="no type"),
        pytest.param(b"\0" + STRUCTURE, [], id="empty"),
        pytest.param(b"\1" + STRUCTURE, None, id="without an end"),
        pytest.param(b"\1" + STRUCTURE[:-3] + b"\0", None, id="cut within a type"),
        pytest.param(b"\2" + VARIABLE[:-1], None, id="cut within a variable"),
        pytest.param(b"", None, id="outside the section"),
    ],
)
def test_declarations_of_types_in_a_table(data: bytes, codes: list[bytes] | None) -> None:
    types = AbbrevSection(data, "program").types(0, UnitEncoding("little", 8, 4, 5))
    if codes is None:
        with pytest.raises(DwarfError, match="damaged table of abbreviations at 0x0"):
            list(types)
    else:
        assert [code for code, _ in types] == codes


def test_a_type_needs_no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = compiled(tmp_path, "gcc")
    monkeypatch.setattr(index, "build", None)
    with ElfFile(program) as elf, DebugInfo.of(elf) as info:
        assert info.btf.size_of(info.type_id("struct point")) == 8


def test_answers_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = compiled(tmp_path, "gcc")
    monkeypatch.setattr(answers, "_MIN_COST", 0)
    found = []
    for searches in (True, False):
        with ElfFile(program) as elf, DebugInfo.of(elf) as info:
            found.append(layout(info, "struct point"))
        if searches:
            monkeypatch.setattr(TypeSearch, "_search", None)
    assert found[0] == found[1]


SHARED_ENDS = """
struct waypoint { int x; };
struct point { int x, y; };
struct viewpoint { int x, y, z; };
struct viewpoint a; struct point b; struct waypoint c;
int main(void) { return a.x + b.x + c.x; }
"""


def test_names_that_are_the_ends_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = compiled(tmp_path, "gcc", source=SHARED_ENDS)
    monkeypatch.setattr(index, "build", None)
    with ElfFile(program) as elf, DebugInfo.of(elf) as info:
        sizes = [
            info.btf.size_of(info.type_id(f"struct {one}point")) for one in ("way", "", "view")
        ]
    assert sizes == [4, 8, 12]


OTHER_UNIT = "struct hidden { long a, b, c; }; struct hidden hidden_one;"


def test_a_declared_type_is_found_in_another_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_program("gcc")
    (tmp_path / "one.c").write_text(
        "struct hidden; struct hidden *known; int main(void) { return known != 0; }"
    )
    (tmp_path / "two.c").write_text(OTHER_UNIT)
    command = ["gcc", "-g", "one.c", "two.c", "-o", "program"]
    compile_in(tmp_path, command)
    monkeypatch.setattr(index, "build", None)
    with ElfFile(tmp_path / "program") as elf, DebugInfo.of(elf) as info:
        assert info.btf.size_of(info.type_id("struct hidden")) == 24


NESTED = """
struct Outer { enum class Kind : short { One }; struct Inner { long a, b; }; class Impl; Impl *p; };
union Mixed { struct Part { char name[6]; }; Part part; };
"""
NESTED_USE = """
#include "nested.h"
Outer outer; Outer::Inner inner; Outer::Kind kind; Mixed mixed;
int size(); int main() { return size(); }
"""
NESTED_DEFINED = """
#include "nested.h"
class Outer::Impl { char data[50]; }; Outer::Impl impl; int size() { return sizeof impl; }
"""


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_types_inside_classes_need_no_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str
) -> None:
    need_program(compiler)
    (tmp_path / "nested.h").write_text(NESTED)
    (tmp_path / "one.cpp").write_text(NESTED_USE)
    (tmp_path / "two.cpp").write_text(NESTED_DEFINED)
    command = [compiler, "-g", "-gdwarf-4", "one.cpp", "two.cpp", "-o", "program"]
    compile_in(tmp_path, command)
    monkeypatch.setattr(index, "build", None)
    names = ("Outer::Kind", "Outer::Inner", "struct Outer::Inner", "Mixed::Part", "Outer::Impl")
    with ElfFile(tmp_path / "program") as elf, DebugInfo.of(elf) as info:
        assert [info.btf.size_of(info.type_id(name)) for name in names] == [2, 16, 16, 6, 50]


def test_the_unit_of_a_class_has_the_types_inside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_program("g++")
    (tmp_path / "nested.h").write_text(NESTED)
    for number in range(4):
        text = NESTED_USE if not number else f'#include "nested.h"\nOuter::Inner more{number};'
        (tmp_path / f"{number}.cpp").write_text(text)
    (tmp_path / "two.cpp").write_text(NESTED_DEFINED)
    command = ["g++", "-g", *(f"{one}.cpp" for one in range(4)), "two.cpp", "-o", "program"]
    compile_in(tmp_path, command)
    monkeypatch.setattr(index, "build", None)
    with ElfFile(tmp_path / "program") as elf, DebugInfo.of(elf) as info:
        search = TypeSearch(info._files)
        assert search.find(TypeKind.STRUCT, "Outer::Inner").unit == 0
        assert list(search._units) == [0]
        assert search.find(TypeKind.UNION, "Outer::Inner") is None


def test_split_debug_information_is_left_to_the_index(tmp_path: Path) -> None:
    program = compiled(tmp_path, "gcc", "-gdwarf-5", "-gsplit-dwarf")
    with ElfFile(program) as elf, DebugInfo.of(elf) as info:
        with pytest.raises(NotSearchable):
            TypeSearch(info._files).find(TypeKind.STRUCT, "point")
        assert info.btf.size_of(info.type_id("struct point")) == 8
