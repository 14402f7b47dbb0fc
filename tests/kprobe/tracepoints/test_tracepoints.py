"""Formats → arguments, names of values, records → lines; no kernel is asked."""

from __future__ import annotations

import json
import os
import re
import struct
from pathlib import Path

import pytest
from support.planning import form

from kprobe.tracepoints import catalog
from kprobe.tracepoints import syscall_numbers_32bit as numbers32
from kprobe.tracepoints.fields import arguments_of, names_of
from kprobe.tracepoints.flag_names import flags_of
from kprobe.tracepoints.syscall_numbers import FORMATS, numbers, read_table
from usdt.arch.locations import ContextArea, Register, ValueClass, ValueType
from usdt.base.errors import LanguageError
from usdt.bpf.rings.ringbuf import HEADER
from usdt.engine.compiler.arguments import Display
from usdt.engine.compiler.plan import ProbePlan, make_plan
from usdt.engine.compiler.record.layout import HEADER_SIZE, BadLayout, RecordField
from usdt.engine.compiler.value_names import DevT, Errno, NamedNumber
from usdt.engine.language import parse_probe
from usdt.engine.output.decode import Decoder
from usdt.engine.output.formatters.event import EventFormatter
from usdt.engine.output.formatters.json import JsonFormatter
from usdt.engine.output.formatters.text import TextFormatter
from usdt.tracefs.format import parse_format

_FORMAT = """name: made
ID: 77
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:void * location;\toffset:8;\tsize:8;\tsigned:0;
\tfield:enum reason reason;\toffset:16;\tsize:4;\tsigned:0;
\tfield:dev_t dev;\toffset:20;\tsize:4;\tsigned:0;
\tfield:char name[16];\toffset:24;\tsize:16;\tsigned:0;
\tfield:__data_loc char[] path;\toffset:40;\tsize:4;\tsigned:0;
\tfield:__rel_loc u16[] words;\toffset:44;\tsize:4;\tsigned:0;
\tfield:short parts[4];\toffset:48;\tsize:8;\tsigned:1;
\tfield:unsigned int flags;\toffset:56;\tsize:4;\tsigned:0;
\tfield:int odd;\toffset:61;\tsize:4;\tsigned:1;
\tfield:struct in6_addr address;\toffset:65;\tsize:16;\tsigned:0;

print fmt: "location=%pS reason: %s flags=%s", REC->location, \
__print_symbolic(REC->reason, { 2, "NOT_SPECIFIED" }, { 3, "NO_SOCKET" }), \
__print_flags(REC->flags, "|", { 1, "ONE" }, { 2, "TWO" })
"""
_MADE = {one.name: one for one in arguments_of(parse_format(_FORMAT))}


def plan(items: str) -> ProbePlan:
    """The plan of a probe on this event."""
    text = f"tracepoint:a:made({items})" if items else "tracepoint:a:made"
    request = parse_probe(text)
    return make_plan(
        request.items, (*_MADE.values(),), text=text, probe="made", declared=0, kernel=True
    )


def record(made: ProbePlan, *parts: bytes) -> bytes:
    """A record as a program leaves it in the ring buffer."""
    body = struct.pack("=QIIII16s", 1, 2, 2, 0, 1, b"x") + b"".join(parts)
    assert len(body) == made.size
    return struct.pack("=II", len(body), 0)[:HEADER].ljust(HEADER, b"\0") + body


def shown(made: ProbePlan, form: object, data: bytes) -> str:
    decoder = Decoder(form)  # type: ignore[arg-type]
    decoder.add(1, "made", made)
    ((line,),) = decoder.batches(data)
    return line


def test_fields_become_arguments_by_their_types() -> None:
    assert [*_MADE] == [
        "location",
        "reason",
        "dev",
        "name",
        "path",
        "words",
        "parts",
        "flags",
        "odd",
        "address",
    ]
    assert _MADE["location"].display is Display.KERNEL_SYMBOL
    assert _MADE["reason"].fetch == Register(16, 4)
    assert _MADE["dev"].names == DevT()
    assert _MADE["name"].fetch == ContextArea(24, 16)
    assert _MADE["name"].display is _MADE["path"].display is Display.STRING
    assert _MADE["path"].fetch == ContextArea(40, 4, "data_loc")
    assert _MADE["words"].fetch == ContextArea(44, 4, "rel_loc")
    assert _MADE["words"].element == ValueType(ValueClass.UNSIGNED, 2)
    assert _MADE["parts"].element == ValueType(ValueClass.SIGNED, 2)
    assert isinstance(_MADE["odd"].fetch, ContextArea), "an odd offset cannot be loaded from"
    assert _MADE["address"].element == ValueType(ValueClass.UNSIGNED, 1)


def test_without_items_every_field_is_shown() -> None:
    forms = {output.key: form(output) for output in plan("").outputs}
    assert forms == {
        "location": "ksym",
        "reason": "integer",
        "dev": "integer",
        "name": "string",
        "path": "string",
        "words": "array",
        "parts": "array",
        "flags": "integer",
        "odd": "array",
        "address": "array",
    }


def test_names_come_from_print_fmt() -> None:
    names = names_of(parse_format(_FORMAT))
    assert names["reason"].find(3) == "NO_SOCKET"
    assert names["reason"].find(9) is None
    assert names["reason"].number_of("NO_SOCKET") == 3
    assert names["flags"].show(3) == "ONE|TWO"
    assert names["flags"].show(11) == "ONE|TWO|0x8"


@pytest.mark.parametrize(
    "items",
    [
        'name == "lo"',
        'path != "/etc/*"',
        'reason == "NO_SOCKET"',
        "flags & 2, flags == 3",
        "parts[3] < 0, parts[0]",
        "str(name), str(path, 5), buf(name, 4)",
        "hex(location), reason + 1",
    ],
)
def test_what_can_be_asked(items: str) -> None:
    assert plan(items).outputs


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ("name + 1", "a string is compared with another"),
        ("name < 5", "a string is compared with another"),
        ('reason == "NO_SOKET"', "did you mean NO_SOCKET?"),
        ("parts[4]", "a constant index, 0 to 3"),
        ("parts[reason]", "a constant index"),
        ("words[0]", "has a variable length; show all of it, unindexed"),
        ("words + 1", "can be shown, not calculated with"),
        ("location->next", "needs the type"),
        ("nmae", "did you mean name?"),
    ],
)
def test_what_cannot_be_asked(items: str, reason: str) -> None:
    with pytest.raises(LanguageError, match=re.escape(reason)):
        plan(items)


def test_a_symbol_compares_as_its_number() -> None:
    assert plan('reason == "NO_SOCKET"').predicates == plan("reason == 3").predicates


def test_named_numbers_and_arrays_in_every_form() -> None:
    made = plan("reason, parts, flags")
    array = struct.pack("=q4h", 8, -1, 2, 3, 4)
    data = record(made, struct.pack("=Q", 3), array, struct.pack("=Q", 5))
    line = json.loads(shown(made, JsonFormatter(), data))
    assert line["args"] == {"reason": 3, "parts": [-1, 2, 3, 4], "flags": 5}
    assert line["names"] == {"reason": "NO_SOCKET", "flags": "ONE|0x4"}
    text = shown(made, TextFormatter(offset=0), data)
    assert text.endswith("reason=NO_SOCKET  parts=[-1, 2, 3, 4]  flags=ONE|0x4\n")
    event: object = shown(made, EventFormatter(), data)
    args = event.args  # type: ignore[attr-defined]
    assert args == {"reason": 3, "parts": [-1, 2, 3, 4], "flags": 5}
    assert str(args["reason"]) == "NO_SOCKET"


def test_numbers_without_a_name_stay_numbers() -> None:
    made = plan("reason")
    data = record(made, struct.pack("=Q", 99))
    assert "names" not in json.loads(shown(made, JsonFormatter(), data))
    assert shown(made, TextFormatter(offset=0), data).endswith("reason=99\n")


def test_layouts_with_names_can_be_written_and_read() -> None:
    layout = plan("reason, parts, flags").layout
    again = type(layout).from_json(json.loads(json.dumps(layout.to_json())))
    assert again == layout
    damaged = layout.to_json()["fields"][0]
    for wrong in ({"kind": "other"}, [], {**damaged["names"], "table": [[1]]}):
        with pytest.raises(BadLayout):
            RecordField.from_json({**damaged, "names": wrong})
    assert layout.size > HEADER_SIZE


def test_error_numbers_devices_and_flags_have_names() -> None:
    assert Errno().show(-2) == "-ENOENT"
    assert Errno().show(-4096) == "-4096"
    assert Errno().show(3) == "3"
    assert DevT().show(254 << 20 | 3) == "254:3"
    opened = flags_of("openat", "flags", "int")
    assert opened is not None
    assert opened.show(0) == "O_RDONLY"
    assert opened.show(0o101) == "O_WRONLY|O_CREAT"
    sync = flags_of("mmap", "prot", "unsigned long")
    assert sync is not None
    assert sync.show(0) == "PROT_NONE"
    assert sync.show(5) == "PROT_READ|PROT_EXEC"
    assert flags_of("read", "fd", "int") is None


def test_a_named_number_is_a_number() -> None:
    number = NamedNumber(3, "NO_SOCKET")
    assert number == 3
    assert json.dumps(number) == "3"
    assert f"{number}" == str(number) == "NO_SOCKET"


def test_numbers_of_system_calls_are_those_of_the_header() -> None:
    header = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
    if not header.exists():
        pytest.skip("needs the header asm/unistd_64.h: apt-get install linux-libc-dev")
    found = re.findall(r"#define __NR_(\w+) (\d+)", header.read_text())
    known = numbers()
    assert {name: int(number) for name, number in found}.items() <= known.items()
    assert len(known) > len(found) > 300
    assert FORMATS.keys() <= known.keys()


def test_numbers_of_32_bits_are_those_of_the_header() -> None:
    header = Path("/usr/include/x86_64-linux-gnu/asm/unistd_32.h")
    if not header.exists():
        pytest.skip("needs the header asm/unistd_32.h: apt-get install linux-libc-dev")
    found = dict(re.findall(r"#define __NR_(\w+) (\d+)", header.read_text()))
    known = read_table(f"{numbers32.I386} {numbers32.TIMES}")
    assert known.items() <= {name: int(number) for name, number in found.items()}.items()
    assert len(known) > 400
    arm = read_table(f"{numbers32.ARM} {numbers32.TIMES}")
    # arch/arm/tools/syscall.tbl; the numbers of both begin alike.
    assert (arm["openat"], arm["execve"], arm["kexec_file_load"]) == (322, 11, 401)
    assert {n: arm[n] for n in ("fork", "lchown32", "pwrite64")} == {
        n: known[n] for n in ("fork", "lchown32", "pwrite64")
    }


@pytest.mark.parametrize(
    ("name", "there", "event"),
    [
        ("futex_time64", "futex futex_time32", "futex"),
        ("clock_gettime64", "clock_gettime clock_gettime32", "clock_gettime"),
        ("getuid32", "getuid getuid16", "getuid"),
        ("futex", "futex futex_time32", "futex_time32"),
        ("clock_gettime", "clock_gettime clock_gettime32", "clock_gettime32"),
        ("getuid", "getuid getuid16", "getuid16"),
        ("pread64", "ia32_pread64", "ia32_pread64"),
        ("pread64", "pread64", "pread64"),
        ("openat", "openat", "openat"),
    ],
)
def test_events_of_32_bit_kernels_are_named_for_what_they_lack(
    name: str, there: str, event: str
) -> None:
    assert next(one for one in numbers32.later_names(name) if one in there.split()) == event


def test_a_group_that_is_removed_while_it_is_listed_has_no_events(tmp_path: Path) -> None:
    (tmp_path / "mine/one").mkdir(parents=True)
    (tmp_path / "gone").mkdir()
    with os.scandir(tmp_path) as entries:
        groups = {entry.name: entry for entry in entries}
    (tmp_path / "gone").rmdir()
    found = {name: catalog.events_of(group) for name, group in groups.items()}
    assert found == {"mine": ["one"], "gone": []}
