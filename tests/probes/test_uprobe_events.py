"""Operands, items and predicates as definitions of the kernel's event tracer."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from fixtures import FIXTURES, build
from planning import plan
from support.planning import form

import usdt
from kprobe.events import Dialect, parse
from kprobe.events.syntax_2009 import translate
from usdt.arch.operands import arch_of
from usdt.base.errors import TracingError
from usdt.base.machine import word_size
from usdt.engine.compiler.ir import ArgumentValue, Number, Unavailable
from usdt.engine.language import parse_probe
from usdt.engine.runtime.tracefs_backend.evaluate import evaluate, leaves
from usdt.engine.runtime.tracefs_backend.event_plan import EventContext, EventDecoder, plan_event
from usdt.engine.runtime.tracefs_backend.fetch_args import FetchArgBuilder, UnsupportedFetch
from usdt.probes.argspec import parse_arguments
from usdt.probes.probe import read_probes
from usdt.probes.uprobe_events import site_events
from usdt.tracefs.format import parse_format

if TYPE_CHECKING:
    from usdt.engine.compiler.ir import Node

OFFSET = 0x1000  # of the site, in the file and in memory
SYMBOL = 0x5008  # where every symbol is
KERNELS = {"i386": "x86_64", "s390": "s390x"}


def fetched(machine: str, text: str) -> str:
    """What a definition has for an operand."""
    (operand,) = parse_arguments(text, machine)
    arch = arch_of(machine)
    assert arch is not None
    fetch = arch.fetch(
        operand,
        symbol_address=lambda _: SYMBOL,
        location=OFFSET,
        machine=machine,
        elf_type=3,
    )
    fetching = FetchArgBuilder(OFFSET, word_size(machine), KERNELS.get(machine, machine))
    return fetching.number(ArgumentValue(fetch, arch.value_type(operand))).text


@pytest.mark.parametrize(
    ("machine", "operand", "expected"),
    [
        ("x86_64", "8@%rdi", "%di:u64"),
        ("x86_64", "-4@%eax", "%ax:s32"),
        ("x86_64", "2@%r9w", "%r9:u16"),
        ("x86_64", "-1@%sil", "%si:s8"),
        ("x86_64", "1@%ah", "%ax:b8@8/16"),
        ("x86_64", "-4@-20(%rbp)", "-20(%bp):s32"),
        ("x86_64", "8@(%rsp)", "+0(%sp):u64"),
        ("x86_64", "8f@8(%rsp)", "+8(%sp):x64"),
        ("x86_64", "4f@%eax", "%ax:x32"),
        ("x86_64", "-4@$-7", "\\-7:s32"),
        ("x86_64", "8@counter(%rip)", "+16392(%ip):u64"),
        ("x86_64", "8@counter+8(%rip)", "+16400(%ip):u64"),
        ("i386", "-4@%ecx", "%cx:s32"),
        ("i386", "4@8(%ebp)", "+8(%bp):u32"),
        ("aarch64", "8@x19", "%x19:u64"),
        ("aarch64", "-4@w30", "%lr:s32"),
        ("aarch64", "-4@[sp, 12]", "+12(%sp):s32"),
        ("arm", "4@r3", "%r3:u32"),
        ("arm", "-4@[fp, #-8]", "-8(%fp):s32"),
        ("s390x", "8@%r7", "%r7:u64"),
        ("s390x", "-4@%r2", "%r2:s32"),
        ("s390x", "8@160(%r15)", "+160(%r15):u64"),
        ("ppc64le", "8@9", "%gpr9:u64"),
        ("ppc64le", "-4@112(31)", "+112(%gpr31):s32"),
        ("riscv64", "8@a0", "%a0:u64"),
        ("riscv64", "-4@-20(s0)", "-20(%s0):s32"),
        ("mips64el", "8@$4", "%r4:u64"),
        ("loongarch64", "8@$r4", "%r4:u64"),
    ],
)
def test_operands_become_fetch_arguments(machine: str, operand: str, expected: str) -> None:
    assert fetched(machine, operand) == expected


@pytest.mark.parametrize(
    ("operand", "reason"),
    [
        ("4@(%rax,%rbx,4)", "indexed memory"),
        ("8f@%xmm0", "is not saved where a program can read it"),
        ("8@%fs:16", "thread-local"),
        ("8@$counter", "the address of a symbol"),
        ("8@-123456789(%rbp)", ""),
    ],
)
def test_what_no_definition_can_fetch_is_said(operand: str, reason: str) -> None:
    if not reason:
        assert fetched("x86_64", operand) == "-123456789(%bp):u64"
        return
    with pytest.raises(UnsupportedFetch, match=reason):
        fetched("x86_64", operand)


def condition(text: str) -> str:
    """The kernel's filter for items on arguments of every type."""
    return plan_event(plan(text), FetchArgBuilder(OFFSET, 8, "x86_64")).filter


# arg0…arg7 are s8, u8, s16 … u64; a0… are the fields, in the order in which they are needed.
@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        ("arg4 > 3", "a0 > 3"),
        ("3 > arg4", "a0 < 3"),
        ("arg0 == -1", "a0 == -1"),
        ("arg4 < 3 && arg7 != 0", "(a0 < 3) && (a1 != 0)"),
        ("arg4 < 3 || !(arg4 > 9)", "(a0 < 3) || (a0 <= 9)"),
        ("!arg4", "a0 == 0"),
        ('str(arg7) == "GET"', 'a0 == "GET"'),
        ('str(arg7) != "GET"', 'a0 != "GET"'),
        ('str(arg7) == "GET /*"', 'a0 ~ "GET /*"'),
        ('comm == "nginx"', 'comm == "nginx"'),
        ("cpu == 1", "CPU == 1"),
        ("arg4 + 1 > 3", ""),
        ("arg4 > arg5", ""),
        ("arg4 > 3u", ""),
        ('str(arg7) == "*a*b*"', 'a0 ~ "*a*b*"'),
        ('str(arg7) != "*a"', '!(a0 ~ "*a")'),
        ('comm == "*in*"', 'comm ~ "*in*"'),
        ('str(arg7, 9) == "*a"', ""),
        (r'str(arg7) == "a\**"', ""),
        ("arg4 + 1 > 3, arg5 == 2", "a1 == 2"),
    ],
)
def test_predicates_become_filters_as_far_as_they_go(predicate: str, expected: str) -> None:
    assert condition(predicate) == expected


def test_a_predicate_on_what_is_not_recorded_is_refused() -> None:
    with pytest.raises(TracingError, match="cannot be decided through tracefs: uid"):
        condition("uid == 0")


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ("arg4 * 2 - 1", 199),
        ("arg0 < 0", 1),
        ("arg5 / 7", 14),
        ("arg4 / (arg5 - 100)", None),
        ("arg5 != 100 && 1 / (arg5 - 100)", 0),
        ("(char)(arg4 + 100)", -56),
        ("~arg7 >> 60", 15),
    ],
)
def test_what_is_computed_from_fields_follows_the_rules_of_c(item: str, expected: int) -> None:
    made = plan(f"{item}, 1")
    node = made.predicates[0] if made.predicates else made.outputs[0].node

    def leaf(node: Node) -> Node:
        return Number(-100 if node.type.size == 1 else 100, node.type)

    assert list(leaves(node))
    found = evaluate(node, leaf, lambda _: None)
    assert found.value == expected if isinstance(found, Number) else isinstance(found, Unavailable)
    assert isinstance(found, Number) or expected is None


def test_items_that_cannot_be_fetched_are_shown_with_their_reason() -> None:
    made = plan_event(plan("arg4, uid, ustack"), FetchArgBuilder(OFFSET, 8, "x86_64"))
    assert [key for key, _ in made.problems] == ["uid", "ustack"]
    assert [form(field) for field in made.layout.fields] == ["integer", "opaque", "opaque"]


FORMAT = """name: e
ID: 1500
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:unsigned long __probe_ip;\toffset:8;\tsize:8;\tsigned:0;
\tfield:u32 case;\toffset:16;\tsize:4;\tsigned:0;
\tfield:__data_loc char[] a0;\toffset:20;\tsize:4;\tsigned:1;
\tfield:__data_loc char[] comm;\toffset:24;\tsize:4;\tsigned:1;

print fmt: "(%lx)", REC->__probe_ip
"""


@pytest.mark.parametrize(
    ("place", "name", "expected"),
    [
        pytest.param((28, 4), (32, 3), (4, b"abc"), id="a string"),
        pytest.param((28, 1), (29, 3), (1, b""), id="an empty one"),
        pytest.param((28, 0), (28, 3), (-14, b""), id="one that could not be read"),
        pytest.param((28, 7), (28, 7), (-14, b""), id="one that older kernels leave all the room"),
        pytest.param((28, 7), (35, 0), (-75, b""), id="one that took the room of the name"),
        pytest.param((28, 400), (428, 4), (-14, b""), id="one outside the record"),
    ],
)
def test_strings_that_were_not_recorded_are_told(
    place: tuple[int, int], name: tuple[int, int], expected: tuple[int, bytes]
) -> None:
    event = plan_event(plan("str(arg7)"), FetchArgBuilder(OFFSET, 8, "x86_64"))
    made = EventDecoder(event, parse_format(FORMAT))
    where = (length << 16 | offset for offset, length in (place, name))
    record = struct.pack("=HBBiQIII", 1500, 0, 0, 7, OFFSET, 0, *where) + b"abc\0xy\0"
    values = made.unpack(record)
    row = made.row(values, b"", record, EventContext(5, 7, 7, 0))
    assert row is not None
    assert row[-2:] == expected
    assert (made.name(record, values) is None) == (not name[1] or name[0] > len(record))


@pytest.mark.parametrize(
    "program", sorted({name for _, name in FIXTURES} - {"many10k", "dlopened", "libpair"})
)
def test_every_definition_is_one_that_the_kernel_takes(program: str) -> None:
    dialect = Dialect.of("6.18", "x86_64")
    path = build("default", program)
    names = []
    taken: set[str] = set()
    for probe in read_probes(str(path)).probes:
        for event in site_events(probe, parse_probe("*:*"), taken=taken):
            parsed = parse(event.text, dialect)
            assert parse(str(parsed), dialect) == parsed
            assert translate(event.text) == (event.text, [])  # nothing is taken for an old spelling
            names.append(parsed.event)
    assert names
    assert len(set(names)) == len(names)


def test_the_command_says_what_it_cannot_say() -> None:
    from click.testing import CliRunner

    from usdt.cli.group import usdt as command

    path = str(build("default", "strings"))
    words = ["events", path, "strings:heap(str(arg0), arg1 > 3, comm, tid, arg0 + 1)"]
    done = CliRunner().invoke(command, words)
    lines = done.output.splitlines()
    assert done.exit_code == 0, done.output
    (line,) = [line for line in lines if not line.startswith("#")]
    assert "str_arg0=+0(" in line
    assert "comm=$comm:string" in line
    assert "# tid: in every record: common_pid" in lines
    assert any(line.startswith("# arg0+1: a computed value") for line in lines)
    assert lines[-1].endswith("filter: value > 3")
    assert usdt.list_probes(path, pattern="strings:heap")
