"""Types out of debug information, beside what gdb says of the same program."""

from __future__ import annotations

import functools
import re
import struct
import subprocess
from typing import TYPE_CHECKING

import debian
import pytest
from debug_programs import CXX_SOURCE, compiled, gdb, gdb_layouts, layout
from kept_builds import compile_in
from skips import need_program

from usdt.base.errors import BtfError
from usdt.btf.dump.c_dump import definition
from usdt.btf.format import Kind
from usdt.btf.types import Array, Composite, Enum, Forward, FunctionProto, Int, Pointer, Typedef
from usdt.btf.values.read_plan import ReadPlans
from usdt.dwarf.info import DebugInfo
from usdt.elf.file import ElfFile
from usdt.engine.compiler.resolve.btf_types import BtfTypes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Compilers and the forms of debug information that they are asked for.
C_BUILDS = [
    pytest.param(("gcc", ("-gdwarf-5", "-O0")), id="gcc, DWARF 5"),
    pytest.param(("gcc", ("-gdwarf-4", "-O2")), id="gcc, DWARF 4, optimised"),
    pytest.param(("gcc", ("-gdwarf-2", "-gstrict-dwarf")), id="gcc, DWARF 2 and nothing newer"),
    pytest.param(("gcc", ("-gdwarf-3", "-gstrict-dwarf")), id="gcc, DWARF 3"),
    pytest.param(("gcc", ("-gdwarf-4", "-fdebug-types-section")), id="gcc, .debug_types"),
    pytest.param(("gcc", ("-gdwarf-5", "-fdebug-types-section")), id="gcc, type units"),
    pytest.param(("gcc", ("-gdwarf-5", "-gsplit-dwarf")), id="gcc, split"),
    pytest.param(("gcc", ("-gdwarf-4", "-gsplit-dwarf")), id="gcc, split as GNU did"),
    pytest.param(("gcc", ("-gz=zlib",)), id="gcc, compressed"),
    pytest.param(("gcc", ("-gz=zlib-gnu",)), id="gcc, compressed as GNU did"),
    pytest.param(("gcc", ("-gdwarf64",)), id="gcc, offsets of 64 bits"),
    pytest.param(("gcc", ("-m32",)), id="gcc, 32 bits"),
    pytest.param(("gcc", ("-O2", "-flto")), id="gcc, link-time optimisation"),
    pytest.param(("clang", ("-gdwarf-5", "-O0")), id="clang, DWARF 5"),
    pytest.param(("clang", ("-gdwarf-4", "-O2")), id="clang, DWARF 4, optimised"),
    pytest.param(("clang", ("-gdwarf-5", "-gsplit-dwarf")), id="clang, split"),
]


def same_layouts(program: Path, info: DebugInfo, names: tuple[str, ...]) -> None:
    """What we say of some types, and that gdb says the same."""
    witness = gdb_layouts(program, names)
    for name in names:
        size, members = witness[name]
        assert members, name
        assert layout(info, name) == members, name
        assert info.btf.size_of(info.type_id(name)) == size, name


@pytest.fixture(params=C_BUILDS)
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    compiler, options = request.param
    return compiled(tmp_path, compiler, *options)


def test_layouts_of_c_are_those_of_gdb(program: Path) -> None:
    with ElfFile(program) as elf, DebugInfo.of(elf) as info:
        assert info is not None
        same_layouts(program, info, ("struct node", "struct tight"))


def plain(text: str) -> str:
    """A definition without what compilers and printers differ in."""
    for long, short in (("long int", "long"), ("long long", "long"), ("short int", "short")):
        text = text.replace(long, short)
    text = text.replace("data[0]", "data[]").replace("volatile const", "const volatile")
    text = re.sub(r"union \{[^{}]*\};(?=\s*\} in)", "union {...};", text)  # gdb goes no deeper
    return " ".join(re.sub(r"\s*:\s*", " : ", text).removeprefix("type = ").rstrip(";\n").split())


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_c_definitions_read_as_those_of_gdb(tmp_path: Path, compiler: str) -> None:
    program = compiled(tmp_path, compiler, "-O0")
    names = ("struct node", "union num", "struct flex", "enum color", "struct point")
    with ElfFile(program) as elf, DebugInfo.of(elf) as info:
        ours = {name: plain(definition(info.btf, info.type_id(name))) for name in names}
    for name in names:
        theirs = plain(gdb(program, f"ptype {name}"))
        if name.startswith("enum"):  # gdb leaves out the values that follow one another
            ours[name] = re.sub(r" = 0(?=,)", "", ours[name]).replace(", }", "}").replace("{ ", "{")
        assert ours[name] == theirs


def test_members_are_found_as_expressions_name_them(tmp_path: Path) -> None:
    program = compiled(tmp_path, "gcc")
    with ElfFile(program) as elf, DebugInfo.of(elf) as info:
        types = BtfTypes(lambda: info.btf)
        node = info.btf.resolve(info.type_id("node_t"))
        for name, bits in (("at", 64), ("uc", None), ("in", None)):
            place = types._find(node, name, 0, 0)
            assert place is not None
            assert bits is None or place[0] == bits
        inner = info.btf.resolve(types._find(node, "in", 0, 0)[1].type_id)
        assert types._find(inner, "q", 0, 0)[0] == 64  # through a union without a name
        pointer = info.btf.type(info.type_id("struct node *"))
        assert isinstance(pointer, Pointer)
        assert info.btf.resolve(pointer.type_id).name == "node"


def test_kinds_are_told_apart(tmp_path: Path) -> None:
    program = compiled(tmp_path, "gcc")
    with ElfFile(program) as elf, DebugInfo.of(elf) as info:
        btf = info.btf
        node = btf.resolve(info.type_id("struct node"))
        members = {one.name: one for one in node.members}
        grid = btf.type(members["m"].type_id)
        assert isinstance(grid, Array)
        assert (grid.count, btf.type(grid.type_id).count) == (3, 4)
        assert btf.type(members["name"].type_id).count == 256  # 255 fills its byte
        call = btf.type(btf.type(members["cb"].type_id).type_id)
        assert isinstance(call, FunctionProto)
        assert len(call.parameters) == 3  # with what stands for "..."
        assert btf.resolve(members["wide"].type_id).kind == Kind.ENUM64
        assert btf.resolve(members["wide"].type_id).values[1].value == 0x123456789ABC
        color = btf.resolve(members["color"].type_id)
        assert isinstance(color, Enum)
        assert color.signed
        assert [one.value for one in color.values] == [0, 5, -1]
        assert isinstance(btf.resolve(members["ok"].type_id), Int)
        flexible = btf.resolve(info.type_id("struct flex")).members[1]
        assert btf.type(flexible.type_id).count == 0
        walk = next(a for n, a in info.functions() if n == "walk")
        opaque = btf.resolve(btf.type(info.function(walk).parameters[1].type_id).type_id)
        assert isinstance(opaque, Forward)


def test_a_declaration_stands_for_the_definition_of_another_unit(tmp_path: Path) -> None:
    (tmp_path / "other.c").write_text("struct opaque { int first; long second; } real;\n")
    program = compiled(tmp_path, "gcc", str(tmp_path / "other.c"))
    with ElfFile(program) as elf, DebugInfo.of(elf) as info:
        walk = next(a for n, a in info.functions() if n == "walk")
        found = info.btf.resolve(info.btf.type(info.function(walk).parameters[1].type_id).type_id)
        assert isinstance(found, Composite)
        assert [one.name for one in found.members] == ["first", "second"]


def test_unknown_types_name_the_nearest(tmp_path: Path) -> None:
    program = compiled(tmp_path, "gcc")
    with ElfFile(program) as elf, DebugInfo.of(elf) as info:
        with pytest.raises(BtfError, match="no type 'struct nod'; nearest is struct node"):
            info.type_id("struct nod")
        with pytest.raises(BtfError, match="no type 'xyzzy'"):
            info.type_id("xyzzy")


def test_only_types_with_a_similar_name_are_read_for_the_nearest(tmp_path: Path) -> None:
    with ElfFile(compiled(tmp_path, "gcc")) as elf, DebugInfo.of(elf) as info:
        with pytest.raises(BtfError, match="nearest is struct node"):
            info.type_id("struct nod")
        made = {info.btf.type(one).name for one in info.btf.own_ids(*Kind)}
        assert "node" in made
        assert "flex" not in made


CXX_BUILDS = [
    pytest.param(("g++", ("-gdwarf-5", "-O0")), id="g++, DWARF 5"),
    pytest.param(("g++", ("-gdwarf-4", "-O2")), id="g++, DWARF 4, optimised"),
    pytest.param(("g++", ("-gdwarf-4", "-fdebug-types-section")), id="g++, .debug_types"),
    pytest.param(("g++", ("-gdwarf-5", "-gsplit-dwarf")), id="g++, split"),
    pytest.param(("clang++", ("-gdwarf-5", "-O0")), id="clang++, DWARF 5"),
    pytest.param(("clang++", ("-gdwarf-4", "-O1")), id="clang++, DWARF 4"),
]


@pytest.fixture(scope="module", params=CXX_BUILDS)
def cxx_program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler, options = request.param
    return compiled(tmp_path_factory.mktemp("cxx"), compiler, *options, source=CXX_SOURCE)


@pytest.fixture
def classes(cxx_program: Path) -> Iterator[tuple[Path, DebugInfo]]:
    with ElfFile(cxx_program) as elf, DebugInfo.of(elf) as info:
        yield cxx_program, info


def test_classes_are_laid_out_as_gdb_says(classes: tuple[Path, DebugInfo]) -> None:
    program, info = classes
    same_layouts(program, info, ("shop::Toy", "shop::Priced", "shop::Price"))


def test_classes_inherit_members_and_names(classes: tuple[Path, DebugInfo]) -> None:
    _, info = classes
    toy = info.btf.resolve(info.type_id("class shop::Toy"))
    types = BtfTypes(lambda: info.btf)
    assert sorted(info.bases[toy.id].values()) == ["shop::Priced", "shop::Thing"]
    assert types._find(toy, "id_", 0, 0)[0] == 64
    assert types._find(toy, "price", 0, 0) is not None
    assert types._find(toy, "counter_", 0, 0) is None  # static: no part of the object
    kind = info.btf.resolve(info.type_id("shop::Kind"))
    assert isinstance(kind, Enum)
    assert (kind.size, kind.signed, kind.values[0].value) == (2, True, -1)
    assert isinstance(info.btf.type(info.type_id("std::string")), Typedef)
    inner = info.btf.resolve(info.type_id("shop::Thing::Inner"))
    assert (inner.name, inner.size) == ("shop::Thing::Inner", 16)
    hidden = info.btf.resolve(info.type_id("shop::(anonymous namespace)::Hidden"))
    assert hidden.size == 4


def test_references_are_pointers_that_know_it(classes: tuple[Path, DebugInfo]) -> None:
    _, info = classes
    name, address = next(one for one in info.functions() if one[0] == "shop::put")
    found = info.function(address, name)
    marks = [info.references.get(one.type_id) for one in found.parameters]
    assert marks == ["&", "&&", "&", None]
    assert found.declaration == (
        "int shop::put(shop::Toy &toy, shop::Price &&gone, const std::string &name,"
        " shop::Kind kind)"
    )


# ------------------------------------------------------------ real files


@functools.cache
def debug_file(package: str, least: int = 0) -> Path:
    """The largest debug file of a Debian package."""
    folder = debian.files(package) / "usr/lib/debug"
    found = max(folder.rglob("*.debug"), key=lambda path: path.stat().st_size)
    assert found.stat().st_size > least
    return found


@pytest.mark.parametrize(
    ("package", "names"),
    [
        pytest.param(
            "libc6-dbg",
            ("struct malloc_state", "struct _IO_FILE", "struct link_map", "struct sockaddr_in"),
            id="glibc",
        ),
        pytest.param(
            "python3.11-dbg",
            ("PyTypeObject", "PyObject", "struct _ts", "PyCodeObject", "PyLongObject"),
            id="Python",
        ),
    ],
)
def test_layouts_of_real_programs_are_those_of_gdb(package: str, names: tuple[str, ...]) -> None:
    path = debug_file(package)
    with ElfFile(path) as elf, DebugInfo.of(elf) as info:
        same_layouts(path, info, names)


def test_what_dwz_moved_to_a_shared_file_is_found(tmp_path: Path) -> None:
    need_program("dwz")
    programs = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        programs.append(compiled(tmp_path / name, "gcc", "-gdwarf-4", kept=None))
    shared = tmp_path / "shared.debug"
    command = ["dwz", "-m", str(shared), *map(str, programs)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    with ElfFile(programs[0]) as elf:
        assert elf.section(".gnu_debugaltlink") is not None
        with DebugInfo.of(elf) as info:
            same_layouts(programs[0], info, ("struct node",))
            walk = next(a for n, a in info.functions() if n == "walk")
            assert info.function(walk).declaration.startswith("int walk(const node_t *n, struct")
    shared.rename(tmp_path / "gone")
    with ElfFile(programs[0]) as elf, DebugInfo.of(elf) as info:
        found = info.function(walk, "walk")  # without what is not here, and said so
        assert found is not None
        assert re.match(r"\? walk\(const \S* ?\*n, \? o, ", found.declaration)
        problems = {one.problem for one in found.parameters}
        assert problems == {"", f"its type is in {shared}, which was not found"}
        with pytest.raises(BtfError) as caught:
            info.type_id("struct node")
        text = str(caught.value)
        assert text.startswith(
            f"{programs[0]}: no type 'struct node': part of the debug information was moved by dwz"
        )
        assert f" to {shared} or /usr/lib/debug/.build-id/" in text
        assert "\n" not in text


TUPLES = """
#include <tuple>
#include <string>
struct Named { int number; std::string name; };
int first(std::tuple<int, signed char, long> &tuple, Named &named) {
    return std::get<0>(tuple) + named.number;
}
"""


def test_fields_of_a_tuple_have_their_numbers_for_names(tmp_path: Path) -> None:
    path = library(tmp_path, "g++", TUPLES)
    with ElfFile(path) as elf, DebugInfo.of(elf) as info:
        number = info.type_id("std::tuple<int, signed char, long int>")
        value = ReadPlans(info.btf).read(number, struct.pack("<qb3xi", -3, -2, -1))
        assert value == {"__0": -1, "__1": -2, "__2": -3}


def test_a_string_that_clang_only_declares_is_whole(tmp_path: Path) -> None:
    layouts = []
    for compiler in ("g++", "clang++"):
        with ElfFile(library(tmp_path, compiler, TUPLES)) as elf, DebugInfo.of(elf) as info:
            name = info.btf.resolve(info.btf.type(info.type_id("Named")).members[1].type_id)
            assert isinstance(name, Composite)
            parts = {one.name: one.bit_offset for one in name.members if one.name}
            layouts.append((name.size, parts["_M_dataplus"], parts["_M_string_length"]))
    assert layouts[0] == layouts[1]


def library(folder: Path, compiler: str, source: str) -> Path:
    """A shared library of one source."""
    (folder / "library.cpp").write_text(source)
    command = [need_program(compiler), "-g", "-shared", "-fPIC", "-std=c++17", "library.cpp"]
    path = folder / f"library-{compiler}.so"
    compile_in(folder, [*command, "-o", path])
    return path
