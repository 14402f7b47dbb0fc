"""BTF beside bpftool and libbpf: listings to the byte, typed data to the byte, headers by compiler.

The program that drives ``btf_dump__dump_type_data()`` is tests/peers/libbpf/dumper.c.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from usdt.base.errors import BtfError
from usdt.btf.dump.c_dump import Definitions, header, keyword
from usdt.btf.dump.raw_dump import raw_lines, to_json
from usdt.btf.files import KERNEL
from usdt.btf.format import Encoding, Kind, Linkage
from usdt.btf.reader import Btf
from usdt.btf.types import Composite
from usdt.btf.values import Options, Rendered, render, render_libbpf
from usdt.btf.values.options import ALL_QUIRKS, Quirk
from usdt.btf.writer import BtfWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent / "libbpf"
_PACKAGES = {"clang": "clang", "gcc": "gcc", "bpftool": "bpftool"}
_ERRORS = {-7: "E2BIG", -22: "EINVAL"}

need_vmlinux = pytest.mark.skipif(
    not Path(KERNEL).exists(), reason="needs CONFIG_DEBUG_INFO_BTF: /sys/kernel/btf/vmlinux"
)

SOURCE = """
enum signs { MINUS = -5, ZERO = 0, SEVEN = 7 };
enum big { BIG = 0x123456789abcULL };
enum __attribute__((packed)) tiny { TINY = 3 };
typedef int (*call)(const char *, ...);
struct later;
struct __attribute__((packed)) packed {
    char a; int b : 3; unsigned c : 30; enum signs d : 4; long e; enum signs f; enum big g;
    _Bool h; enum tiny i; short j;
};
struct __attribute__((aligned(32))) aligned { char a; struct packed p; double d; float f[2]; };
union mixed { struct { int x : 5; unsigned long y : 40; }; char text[12]; struct aligned *next; };
struct all {
    struct packed packed[2]; union mixed mixed; volatile const int *const *pointer; call function;
    int (*table[3])(void); int (*matrix)[2][3]; struct later *later; __int128 wide;
    struct { short s; long : 0; char c; } gap; char name[16]; unsigned char flexible[];
};
struct all everything;
struct aligned other;
static volatile int hidden;
extern int outside;
int attached(struct all *all, enum signs second) { return hidden + outside + all->mixed.x; }
static int __attribute__((noinline)) inner(int value) { return value * hidden; }
int __attribute__((section("own"))) caller(int value) { return inner(value); }
"""


def tool(name: str) -> str:
    """Path of a program; Debian's bpftool is not on everybody's PATH."""
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if path is None:
        pytest.skip(f"needs the program {name}: apt-get install {_PACKAGES[name]}")
    return path


def bpftool(*words: object) -> str:
    done = subprocess.run([tool("bpftool"), *map(str, words)], capture_output=True, check=True)
    return done.stdout.decode("utf-8", "surrogateescape")


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An object with BTF of many shapes, by clang."""
    folder = tmp_path_factory.mktemp("btf")
    (folder / "shapes.c").write_text(SOURCE)
    words = [tool("clang"), "-target", "bpf", "-O2", "-g", "-w", "-c", folder / "shapes.c"]
    subprocess.run([*words, "-o", folder / "shapes.o"], check=True)
    return folder / "shapes.o"


# ---------------------------------------------------------------- listings


@need_vmlinux
def test_the_kernels_types_are_listed_as_bpftool_lists_them() -> None:
    expected = bpftool("btf", "dump", "file", KERNEL, "format", "raw")
    assert "".join(raw_lines(Btf.from_file(KERNEL))) == expected


@need_vmlinux
def test_modules_types_are_listed_as_bpftool_lists_them(tmp_path: Path) -> None:
    base = Btf.from_kernel()
    out = BtfWriter(first=base.end, strings_before=base.strings_end)
    number = out.composite(Kind.STRUCT, "own_name", 16, [("list", 1, 0, 0), ("more", 2, 64, 0)])
    out.record(Kind.FUNC, "own_function", out.prototype(number, [("a", out.pointer(number))]))
    path = tmp_path / "module"
    path.write_bytes(out.data())
    files = [path, *(one for one in Path(KERNEL).parent.iterdir() if one.name != "vmlinux")][:4]
    for file in files:
        expected = bpftool("-B", KERNEL, "btf", "dump", "file", file, "format", "raw")
        assert "".join(raw_lines(Btf.from_file(str(file), base=base))) == expected


def test_objects_are_listed_as_bpftool_lists_them(compiled: Path) -> None:
    btf = Btf.from_file(str(compiled))
    assert "".join(raw_lines(btf)) == bpftool("btf", "dump", "file", compiled, "format", "raw")
    ours = {"types": [to_json(btf, btf.type(number)) for number in range(1, btf.end)]}
    theirs = json.loads(bpftool("-j", "btf", "dump", "file", compiled))
    for one in theirs["types"]:
        for value in one.get("values", ()):  # bpftool's JSON has unsigned ones of 32 bits as 64
            value["val"] &= 0xFFFFFFFF if one["kind"] == "ENUM" else -1
    for one in ours["types"]:
        for item in one.get("vars", ()):  # it lacks the names of variables
            assert item.pop("type").startswith("VAR '")
    assert ours == theirs


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_type_is_listed_as_bpftool_lists_it(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    out = BtfWriter()
    size = st.sampled_from([1, 2, 4, 8])
    word = st.integers(0, 0xFFFFFFFF)
    out.integer("int", 4, Encoding.SIGNED)
    for index in range(data.draw(st.integers(1, 12))):
        target, name = data.draw(st.integers(1, index + 1)), f"name{index}"
        match data.draw(st.integers(0, 9)):
            case 0:
                out.integer(name, 4, data.draw(st.sampled_from([0, 1, 2, 4])))
            case 1:
                values = [(f"V{index}", data.draw(word)), (f"W{index}", 0)]
                out.enum(name, data.draw(size), values, signed=data.draw(st.booleans()))
            case 2:
                number = data.draw(st.integers(-(1 << 63), (1 << 63) - 1))
                out.enum64(name, 8, [(f"L{index}", number)], signed=data.draw(st.booleans()))
            case 3:
                bits = data.draw(st.integers(0, 3))
                rows = [("", target, 0, 0), ("m", 1, 64, bits), ("n", 1, 70, 1)]
                kind = data.draw(st.sampled_from([Kind.STRUCT, Kind.UNION]))
                out.composite(kind, data.draw(st.sampled_from(["", name])), 16, rows)
            case 4:
                out.array(target, data.draw(word))
            case 5:
                out.record(Kind.FWD, name, 0, flag=data.draw(st.booleans()))
            case 6:
                kind = data.draw(st.sampled_from([Kind.CONST, Kind.VOLATILE, Kind.RESTRICT]))
                out.record(kind, "", target)
            case 7:
                variable = out.record(Kind.VAR, name, target, [data.draw(st.integers(0, 2))])
                out.section(f".data.{name}", 8, [(variable, 4, 4)])
            case 8:
                prototype = out.prototype(target, [("a", target), ("", 1), ("", 0)])
                linkage = data.draw(st.sampled_from(list(Linkage)))
                out.record(Kind.FUNC, name, prototype, items=linkage)
            case _:
                out.record(Kind.DECL_TAG, name, out.record(Kind.TYPEDEF, f"t{index}", 1), [-1])
                out.record(Kind.TYPE_TAG, name, out.record(Kind.FLOAT, f"f{index}", 8))
    path = tmp_path_factory.mktemp("any") / "btf"
    path.write_bytes(out.data())
    expected = bpftool("btf", "dump", "file", path, "format", "raw")
    assert "".join(raw_lines(Btf(out.data()))) == expected


# ---------------------------------------------------------------- headers


def checks(btf: Btf, numbers: list[int] | None = None) -> str:
    """A C file that asserts the size of every structure and the place of every member."""
    names = Definitions(btf)
    for number in btf.ids(Kind.STRUCT, Kind.UNION, Kind.ENUM, Kind.ENUM64, Kind.TYPEDEF):
        if btf.type(number).name:
            list(names.needed(number))  # names get their suffixes in this order
    lines = ["#define IS(x) _Static_assert(x, #x);"]
    for number in numbers or btf.ids(Kind.STRUCT, Kind.UNION):
        found = btf.type(number)
        if isinstance(found, Composite) and found.name:
            tag = f"{keyword(found)} {names.name(found)}"
            lines.append(f"IS(sizeof({tag}) == {found.size})")
            lines += [
                f"IS(__builtin_offsetof({tag}, {one.name}) == {one.bit_offset // 8})"
                for one in found.members
                if one.name and not one.bitfield_size
            ]
    return "\n".join(lines) + "\n"


def check_header(btf: Btf, folder: Path) -> None:
    (folder / "types.h").write_text("".join(header(btf)))
    (folder / "checks.c").write_text(f'#include "types.h"\n{checks(btf)}')
    words = [tool("gcc"), "-std=gnu11", "-fsyntax-only", "-w", folder / "checks.c"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert not done.stderr
    assert done.returncode == 0


@need_vmlinux
def test_a_header_of_the_kernels_types_compiles_to_the_same_layout(tmp_path: Path) -> None:
    check_header(Btf.from_kernel(), tmp_path)


def test_a_header_of_an_object_compiles_to_the_same_layout(compiled: Path, tmp_path: Path) -> None:
    check_header(Btf.from_file(str(compiled)), tmp_path)


def test_named_types_as_members_without_a_name(tmp_path: Path) -> None:
    out = BtfWriter()
    number = out.integer("int", 4, Encoding.SIGNED)
    inner = out.composite(Kind.STRUCT, "inner", 8, [("a", number, 0, 0), ("b", number, 32, 0)])
    alias = out.record(Kind.TYPEDEF, "alias", inner)
    rows = [("", inner, 0, 0), ("", number, 64, 0), ("c", number, 96, 0)]
    out.composite(Kind.STRUCT, "outer", 16, rows)
    out.composite(Kind.UNION, "either", 8, [("", alias, 0, 0), ("d", number, 0, 0)])
    btf = Btf(out.data())
    assert "struct inner;" not in "".join(header(btf))
    check_header(btf, tmp_path)


def places(btf: Btf, found: Composite, start: int = 0) -> dict[str, tuple[int, int]]:
    """Member → offset and width in bits, those of anonymous members in their parent's."""
    known = {}
    for member in found.members:
        inner = btf.resolve(member.type_id)
        if member.name:
            known[member.name] = start + member.bit_offset, member.bitfield_size
        elif isinstance(inner, Composite):
            known |= places(btf, inner, start + member.bit_offset)
    return known


@need_vmlinux
def test_bit_fields_of_the_header_are_where_they_were(tmp_path: Path) -> None:
    btf = Btf.from_kernel()
    wanted: dict[str, Composite] = {}
    twice = set()
    for number, name in btf.named(Kind.STRUCT):
        found = btf.type(number)
        if (
            name
            and isinstance(found, Composite)
            and any(one.bitfield_size for one in found.members)
        ):
            twice |= {name} & wanted.keys()
            wanted[name] = found
    chosen = sorted(set(wanted) - twice)[::6]
    definitions = Definitions(btf)
    text = "".join(text for name in chosen for text in definitions.needed(wanted[name].id))
    text += "".join(f"struct {name} v{index};\n" for index, name in enumerate(chosen))
    (tmp_path / "bits.c").write_text(text)
    words = [tool("clang"), "-std=gnu11", "-target", "bpf", "-g", "-w", "-c", tmp_path / "bits.c"]
    subprocess.run([*words, "-o", tmp_path / "bits.o"], check=True)
    again = Btf.from_file(str(tmp_path / "bits.o"))
    assert len(chosen) > 20
    for name in chosen:
        (number,) = again.find(name, Kind.STRUCT)
        found = again.type(number)
        assert isinstance(found, Composite)
        assert found.size == wanted[name].size, name
        assert places(again, found) == places(btf, wanted[name]), name


# ---------------------------------------------------------------- typed data


class Dumper:
    """libbpf in a process of its own."""

    def __init__(self, program: Path, path: str) -> None:
        words = [str(program), path]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def __call__(
        self, number: int, data: bytes, options: Options, *, behind: bytes = b""
    ) -> Rendered:
        """What libbpf shows of the data, which the bytes ``behind``, then zeroes, follow."""
        assert self._process.stdin
        assert self._process.stdout
        words = [number, int(options.compact), int(options.skip_names), int(options.emit_zeroes)]
        words += [options.indent_level]
        indent = options.indent_str.encode().hex() or "-"
        line = f"{' '.join(map(str, words))} {indent} {len(data)} {(data + behind).hex()}\n"
        self._process.stdin.write(line.encode())
        self._process.stdin.flush()
        result, length = map(int, self._process.stdout.readline().split())
        text = self._process.stdout.read(length + 1)[:-1].decode("latin-1")
        if result < 0:
            return Rendered(text, None, _ERRORS.get(result, str(result)))
        return Rendered(text, result, "")


@pytest.fixture(scope="session")
def dumper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that drives libbpf."""
    if not Path("/usr/include/bpf/btf.h").exists():
        pytest.skip("needs libbpf's headers: apt-get install libbpf-dev")
    path = tmp_path_factory.mktemp("dumper") / "dumper"
    subprocess.run(
        [tool("gcc"), "-O1", "-Wall", HERE / "dumper.c", "-o", path, "-lbpf"], check=True
    )
    return path


@pytest.fixture(scope="session")
def quirks(dumper: Path, tmp_path_factory: pytest.TempPathFactory) -> frozenset[Quirk]:
    """The mistakes of the libbpf that is installed: older ones have two more."""
    out = BtfWriter()
    number = out.array(out.integer("char", 1), 2)
    field = out.composite(Kind.STRUCT, "s", 1, [("b", out.integer("int", 4), 0, 3)])
    path = tmp_path_factory.mktemp("quirks") / "btf"
    path.write_bytes(out.data())
    found = set(ALL_QUIRKS)
    with Dumper(dumper, str(path)) as ask:
        if "'\\0'" not in ask(number, b"a\0", Options(emit_zeroes=True)).text:
            found.add(Quirk.OLD_NUL)
        if ask(field, b"\1", Options()).error:
            found.add(Quirk.OLD_BOUND)
    return frozenset(found)


def same(ours: Rendered, theirs: Rendered) -> bool:
    # Older ones write f() for what has no parameters, newer ones f(void).
    plain = (ours.text.replace("(void)", "()"), theirs.text.replace("(void)", "()"))
    return plain[0] == plain[1] and (ours.size, ours.error) == (theirs.size, theirs.error)


def cases(btf: Btf, count: int, seed: int) -> Iterator[tuple[int, bytes, Options]]:
    """Random types with random data of many kinds."""
    chance = random.Random(seed)
    while count:
        number = chance.randrange(1, btf.end)
        try:
            size = btf.size_of(number)
        except BtfError:
            size = 8
        if size > 4096 or (btf.kind(number) == Kind.PTR and chance.random() < 0.9):
            continue
        few = chance.random() < 0.6
        choices = (0, 0, 0, 1, 65, 200, 255) if few else range(256)
        data = bytes(chance.choice(choices) for _ in range(size))
        if chance.random() < 0.15:
            data = data[: chance.randrange(size + 1)]
        yield (
            number,
            data,
            Options(
                compact=chance.random() < 0.5,
                skip_names=chance.random() < 0.3,
                emit_zeroes=chance.random() < 0.3,
                indent_str=chance.choice(["\t", " ", "  ", ""]),
                indent_level=chance.choice([0, 0, 3]),
            ),
        )
        count -= 1


def compare(path: str, dumper: Path, quirks: frozenset[Quirk], *, count: int) -> None:
    btf = Btf.from_file(path)
    different = 0
    with Dumper(dumper, path) as ask:
        for number, data, options in cases(btf, count, seed=count):
            theirs = ask(number, data, options)
            ours = render_libbpf(btf, number, data, options, quirks=quirks)
            assert same(ours, theirs), (number, data.hex(), options)
            plain = render(btf, number, data, options)
            # What differs by default is one of the known mistakes, or what they lead to.
            assert plain == render_libbpf(btf, number, data, options, quirks=frozenset())
            different += not same(plain, theirs)
    assert different < count / 2


@need_vmlinux
def test_values_of_the_kernels_types_look_as_libbpf_shows_them(
    dumper: Path, quirks: frozenset[Quirk]
) -> None:
    compare(KERNEL, dumper, quirks, count=1200)


def test_values_of_an_objects_types_look_as_libbpf_shows_them(
    compiled: Path, dumper: Path, quirks: frozenset[Quirk]
) -> None:
    compare(str(compiled), dumper, quirks, count=600)


def test_a_structure_cut_within_another_is_begun_as_libbpf_begins_it(
    dumper: Path, quirks: frozenset[Quirk], tmp_path: Path
) -> None:
    out = BtfWriter()
    word = out.integer("int", 4, Encoding.SIGNED)
    rows = [("a", word, 0, 0), ("b", word, 32, 0)]
    inner = out.composite(Kind.STRUCT, "inner", 8, rows)
    rows = [("x", word, 0, 0), ("in", inner, 32, 0), ("y", word, 96, 0)]
    number = out.composite(Kind.STRUCT, "nest", 16, rows)
    path = tmp_path / "nest"
    path.write_bytes(out.data())
    btf, whole = Btf(out.data()), struct.pack("<4i", 1, 0x200, 3, 4)
    begun = "(struct nest){.x = (int)1,.in = (struct inner){"
    with Dumper(dumper, str(path)) as ask:
        for size in range(len(whole)):
            data, options = whole[:size], Options(compact=True)
            ours = render(btf, number, data, options)
            assert ours == ask(number, data, options, behind=whole[size:]), size
            assert ours.error == "E2BIG"
            assert ours.text.startswith(begun) is (size >= 4)
            # With zeroes behind the data, libbpf's own text does not begin what may be zero.
            zeroes = ask(number, data, options)
            assert render_libbpf(btf, number, data, options, quirks=quirks) == zeroes
            assert zeroes.text.startswith(begun) is (size >= 6)
