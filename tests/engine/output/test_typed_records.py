"""Structures from plan to line: what is recorded by a program, and what each form makes of it."""

from __future__ import annotations

import json
import re
import struct
from typing import TYPE_CHECKING, Any

import pytest
from bpfmachine import Machine
from support.planning import form
from typedthings import IDS, NUMBERS, SIZE, thing, things, typed_plan

from usdt.arch.locations import Unreadable
from usdt.base.errors import LanguageError
from usdt.btf.values.read_plan import ReadPlans
from usdt.engine.compiler.codegen.expressions import memory as reading
from usdt.engine.compiler.codegen.model import ProgramVariant, TaskFilter
from usdt.engine.compiler.codegen.program import generate
from usdt.engine.compiler.record.layout import RecordLayout
from usdt.engine.output.decode import Decoder
from usdt.engine.output.formatters.event import EventFormatter
from usdt.engine.output.formatters.json import JsonFormatter
from usdt.engine.output.formatters.text import TextFormatter, titled

if TYPE_CHECKING:
    from usdt.engine.compiler.plan import ProbePlan
    from usdt.engine.output.formatters.formatter import Formatter

KERNEL = 0xFFFF888100000000
USER = 0x7F0000001000


def records(made: ProbePlan, machine: Machine) -> bytes:
    """What a program writes, with the ring buffer's headers."""
    machine.run(generate([ProgramVariant(1, 0, made)], TaskFilter(), sleepable=False))
    return b"".join(struct.pack("=II", len(one), 0) + one for one in machine.records)


def shown(form: Formatter, made: ProbePlan, machine: Machine) -> Any:
    """The one event's."""
    decoder = Decoder(form)
    decoder.add(1, "rawtp:q", made)
    ((found,),) = decoder.batches(records(made, machine))
    return found


def machine(t: int, n: int = 0, s: int = 0, **more: Any) -> Machine:
    """With the arguments of typed_plan()."""
    context = struct.pack("=Qi4xQ", t, n, s).ljust(168, b"\0")
    return Machine(context=context, **more)


def value_of(data: bytes) -> Any:
    """An independent reader's."""
    return ReadPlans(things()).read(IDS["thing"], data)


@pytest.mark.parametrize(("address", "space"), [(KERNEL, "kernel"), (USER, "user")])
def test_a_pointer_that_is_named_shows_what_it_points_at(address: int, space: str) -> None:
    made = typed_plan("t, *t, t->in")
    memory = {address: thing()}
    here = machine(address, **{space: memory})
    line = json.loads(shown(JsonFormatter(), made, here))
    expected = value_of(thing())
    assert line["args"] == {"t": expected, "*t": expected, "t->in": {"a": 11, "b": -12}}
    places = line["memory"]
    assert places["t"] == places["*t"] == {"address": hex(address), "space": space}
    assert places["t->in"] == {"address": hex(address + 16), "space": space}
    event = shown(EventFormatter(), made, machine(address, **{space: memory}))
    assert event.args == line["args"]


def test_without_items_pointers_stay_numbers_on_one_line() -> None:
    made = typed_plan("")
    here = machine(KERNEL, -5, KERNEL + 4096, kernel={KERNEL + 4096: b"text\0"})
    assert shown(EventFormatter(), made, here).args == {"t": hex(KERNEL), "n": -5, "s": "text"}
    here = machine(KERNEL, -5, KERNEL + 4096, kernel={KERNEL + 4096: b"text\0"})
    line = shown(TextFormatter(), made, here)
    assert line.count("\n") == 1
    assert line.endswith(f't={KERNEL:#x}  n=-5  s="text"\n')


SHORT = (
    'name="lo", label=0x1000, in={a=11, b=-12}, next=0x2000, fn=0x3000, where=0x4000, ok=true, '
    "low=5, more=-3, colour=BLUE, x=99, y=99, big=[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], …"
)


def test_arguments_in_short_are_structures_on_one_line_without_larger_ones() -> None:
    made = typed_plan("", in_short=True)
    memory = {KERNEL: thing(), KERNEL + 4096: b"text\0"}
    line = shown(TextFormatter(), made, machine(KERNEL, 7, KERNEL + 4096, kernel=memory))
    assert line.endswith(f't=*({KERNEL:#x}) {{{SHORT}}}  n=7  s="text"\n')
    line = json.loads(shown(JsonFormatter(), made, machine(KERNEL, 7, 0, kernel=memory)))
    expected = value_of(thing())
    del expected["many"]
    assert line["args"]["t"] == expected
    place = {"address": hex(KERNEL), "space": "kernel", "short": True}
    assert line["memory"]["t"] == place


def test_a_structure_in_short_that_cannot_be_read_or_is_cut() -> None:
    made = typed_plan("", in_short=True, max_struct=16)
    line = shown(TextFormatter(), made, machine(0, 7, 0))
    assert line.endswith("t=NULL  n=7  s=?(NULL pointer)\n")
    line = shown(TextFormatter(), made, machine(KERNEL, 7, 0))
    assert f"t=*({KERNEL:#x}) ?(memory not readable)  n=7" in line
    line = shown(TextFormatter(), made, machine(KERNEL, 7, 0, kernel={KERNEL: thing()[:16]}))
    assert 't=*(0xffff888100000000) {name="lo", label=0x1000, ' in line
    assert f"…}} /* 16 bytes of {SIZE} */" in line


WIDE = """\
       123456789    3       10 rawtp:q(
                                   n =@
                                    (int)7,
                                   t = *(0xffff888100000000)
                                    (struct thing){
                                     .name = (char[8])"lo",
                                     .label = (char *)0x1000,
                                     .in = (struct inner){
                                      .a = (int)11,
                                      .b = (int)-12,
                                     },
                                     .next = (struct inner *)0x2000,
                                     .fn = (int (*)(int x))0x3000,
                                     .where = (void *)0x4000,
                                     .ok = (bool)true,
                                     .low = (unsigned int)5,
                                     .more = (int)-3,
                                     .colour = (enum colour)BLUE,
                                     .many = (struct inner[3])[
                                      {
                                       .a = 1,
                                       .b = -2,
                                      },
                                      {
                                       .a = 3,
                                       .b = -4,
                                      },
                                      {
                                       .a = 5,
                                       .b = -6,
                                      },
                                     ],
                                     (union){
                                      .x = (unsigned int)99,
                                      .y = (int)99,
                                     },
"""


def test_wide_values_are_laid_out_as_ksnoop_does() -> None:
    form = TextFormatter()
    text = shown(form, typed_plan("n, t"), machine(KERNEL, 7, kernel={KERNEL: thing()}))
    assert text.startswith(WIDE.replace("@", " "))
    assert text.endswith(f"{' ' * 31});\n\n")
    first = titled(form, [text])
    assert first[0] == "            TIME  CPU      PID FUNCTION/ARGS\n"
    assert titled(form, [text]) == [text], "the header comes once"


def test_small_structures_stay_on_the_line() -> None:
    made = typed_plan("t->in, t->next, n")
    memory = {KERNEL: thing(follows=KERNEL + 512), KERNEL + 512: struct.pack("=ii", 0, 3)}
    line = shown(TextFormatter(), made, machine(KERNEL, 7, kernel=memory))
    assert line.endswith(f"t->in={{a=11, b=-12}}  t->next=*({KERNEL + 512:#x}) {{b=3}}  n=7\n")


def test_null_and_unreadable_pointers_are_shown_and_the_rest_is_delivered() -> None:
    made = typed_plan("t, n, s, t->next, t->in.a")
    line = json.loads(shown(JsonFormatter(), made, machine(0, 7, 0)))
    null, unread = {"error": "NULL pointer"}, {"error": "memory not readable"}
    far = {"error": "the memory that holds its address is not readable"}
    assert line["args"] == {"t": null, "n": 7, "s": null, "t->next": far, "t->in.a": unread}
    assert line["memory"] == {"t": {"address": "0x0"}}
    line = json.loads(shown(JsonFormatter(), made, machine(KERNEL, 7, KERNEL)))
    assert line["args"] == {"t": unread, "n": 7, "s": unread, "t->next": far, "t->in.a": unread}
    assert line["memory"]["t"] == {"address": hex(KERNEL)}
    event = shown(EventFormatter(), made, machine(0, 7, 0))
    assert event.args["t"] == Unreadable("NULL pointer")
    text = shown(TextFormatter(), made, machine(KERNEL, 7, 0))
    assert f"t = *({KERNEL:#x}) ?(memory not readable),\n" in text
    assert "t = NULL,\n" in shown(TextFormatter(), made, machine(0, 7, 0))


def test_what_does_not_fit_is_cut_and_said() -> None:
    made = typed_plan("t", max_struct=30)
    here = machine(KERNEL, kernel={KERNEL: thing()[:30]})
    text = shown(TextFormatter(), made, here)
    assert f"... /* 30 bytes of {SIZE} */\n" in text
    assert ".fn" not in text
    line = json.loads(shown(JsonFormatter(), made, machine(KERNEL, kernel={KERNEL: thing()[:30]})))
    value = line["args"]["t"]
    assert (value["name"], value["in"]) == ("lo", {"a": 11, "b": -12})
    assert value["next"] is None
    assert value["ok"] is None
    assert line["memory"]["t"] == {
        "address": hex(KERNEL),
        "space": "kernel",
        "bytes": 30,
        "size": SIZE,
    }


@pytest.mark.parametrize(
    ("item", "value"),
    [
        ("t->name", "lo"),
        ("t->label", "at 0x1000"),
        ("t->in.b", -12),
        ("t->in.b + n", -5),
        ("t->low", 5),
        ("t->more", -3),
        ("t->ok", True),
        ("t->colour", 7),
        ("t->x", 99),
        ("t->many[2].b", NUMBERS[5]),
        ("(t->many[0].b - t->many[1].b) + 0", 2),
        ("t->big[12]", 12),
        ("((struct inner *)t)->a", int.from_bytes(b"lo\0\0", "little")),
        ("(t + 1)->in.a", 11),
        ("hex(t)", hex(KERNEL)),
        ("t->hidden", "0x0"),
        ("t->where", "0x4000"),
        ("t->big", list(range(13))),
    ],
)
def test_members_by_their_types(item: str, value: Any) -> None:
    memory = {KERNEL: thing() * 2, 0x1000: b"at 0x1000\0"}
    here = machine(KERNEL, 7, kernel=memory, user={0x1000: b"at 0x1000\0"})
    event = shown(EventFormatter(), typed_plan(item), here)
    (found,) = event.args.values()
    assert found == value


@pytest.mark.parametrize(
    ("predicate", "holds"),
    [
        ('t->name == "lo"', True),
        ('t->name == "l*"', True),
        ('t->name != "lo"', False),
        ('t->name == "lo-and-more"', False),
        ('str(t->name) == "lo"', True),
        ('t->colour == "BLUE"', True),
        ('t->colour == "GREEN"', False),
        ("t->ok", True),
        ("t->more == -3", True),
        ("t->next", True),
    ],
)
def test_predicates_on_members(predicate: str, holds: bool) -> None:
    predicate = predicate if "=" in predicate else f"{predicate} != 0"
    here = machine(KERNEL, kernel={KERNEL: thing()})
    assert bool(records(typed_plan(predicate), here)) is holds


def test_an_array_of_text_that_is_full_has_no_nul() -> None:
    memory = {KERNEL: thing(name=b"12345678", label=0x41)}
    assert shown(EventFormatter(), typed_plan("t->name"), machine(KERNEL, kernel=memory)).args == {
        "t->name": "12345678"
    }
    for text, holds in (("12345678", True), ("1234567", False), ("12345678A", False)):
        here = machine(KERNEL, kernel=memory)
        assert bool(records(typed_plan(f't->name == "{text}"'), here)) is holds


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ("t->lenght", "struct thing has no member 'lenght'"),
        ("t->hidden->x", "struct hidden is only named here: its members are not known"),
        ("*t->where", "of no known size: cast it"),
        ("t->where[1]", "of no known size: cast it"),
        ("*t->fn", "of no known size: cast it"),
        ("t.name", "a pointer: write ->name"),
        ("t->in->a", "a structure: write .a"),
        ("n->x", "int is no structure: it has no member 'x'"),
    ],
)
def test_mistakes_are_told(item: str, reason: str) -> None:
    with pytest.raises(LanguageError, match=re.escape(reason)):
        typed_plan(item)


def test_where_address_spaces_overlap_the_kernels_come_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As on s390x: one number is an address of both.
    monkeypatch.setattr(reading, "_ADDRESS_SPACES_DISJOINT", False)
    made = typed_plan('t, t->in.a, s, *(int *)(n + 4096), s == "kernel"')
    both = {"kernel": {4096: thing(), 8192: b"kernel\0"}, "user": {4096: b"\x02\0\0\0" * 60}}
    args = json.loads(shown(JsonFormatter(), made, machine(4096, 0, 8192, **both)))["args"]
    assert args["t"] == value_of(thing())
    assert (args["t->in.a"], args["s"]) == (11, "kernel")
    assert args["*(int*)(n+4096)"] == struct.unpack("=i", b"\x02\0\0\0")[0], "nobody's type"
    user = {"user": {4096: thing(), 8192: b"user\0"}}
    line = json.loads(shown(JsonFormatter(), typed_plan("t, s"), machine(4096, 0, 8192, **user)))
    assert line["args"]["t"] == value_of(thing())
    assert line["memory"]["t"]["space"] == "user"
    assert line["memory"]["s"] == {"space": "user"}
    text = shown(TextFormatter(), typed_plan("s"), machine(4096, 0, 8192, **user))
    assert text.endswith('s="user" /* user */\n')


def test_the_first_page_is_nobodys_where_address_spaces_overlap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # s390x has memory there: members of a NULL pointer would be made up.
    monkeypatch.setattr(reading, "_ADDRESS_SPACES_DISJOINT", False)
    here = machine(0, kernel={0: thing()})
    args = json.loads(shown(JsonFormatter(), typed_plan("t, t->in.a, t->name"), here))["args"]
    unread = {"error": "memory not readable"}
    assert args["t"] == {"error": "NULL pointer"}
    assert args["t->in.a"] == unread
    assert args["t->name"] == {"error": "NULL pointer"}


def test_of_a_process_nothing_is_said_of_whose_memory_it_is() -> None:
    made = typed_plan("t->in, s", kernel=False)
    here = machine(USER, s=USER + 4096, user={USER: thing(), USER + 4096: b"text\0"})
    line = json.loads(shown(JsonFormatter(), made, here))
    assert line["args"] == {"t->in": {"a": 11, "b": -12}, "s": "text"}
    assert line["memory"] == {"t->in": {"address": hex(USER + 16)}}


def test_a_layout_is_what_it_was_after_json() -> None:
    layout = typed_plan("t, n, t->ok, t->colour, t->fn, s").layout
    again = RecordLayout.from_json(json.loads(json.dumps(layout.to_json())))
    assert again == layout
    assert hash(again) == hash(layout)
    forms = [form(field) for field in layout.fields]
    assert forms == ["typed", "integer", "bool", "integer", "ksym", "string"]
