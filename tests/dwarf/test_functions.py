"""Functions out of debug information, beside what pyelftools and the symbol table say."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import debian
import pytest
from debug_programs import CXX_SOURCE, compiled, gdb
from kept_builds import compile_in
from skips import need_program

from usdt.base.errors import TracingError
from usdt.btf.types import Composite, Pointer
from usdt.dwarf.info import DebugInfo
from usdt.elf.file import ElfFile
from usdt.engine.language import parse_probe
from usdt.uprobes.provider import FunctionRequest

if TYPE_CHECKING:
    from pathlib import Path

    from elftools.dwarf.die import DIE

    from usdt.dwarf.types.variants import Variant, VariantPart

RUST_SOURCE = """
pub struct Point { pub x: i32, pub y: i64 }
pub enum Shape { Empty, Circle(u32), Square { side: i64, name: &'static str } }
#[inline(never)]
pub fn area(shape: &Shape, scale: u8, maybe: Option<&Point>, text: &str, pair: (i32, u16)) -> i64 {
    println!("{} {} {}", scale, text, pair.0);
    match (shape, maybe) {
        (Shape::Square { side, .. }, None) => *side,
        (_, Some(p)) => p.y,
        _ => 0,
    }
}
fn main() {
    let empty = Shape::Empty;
    println!("{}", area(&empty, 1, Some(&Point { x: 1, y: 2 }), "x", (1, 2)));
    println!("{}", area(&Shape::Circle(1), 1, None, "x", (1, 2)));
    println!("{}", area(&Shape::Square { side: 1, name: "s" }, 1, None, "x", (1, 2)));
}
"""


def by_name(info: DebugInfo, name: str) -> int:
    return next(address for found, address in info.functions() if found == name)


def symbols(program: Path) -> dict[str, int]:
    """Addresses of functions by their symbols."""
    need_program("nm", "binutils")
    text = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in text.splitlines()]
    return {row[2]: int(row[0], 16) for row in rows if len(row) == 3 and row[1] in "tT"}


def choose(part: VariantPart, value: int) -> Variant | None:
    """The variant that a discriminant selects."""
    value &= (1 << 8 * part.size) - 1
    rest = None
    for one in part.variants:
        if one.values is None:
            rest = one
        elif any(low <= value <= high for low, high in one.values):
            return one
    return rest


@pytest.mark.parametrize(
    ("compiler", "options"),
    [
        pytest.param("gcc", ("-gdwarf-5", "-O2"), id="gcc, DWARF 5, optimised"),
        pytest.param("gcc", ("-gdwarf-2", "-O0"), id="gcc, DWARF 2"),
        pytest.param("gcc", ("-gsplit-dwarf",), id="gcc, split"),
        pytest.param("clang", ("-gdwarf-5", "-O2"), id="clang, DWARF 5, optimised"),
        pytest.param("clang", ("-gdwarf-4", "-gsplit-dwarf"), id="clang, split as GNU did"),
    ],
)
def test_prototypes_of_c(tmp_path: Path, compiler: str, options: tuple[str, ...]) -> None:
    program = compiled(tmp_path, compiler, *options, kept=None)
    places = symbols(program)
    with ElfFile(program) as elf, DebugInfo.of(elf) as info:
        found = info.function(places["walk"], "walk")
        assert found.declaration.replace("restrict ", "") == (
            "int walk(const node_t *n, struct opaque *o, enum color c, const char *s, ...)"
        )
        assert (found.name, found.language, found.variadic) == ("walk", "c", True)
        assert [one.name for one in found.parameters] == ["n", "o", "c", "s"]
        assert not any(one.problem or one.artificial for one in found.parameters)
        assert found.file == str(tmp_path / "program.c")
        assert (tmp_path / "program.c").read_text().splitlines()[found.line - 1].count(" walk(")
        node = info.btf.resolve(info.btf.resolve(found.parameters[0].type_id).type_id)
        assert isinstance(node, Composite)
        assert node.name == "node"
        assert info.btf.resolve(found.returns).name == "int"
        nothing = info.function(places["nothing"])
        assert (nothing.declaration, nothing.returns) == ("void nothing(void)", 0)
        assert "int (*cell)[4]" in info.function(places["table"]).declaration
        assert info.function(places["walk"] + 1) is None


def test_prototypes_are_those_of_gdb(tmp_path: Path) -> None:
    program = compiled(tmp_path, "gcc", "-O0")
    with ElfFile(program) as elf, DebugInfo.of(elf) as info:
        for name in ("walk", "nothing", "table", "hidden", "main"):
            witness = gdb(program, f"info functions ^{name}$")
            found = info.function(by_name(info, name))
            for one in (*found.parameters, None):
                number = found.returns if one is None else one.type_id
                text = info.type_text(number).replace("restrict ", "").replace("long int", "long")
                assert text.replace(" ", "") in witness.replace(" ", ""), (name, text, witness)


def test_prototypes_of_classes(tmp_path: Path) -> None:
    program = compiled(tmp_path, "g++", "-O1", source=CXX_SOURCE)
    places = symbols(program)
    with ElfFile(program) as elf, DebugInfo.of(elf) as info:
        weigh = info.function(places["_ZNK4shop3Toy5weighEi"])
        assert weigh.declaration == "int shop::Toy::weigh(int times) const"
        assert [(one.name, one.artificial) for one in weigh.parameters] == [
            ("this", True),
            ("times", False),
        ]
        same = info.function(places["_ZNK4shop3ToyeqERKS0_"])
        assert same.declaration == "bool shop::Toy::operator==(const shop::Toy &other) const"
        assert same.language == "c++"
        names = {name for name, _ in info.functions()}
        assert "shop::(anonymous namespace)::use" in names


def is_local(die: DIE) -> bool:
    """Whether it is a method of a class that is local to a function: those are not listed."""
    name = die.attributes.get("DW_AT_linkage_name")
    return name is not None and name.value.startswith(b"_ZZ")


def test_every_function_with_code_is_listed(tmp_path: Path) -> None:
    from elftools.elf.elffile import ELFFile

    for options in (("g++", "-O0"), ("clang++", "-O1", "-gdwarf-5"), ("g++", "-gdwarf-4", "-O1")):
        program = compiled(tmp_path, *options, source=CXX_SOURCE)
        with program.open("rb") as file:
            dies = [
                die
                for unit in ELFFile(file).get_dwarf_info().iter_CUs()
                for die in unit.iter_DIEs()
                if die.tag == "DW_TAG_subprogram"
                if "DW_AT_low_pc" in die.attributes and not is_local(die)
            ]
            witness = sorted(die.attributes["DW_AT_low_pc"].value for die in dies)
        with ElfFile(program) as elf, DebugInfo.of(elf) as info:
            assert sorted(address for _, address in info.functions()) == witness
        assert len(witness) > 5


def rust(folder: Path, *options: str) -> Path:
    need_program("rustc")
    (folder / "shapes.rs").write_text(RUST_SOURCE)
    command = ["rustc", "-g", *options, "-o", "shapes", "shapes.rs"]
    compile_in(folder, command)
    return folder / "shapes"


@pytest.mark.parametrize("options", [(), ("-Copt-level=2",)], ids=["plain", "optimised"])
def test_rust(tmp_path: Path, options: tuple[str, ...]) -> None:
    with ElfFile(rust(tmp_path, *options)) as elf, DebugInfo.of(elf) as info:
        found = info.function(by_name(info, "shapes::area"))
        assert found.declaration == (
            "fn shapes::area(shape: &shapes::Shape, scale: u8,"
            " maybe: core::option::Option<&shapes::Point>, text: &str, pair: (i32, u16)) -> i64"
        )
        assert found.language == "rust"
        shape = info.btf.resolve(info.btf.resolve(found.parameters[0].type_id).type_id)
        forms = info.variants[shape.id]
        assert [one.name for one in forms.variants] == ["Empty", "Circle", "Square"]
        assert [choose(forms, value).name for value in (0, 1, 2)] == ["Empty", "Circle", "Square"]
        square = info.btf.resolve(choose(forms, 2).member.type_id)
        assert {one.name for one in square.members} >= {"side", "name"}
        maybe = info.btf.resolve(found.parameters[2].type_id)
        niche = info.variants[maybe.id]
        assert choose(niche, 0).name == "None"
        assert (
            choose(niche, 0x7FFF12345678).name == "Some"
        )  # the pointer itself is the discriminant
        text = info.btf.resolve(found.parameters[3].type_id)
        assert [(one.name, one.bit_offset) for one in text.members] == [
            ("data_ptr", 0),
            ("length", 64),
        ]
        pair = info.btf.resolve(found.parameters[4].type_id)
        assert {one.name for one in pair.members} == {"__0", "__1"}
        point = info.btf.resolve(info.type_id("shapes::Point"))
        assert [one.bit_offset for one in point.members] == sorted(
            one.bit_offset for one in point.members
        )


# ------------------------------------------------------------ real files


def test_functions_of_glibc_are_where_its_symbols_say() -> None:
    found = debian.files("libc6-dbg") / "usr/lib/debug"
    path = max(found.rglob("*.debug"), key=lambda one: one.stat().st_size)
    places = symbols(path)
    with ElfFile(path) as elf, DebugInfo.of(elf) as info:
        listed = dict(info.functions())
        agreed = [name for name, address in places.items() if listed.get(name) == address]
        assert len(agreed) > 1000
        qsort = info.function(listed["qsort"], "qsort")
        assert qsort.declaration.startswith("void qsort(void *b, size_t n, size_t s, ")
        assert isinstance(info.btf.resolve(qsort.parameters[0].type_id), Pointer)


def test_a_separate_debug_file_is_found_by_build_id_and_by_name(tmp_path: Path) -> None:
    program = compiled(tmp_path, "gcc")
    address = symbols(program)["walk"]
    need_program("objcopy", "binutils")
    debug = tmp_path / "program.debug"
    subprocess.run(["objcopy", "--only-keep-debug", program, debug], check=True)
    subprocess.run(["objcopy", "-g", f"--add-gnu-debuglink={debug}", program], check=True)
    with ElfFile(program) as elf, DebugInfo.of(elf) as info:
        assert info.name == str(debug)
        assert info.function(address).name == "walk"
    with ElfFile(program) as elf:
        build_id = elf.build_id
    home = tmp_path / f"root/usr/lib/debug/.build-id/{build_id[:2]}"
    home.mkdir(parents=True)
    debug.rename(home / f"{build_id[2:]}.debug")
    with ElfFile(program) as elf:
        assert DebugInfo.of(elf) is None
        with DebugInfo.of(elf, roots=("", str(tmp_path / "root"))) as info:
            assert info.function(address).name == "walk"
    subprocess.run(["strip", program], check=True)
    with ElfFile(program) as elf:
        assert DebugInfo.of(elf) is None


def test_a_real_go_program_without_symbols() -> None:
    """Of gosu, whose first return probe would end it."""
    path = str(debian.files("gosu") / "usr/sbin/gosu")
    with ElfFile(path) as elf:
        code = next(one for one in elf.sections if one.name == ".text")
        assert DebugInfo.of(elf) is None
    entry = FunctionRequest(parse_probe(f"uprobe:{path}:{code.address:#x}"))
    (function,) = entry.functions(path, path)
    assert function.is_go
    returns = FunctionRequest(parse_probe(f"uprobe:{path}:{code.address:#x}(return)"))
    with pytest.raises(TracingError, match="Go program: a return probe would crash it"):
        returns.functions(path, path)
