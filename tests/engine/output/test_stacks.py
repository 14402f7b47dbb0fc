"""How stacks are shown: text, JSON and folded lines, also of names that lie."""

from __future__ import annotations

import json
import struct

import pytest
from support.planning import plan

from usdt.arch.locations import Unreadable
from usdt.engine.compiler.ir import U64
from usdt.engine.compiler.record.columns import IntColumn, SymbolKind, stack_column
from usdt.engine.compiler.record.layout import RecordField
from usdt.engine.language import parse_probe
from usdt.engine.language.tree import MAX_FRAMES, StackKind
from usdt.engine.output.formatters.event import EventFormatter
from usdt.engine.output.formatters.formatter import FieldSource
from usdt.engine.output.formatters.json import JsonFormatter
from usdt.engine.output.formatters.text import FoldedFormatter, TextFormatter
from usdt.engine.output.frames import Frame, folded, frame_json, frame_text, merged
from usdt.engine.output.kernel_symbols import KernelSymbols
from usdt.engine.output.stacks import StackResolver, addresses_in, no_frames
from usdt.engine.output.symbol_needs import wants_user_symbols

SYMBOLS = KernelSymbols(
    b"ffffffff81000000 T inner\nffffffff81000100 T outer\nffffffff81000200 T x\n"
)
USER, KERNEL = stack_column(StackKind.USER), stack_column(StackKind.KERNEL)
RAW = struct.pack("=3Q", 0xFFFFFFFF81000012, 0xFFFFFFFF81000134, 0)


class Users:
    """A source of user symbols that counts how often it is asked."""

    def __init__(self) -> None:
        self.notices = ["one notice"]
        self.asked = self.looks = 0
        self.news = False
        self.closed = False

    def frames(
        self,
        pid: int,
        addresses: list[int],
        exact: frozenset[int] = frozenset((0,)),
    ) -> list[Frame]:
        self.asked += 1
        return [Frame(address, f"f{pid}", 1, "prog") for address in addresses]

    def frame(self, pid: int, address: int) -> Frame:
        return Frame(address, f"f{pid}", 1, "prog")

    def observe(self, pid: int) -> bool:
        return self.news

    def look(self) -> None:
        self.looks += 1

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (Frame(0x1012, "main", 0x12, "prog"), "main+0x12 [prog]"),
        (Frame(0x1012, "f", 0, "[vdso]"), "f+0x0 [vdso]"),
        (Frame(0x7F12, "", 0x1C05, "libfast.so"), "0x7f12 [libfast.so+0x1c05]"),
        (Frame(0x7F12, "", 0, "[anon]"), "0x7f12 [anon]"),
        (Frame(0x7F12), "0x7f12 [unknown]"),
        (Frame(1, "a\x1b[31mb\nc", 2, "m\x07"), "a\\x1b[31mb\\nc+0x2 [m\\x07]"),
        (Frame(1, "\u202egnp", 2, "m"), "\\u202egnp+0x2 [m]"),
    ],
)
def test_a_frame_for_eyes(frame: Frame, text: str) -> None:
    assert frame_text(frame) == text
    assert frame_text(frame).isprintable()


def test_a_frame_as_json() -> None:
    assert json.loads(frame_json(Frame(5, 'a"b\n', 2, "m"))) == {
        "address": 5,
        "symbol": 'a"b\n',
        "offset": 2,
        "module": "m",
    }
    assert json.loads(frame_json(Frame(5)))["symbol"] is None


def test_a_folded_stack_has_the_outermost_frame_first() -> None:
    frames = [
        Frame(1 << 63, "sys_read", 1, "[kernel]"),
        Frame(3, "a;b", 1, "m"),
        Frame(2, "", 9, "libx.so"),
        Frame(1),
    ]
    assert folded(frames) == "[unknown];[libx.so];a:b;sys_read"
    assert folded(frames[:1], kernel=True) == "sys_read_[k]"


def test_addresses_end_at_the_first_zero_or_with_the_bytes() -> None:
    assert addresses_in(RAW) == [0xFFFFFFFF81000012, 0xFFFFFFFF81000134]
    assert addresses_in(struct.pack("=Q", 7) + b"cut") == [7]
    assert addresses_in(struct.pack(">2Q", 7, 8), ">") == [7, 8]
    assert addresses_in(b"") == []
    assert len(addresses_in(b"\1" * 8 * MAX_FRAMES)) == MAX_FRAMES


def test_a_stack_without_frames_says_why() -> None:
    resolver = StackResolver(kernel=SYMBOLS)
    for length in (0, -14):
        assert "no frames: hit in user mode" in resolver.text(KERNEL, 1, b"", length)
        assert "no frames" in json.loads(resolver.json(USER, 1, b"", length))["error"]
        assert resolver.value(USER, 1, b"", length) == Unreadable(no_frames(StackKind.USER, length))
        assert resolver.fold(KERNEL, 1, b"", length) == "[no kernel frames]"
    assert "errno 14" in no_frames(StackKind.USER, -14)


def test_a_kernel_stack_in_every_form() -> None:
    resolver = StackResolver(kernel=SYMBOLS)
    assert resolver.text(KERNEL, 1, RAW, 16) == (
        "\n        inner+0x12 [kernel]\n        outer+0x34 [kernel]"
    )
    assert [one["symbol"] for one in json.loads(resolver.json(KERNEL, 1, RAW, 16))] == [
        "inner",
        "outer",
    ]
    assert resolver.fold(KERNEL, 1, RAW, 16) == "outer_[k];inner_[k]"
    assert resolver.fold(stack_column(StackKind.KERNEL, 1), 1, RAW, 16) == "inner_[k]"
    assert resolver.text(stack_column(StackKind.KERNEL, 1), 1, RAW, 16).count("\n") == 1


def test_without_a_source_user_addresses_stay_numbers() -> None:
    resolver = StackResolver()
    assert resolver.frames(StackKind.USER, 1, [5]) == [Frame(5)]
    assert resolver.frame(SymbolKind.USER, 1, 5) == Frame(5)
    assert StackResolver(lambda: None).frames(StackKind.USER, 1, [5]) == [Frame(5)]


def test_a_stack_that_comes_again_is_named_once_until_there_is_news() -> None:
    users = Users()
    with StackResolver(lambda: users) as resolver:
        resolver.wanted = True
        for _ in range(5):
            assert resolver.fold(USER, 9, RAW, 16) == "f9;f9"
        assert users.asked == 1
        users.news = True
        resolver.observe((9,))
        users.news = False
        resolver.fold(USER, 9, RAW, 16)
        assert users.asked == 2
        assert resolver.take_notices() == ["one notice"]
        assert resolver.take_notices() == []
    assert users.closed


def test_nobody_is_looked_at_unless_user_stacks_are_shown() -> None:
    users = Users()
    resolver = StackResolver(lambda: users)
    resolver.begin((1, 2))
    assert not users.looks
    for form in (JsonFormatter(resolver), TextFormatter(stacks=resolver), EventFormatter(resolver)):
        resolver.wanted = False
        form.begin(plan("kstack").layout)
        assert not resolver.wanted
        form.begin(plan("usym(arg7)").layout)
        assert resolver.wanted
    resolver.begin((1, 2))
    assert users.looks


_KSTACK = RecordField("kstack", KERNEL)
_USTACK = RecordField("ustack", USER)
_NUMBER = RecordField("arg0", IntColumn(U64))


def test_text_shows_stacks_behind_all_values() -> None:
    form = TextFormatter(stacks=StackResolver(kernel=SYMBOLS))
    values = [
        FieldSource(_KSTACK, form.stack(KERNEL, "v0", "n0")),
        FieldSource(_NUMBER, form.integer("v1")),
    ]
    made = eval(f"lambda time, contexts, key, v0, n0, v1: {form.record(values)}", form.names)
    line = made(0, {0: ("head", "comm", 1)}, 0, RAW, 16, 42)
    assert line.endswith(
        "arg0=42  kstack=\n        inner+0x12 [kernel]\n        outer+0x34 [kernel]\n"
    )


def test_folded_lines_leave_values_out() -> None:
    form = FoldedFormatter(StackResolver(Users, SYMBOLS))
    values = [
        FieldSource(_KSTACK, form.stack(KERNEL, "v0", "n0")),
        FieldSource(_NUMBER, form.integer("v1")),
        FieldSource(_USTACK, form.stack(USER, "v0", "n0")),
    ]
    made = eval(f"lambda time, contexts, key, v0, n0, v1: {form.record(values)}", form.names)
    context = form.context(7, 7, 0, "a;b\n", "p:n")
    assert made(0, {0: context}, 0, RAW, 16, 42) == "a:b\\n;f7;f7;outer_[k];inner_[k] 1\n"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("p:n", False),
        ("p:n(arg0, kstack, ksym(arg0))", False),
        ("p:n(ustack)", True),
        ("p:n(arg0 > 1, usym(arg0 + 1))", True),
    ],
)
def test_which_probes_need_user_symbols(text: str, *, wanted: bool) -> None:
    assert wants_user_symbols(parse_probe(text)) is wanted


@pytest.mark.parametrize("name", ["_PyEval_EvalFrameDefault", "_PyEval_EvalFrameDefault.cold"])
def test_python_functions_replace_all_parts_of_the_interpreter(name: str) -> None:
    native = [Frame(1, "write"), Frame(2, name), Frame(3, "main")]
    python = [Frame(0, "work", file="a.py", line=1, python=True)]
    assert [frame.symbol for frame in merged(native, python)] == ["write", "work", "main"]
