"""Reading BTF: every kind, both byte orders, split BTF, the header of 2026, damage."""

from __future__ import annotations

import contextlib
import gzip
import lzma
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from elfwriter import FORMATS, Format, Section, elf
from hypothesis import given, settings
from hypothesis import strategies as st

from usdt.base.errors import BtfError
from usdt.btf.dump.c_dump import header
from usdt.btf.dump.declare import declaration
from usdt.btf.dump.raw_dump import raw_lines
from usdt.btf.files import KERNEL
from usdt.btf.format import RECORD_SIZES, Encoding, Kind, Linkage
from usdt.btf.lookup import find_type
from usdt.btf.reader import Btf
from usdt.btf.types import (
    Array,
    Composite,
    DeclTag,
    Enum,
    Enumerator,
    Function,
    FunctionProto,
    Int,
    Member,
    Modifier,
    Unknown,
    Variable,
)
from usdt.btf.values import Options, render, render_libbpf
from usdt.btf.values.compact import CompactFormatter
from usdt.btf.writer import BtfWriter

VMLINUX = Path(KERNEL)
need_vmlinux = pytest.mark.skipif(
    not VMLINUX.exists(), reason="needs CONFIG_DEBUG_INFO_BTF: /sys/kernel/btf/vmlinux"
)


def every_kind(order: str = "little") -> BtfWriter:
    """One type of each kind at least; their IDs are in the comments."""
    out = BtfWriter(order)
    out.integer("int", 4, Encoding.SIGNED)  # 1
    out.integer("long unsigned int", 8)  # 2
    out.pointer(1)  # 3
    out.array(1, 7, 2)  # 4
    out.composite(Kind.STRUCT, "s", 16, [("a", 1, 0, 3), ("b", 2, 64, 0)])  # 5
    out.composite(Kind.UNION, "u", 8, [("a", 1, 0, 0), ("", 5, 0, 0)])  # 6
    out.enum("e", 4, [("MINUS", -5), ("BIG", 0x7FFFFFFF)], signed=True)  # 7
    out.enum("f", 4, [("UNSIGNED", 0xFFFFFFFF)])  # 8
    out.record(Kind.FWD, "later", 0, flag=True)  # 9
    out.record(Kind.TYPEDEF, "int_t", 1)  # 10
    out.record(Kind.VOLATILE, "", 10)  # 11
    out.record(Kind.CONST, "", 11)  # 12
    out.record(Kind.RESTRICT, "", 3)  # 13
    out.prototype(12, [("x", 1), ("y", 3), ("", 0)])  # 14
    out.record(Kind.FUNC, "fun", 14, items=Linkage.GLOBAL)  # 15
    out.record(Kind.VAR, "var", 1, [Linkage.STATIC])  # 16
    out.section(".data", 4, [(16, 0, 4)])  # 17
    out.record(Kind.FLOAT, "double", 8)  # 18
    out.record(Kind.DECL_TAG, "tag", 5, [-1])  # 19
    out.record(Kind.TYPE_TAG, "user", 1)  # 20
    out.enum64("g", 8, [("NEGATIVE", -(1 << 40)), ("ONE", 1)], signed=True)  # 21
    return out


@pytest.mark.parametrize("order", ["little", "big"])
def test_every_kind_is_read(order: str) -> None:
    btf = Btf(every_kind(order).data())
    assert btf.order == order
    assert len(btf) == btf.end == 22
    assert {btf.kind(number) for number in range(22)} == set(Kind)
    assert btf.type(1) == Int(1, "int", 4, Encoding.SIGNED, 32, 0)
    assert btf.type(4) == Array(4, "", 1, 2, 7)
    members = (Member("a", 1, 0, 3), Member("b", 2, 64, 0))
    assert btf.type(5) == Composite(5, Kind.STRUCT, "s", 16, members, flag=True)
    signed = btf.type(7)
    assert isinstance(signed, Enum)
    assert signed.values == (Enumerator("MINUS", -5), Enumerator("BIG", 0x7FFFFFFF))
    unsigned = btf.type(8)
    assert isinstance(unsigned, Enum)
    assert unsigned.values[0].value == 0xFFFFFFFF
    prototype = btf.type(14)
    assert isinstance(prototype, FunctionProto)
    assert prototype.variadic
    assert btf.type(15) == Function(15, "fun", 14, 1)
    assert btf.type(16) == Variable(16, "var", 1, 0)
    assert btf.type(19) == DeclTag(19, "tag", 5, -1, flag=False)
    assert btf.type(20) == Modifier(20, Kind.TYPE_TAG, "user", 1, flag=False)
    long = btf.type(21)
    assert isinstance(long, Enum)
    assert [one.value for one in long.values] == [-(1 << 40), 1]


def test_sizes_and_alignments() -> None:
    btf = Btf(every_kind().data())
    sizes = {1: 4, 2: 8, 3: 8, 4: 28, 5: 16, 6: 8, 7: 4, 10: 4, 12: 4, 16: 4, 17: 4, 18: 8, 21: 8}
    assert {number: btf.size_of(number) for number in sizes} == sizes
    for number in (0, 9, 14, 15):
        with pytest.raises(BtfError, match="has no size"):
            btf.size_of(number)
    assert [btf.align_of(number) for number in (1, 2, 3, 4, 5, 12)] == [4, 8, 8, 4, 8, 4]
    assert btf.pointer_size == 8


def test_a_long_of_four_bytes_makes_pointers_of_four() -> None:
    out = BtfWriter()
    out.integer("long int", 4, Encoding.SIGNED)
    out.pointer(1)
    assert Btf(out.data()).size_of(2) == 4


def test_types_are_found_by_name() -> None:
    out = every_kind()
    out.composite(Kind.STRUCT, "s", 0, [])  # 22: a second of that name
    btf = Btf(out.data())
    assert btf.find("fun", Kind.FUNC) == [15]
    assert btf.find("fun", Kind.STRUCT) == []
    assert btf.find("s", Kind.STRUCT, Kind.UNION) == [5, 22]
    assert btf.find("", Kind.STRUCT) == []
    assert btf.find("nothing", Kind.FUNC) == []
    assert list(btf.named(Kind.ENUM)) == [(7, "e"), (8, "f")]
    assert list(btf.named(Kind.ENUM, start="f")) == [(8, "f")]


def test_names_that_share_the_tail_of_another_string_are_found() -> None:
    out = BtfWriter()
    out.integer("unsigned int", 4)
    data = bytearray(out.data())
    out.integer("int", 4)
    tail = Btf(out.data())
    assert tail.find("int", Kind.INT) == [2]
    # The record's name now points into "unsigned int".
    struct.pack_into("<I", data, 24, 1 + len("unsigned "))
    assert Btf(bytes(data)).find("int", Kind.INT) == [1]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("struct s", 5),
        ("union  u", 6),
        ("enum e", 7),
        ("enum g", 21),
        ("int", 1),
        ("unsigned long", 2),
        ("long unsigned int", 2),
        ("int_t", 10),
        ("s", 5),
        ("u", 6),
        ("int *", 3),
        ("void", 0),
        ("17", 17),
    ],
)
def test_types_are_found_as_people_write_them(text: str, number: int) -> None:
    assert find_type(Btf(every_kind().data()), text) == number


@pytest.mark.parametrize("text", ["struct nothing", "struct s **", "99", "", "struct"])
def test_types_that_are_not_there(text: str) -> None:
    with pytest.raises(BtfError):
        find_type(Btf(every_kind().data()), text)


def test_the_nearest_type_is_named() -> None:
    out = BtfWriter()
    out.composite(Kind.STRUCT, "sk_buff", 0, [])
    with pytest.raises(BtfError, match="nearest is struct sk_buff"):
        find_type(Btf(out.data()), "struct skbuff")


def test_the_type_with_t_behind_it_is_nearer_than_a_shorter_one() -> None:
    out = BtfWriter()
    out.record(Kind.TYPEDEF, "int32_t", out.integer("int", 4))
    with pytest.raises(BtfError, match="nearest is int32_t"):
        find_type(Btf(out.data()), "int32")


# ---------------------------------------------------------------- split BTF


@pytest.mark.parametrize("order", ["little", "big"])
def test_split_btf_continues_its_base(order: str) -> None:
    base = Btf(every_kind(order).data(), name="base")
    out = BtfWriter(order, first=base.end, strings_before=base.strings_end)
    out.composite(Kind.STRUCT, "own", 4, [("a", 1, 0, 0)])  # 22; its name is local string 0
    out.pointer(22)  # 23
    btf = Btf(out.data(), name="split", base=base)
    assert (btf.first, btf.end) == (22, 24)
    assert btf.find("own", Kind.STRUCT) == [22]
    assert btf.find("s", Kind.STRUCT) == [5]
    assert declaration(btf, 23, "x") == "struct own *x"
    own = btf.type(22)
    assert isinstance(own, Composite)
    assert own.members[0].name == "a"
    assert btf.type(5) is base.type(5)
    assert btf.kind(5) == Kind.STRUCT
    assert [text.split(" ", 1)[0] for text in raw_lines(btf)] == ["[22]", "[23]"]


def test_split_btf_of_another_byte_order_is_refused() -> None:
    with pytest.raises(BtfError, match="endian"):
        Btf(BtfWriter("big").data(), base=Btf(every_kind().data()))


# ---------------------------------------------------------------- the header of 2026


def test_unknown_kinds_are_skipped_by_the_layout_section() -> None:
    out = every_kind()
    out.record(60, "new", 0, [1, 2, 3, 4, 5], items=2)  # 22: 4 bytes once, 8 per item
    out.composite(Kind.STRUCT, "after", 4, [("a", 1, 0, 0)])  # 23
    layout = {**{int(kind): size for kind, size in RECORD_SIZES.items()}, 60: (4, 8)}
    btf = Btf(out.data(layout=layout))
    assert btf.end == 24
    assert btf.type(22) == Unknown(22, "new", 60)
    assert btf.find("after", Kind.STRUCT) == [23]
    assert list(raw_lines(btf))[21] == "[22] UNKNOWN 'new'\n"
    with pytest.raises(BtfError, match="kind 60 is unknown"):
        Btf(out.data()).end  # noqa: B018
    with pytest.raises(BtfError, match="cannot be declared in C"):
        declaration(btf, 22)


def test_a_layout_section_does_not_change_what_is_known() -> None:
    wrong = {int(kind): (0, 0) for kind in RECORD_SIZES}
    assert Btf(every_kind().data(layout=wrong)).end == 22


def test_more_than_65535_members() -> None:
    out = BtfWriter()
    out.integer("int", 4)
    out.composite(Kind.UNION, "many", 4, [("m", 1, 0, 0)] * 70_000)
    found = Btf(out.data()).type(2)
    assert isinstance(found, Composite)
    assert len(found.members) == 70_000


# ---------------------------------------------------------------- damage


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param((0, b"\0\0"), "not BTF", id="magic"),
        pytest.param((2, b"\2"), "version 2", id="version"),
        pytest.param((4, struct.pack("<I", 8)), "header of 8", id="a short header"),
        pytest.param((4, struct.pack("<I", 1 << 31)), "header of", id="a long header"),
        pytest.param((8, struct.pack("<I", 2)), "whole words", id="types that are not aligned"),
        pytest.param((12, struct.pack("<I", 1 << 30)), "ends after", id="types behind the end"),
        pytest.param((16, struct.pack("<I", 0xFFFFFFF0)), "ends after", id="strings behind it"),
        pytest.param((20, struct.pack("<I", 3)), "NUL", id="strings without an end"),
    ],
)
def test_a_damaged_header_is_named(change: tuple[int, bytes], message: str) -> None:
    data = bytearray(every_kind().data())
    data[change[0] : change[0] + len(change[1])] = change[1]
    with pytest.raises(BtfError, match=message):
        Btf(bytes(data))


def test_an_empty_file() -> None:
    with pytest.raises(BtfError, match="24 bytes expected, found 0"):
        Btf(b"")


def test_types_in_a_circle() -> None:
    out = BtfWriter()
    out.integer("int", 4)
    out.record(Kind.TYPEDEF, "round", 3)  # 2
    out.record(Kind.CONST, "", 2)  # 3
    out.composite(Kind.STRUCT, "inside", 4, [("a", 4, 0, 0)])  # 4: contains itself
    out.array(5, 2)  # 5: of itself
    out.prototype(0, [("f", 7)])  # 6
    out.pointer(6)  # 7: takes a pointer to itself
    btf = Btf(out.data())
    for number in (2, 3, 5):
        with pytest.raises(BtfError):
            btf.size_of(number)
    for number in (4, 5):
        with pytest.raises(BtfError):
            btf.align_of(number)
    for number in (5, 6, 7):
        with pytest.raises(BtfError, match="nested too deeply"):
            declaration(btf, number)


def test_a_gap_of_gigabytes_is_bytes() -> None:
    out = BtfWriter()
    out.integer("int", 4)
    out.composite(Kind.STRUCT, "late", 1 << 31, [("a", 1, 0, 0)])
    out.composite(Kind.STRUCT, "far", 1 << 27, [("a", 1, 8 << 26, 0)])
    out.composite(Kind.STRUCT, "page", 4096, [("a", 1, 0, 0)])
    text = "\n".join(header(Btf(out.data())))
    assert "unsigned char bytes[2147483648]; /* " in text
    assert "has a gap of 2147483644 bytes */" in text
    assert "has a gap of 67108864 bytes */" in text
    assert text.count("long long: 64;") == 4092 // 8


def exercise(data: bytes) -> None:
    """Everything that reads types; only BtfError may come out."""
    try:
        btf = Btf(data)
        list(raw_lines(btf))
    except BtfError:
        return
    for number in range(min(btf.end, 30)):
        for action in (
            btf.size_of,
            btf.align_of,
            lambda n: declaration(btf, n, "x"),
            lambda n: render(btf, n, bytes(40), Options(emit_zeroes=True)),
            lambda n: render_libbpf(btf, n, bytes(range(40))),
            lambda n: render(btf, n, bytes(range(9))),
            lambda n: CompactFormatter(btf).line(n, bytes(range(40))),
        ):
            with contextlib.suppress(BtfError):
                action(number)
    with contextlib.suppress(BtfError):
        list(header(btf))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_types_end_in_an_error_or_not_at_all(data: st.DataObject) -> None:
    good = every_kind().data()
    raw = bytearray(good)
    for _ in range(data.draw(st.integers(1, 6))):
        word = data.draw(st.integers(6, len(raw) // 4 - 1))
        value = data.draw(st.integers(0, 40) | st.integers(0, 0xFFFFFFFF))
        struct.pack_into("<I", raw, 4 * word, value)
    exercise(bytes(raw))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 700))
def test_truncated_btf_ends_in_an_error(length: int) -> None:
    exercise(every_kind().data()[:length])


def test_types_built_into_arm_compilers_are_declared_for_others() -> None:
    out = BtfWriter()
    out.record(Kind.TYPEDEF, "poly8_t", out.integer("__Poly8_t", 1))
    text = "".join(header(Btf(out.data())))
    assert "#ifndef __aarch64__\ntypedef unsigned char __Poly8_t;\n" in text


# ---------------------------------------------------------------- files


def object_file(*sections: tuple[bytes, bytes], fmt: Format = FORMATS[0]) -> bytes:
    return elf([Section(name, 1, contents) for name, contents in sections], fmt=fmt)


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: f"{fmt.bits}-{fmt.byteorder}")
def test_the_section_of_an_elf_file(fmt: Format, tmp_path: Path) -> None:
    path = tmp_path / "object.o"
    order = fmt.byteorder
    raw = every_kind(order).data()
    path.write_bytes(object_file((b".text", b"x"), (b".BTF", raw), fmt=fmt))
    assert Btf.from_file(str(path)).end == 22


def test_compressed_modules(tmp_path: Path) -> None:
    raw = object_file((b".BTF", every_kind().data()))
    for name, packed in (("m.ko.gz", gzip.compress(raw)), ("m.ko.xz", lzma.compress(raw))):
        path = tmp_path / name
        path.write_bytes(packed)
        assert Btf.from_file(str(path)).end == 22
        path.write_bytes(packed[: len(packed) // 2])
        with pytest.raises(BtfError, match="cannot be decompressed"):
            Btf.from_file(str(path))


def test_zstd_is_unpacked_or_refused_with_advice(tmp_path: Path) -> None:
    path = tmp_path / "m.ko.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(20))
    advice = "cannot be decompressed" if sys.version_info >= (3, 14) else "zstd -d"
    with pytest.raises(BtfError, match=advice):
        Btf.from_file(str(path))
    if sys.version_info >= (3, 14):
        from compression import zstd

        path.write_bytes(zstd.compress(object_file((b".BTF", every_kind().data()))))
        assert Btf.from_file(str(path)).end == 22


def test_a_module_with_a_base_of_its_own(tmp_path: Path) -> None:
    base = Btf(every_kind().data())
    out = BtfWriter(first=base.end, strings_before=base.strings_end)
    out.pointer(5)
    path = tmp_path / "m.ko"
    path.write_bytes(object_file((b".BTF", out.data()), (b".BTF.base", every_kind().data())))
    btf = Btf.from_file(str(path))
    assert declaration(btf, 22) == "struct s *"


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        pytest.param(object_file((b".text", b"x")), "without .BTF", id="no section"),
        pytest.param(object_file((b".BTF", b"x"))[:200], "damaged|ends|without", id="cut off"),
        pytest.param(b"\x7fELF", "damaged", id="four bytes"),
        pytest.param(b"hello", "BTF header of 24 bytes expected", id="text"),
        pytest.param(b"hello" * 20, "not BTF", id="more text"),
    ],
)
def test_files_without_btf(contents: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(contents)
    with pytest.raises(BtfError, match=message):
        Btf.from_file(str(path))


@need_vmlinux
def test_the_kernel_itself() -> None:
    btf = Btf.from_kernel()
    (number,) = btf.find("tcp_sendmsg", Kind.FUNC)
    function = btf.type(number)
    assert isinstance(function, Function)
    text = declaration(btf, function.type_id, function.name)
    assert text == "int tcp_sendmsg(struct sock *sk, struct msghdr *msg, size_t size)"
    assert Btf.from_kernel() is btf
    assert btf.size_of(find_type(btf, "struct list_head")) == 16


@need_vmlinux
def test_little_is_decoded_before_it_is_asked_for() -> None:
    code = (
        "from usdt.btf.reader import Btf\n"
        "from usdt.btf.format import Kind\n"
        "btf = Btf.from_kernel(); btf.find('tcp_sendmsg', Kind.FUNC); print(len(btf._types))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 10


def test_repeated_anonymous_types_are_bounded_in_a_header() -> None:
    types = BtfWriter()
    inner = types.integer("int", 4, Encoding.SIGNED)
    for _ in range(30):  # 2^30 members
        inner = types.composite(Kind.UNION, "", 4, [("", inner, 0, 0), ("", inner, 0, 0)])
    types.composite(Kind.STRUCT, "top", 4, [("a", inner, 0, 0)])
    data = types.data()
    text = "".join(header(Btf(data)))
    assert "left out: repeated too often" in text
    assert len(text) < 1 << 21


def test_a_repeated_anonymous_enumeration_is_bounded_in_a_header() -> None:
    types = BtfWriter()
    choice = types.enum("", 4, [(f"value_{index}", index) for index in range(500)])
    members = [(f"m{index}", choice, 32 * index, 0) for index in range(2000)]
    types.composite(Kind.STRUCT, "top", 8000, members)
    text = "".join(header(Btf(types.data())))
    assert "unsigned int /* an enum, left out: repeated too often */ m1999;" in text
    assert len(text) < 1 << 22
