"""Where values are passed, as compilers have it, for every CPU there is one for."""

from __future__ import annotations

import re

import pytest
from cross import TRIPLETS, assembly_of

from usdt.arch.abi import NotReadable, Passed, PassedInMemory, PassedInRegisters, Value, passing_of
from usdt.arch.calling_convention import CONVENTIONS
from usdt.arch.pt_regs import PT_REGS
from usdt.base.machine import word_size
from usdt.btf.format import Encoding, Kind
from usdt.btf.reader import Btf
from usdt.btf.writer import BtfWriter

# How a compiler spells a register, and a load from the stack.
SPELLED = {
    "x86_64": (r"%{0}\b", r"{offset}\(%rsp\)"),
    "i386": (r"%{0}\b", r"{offset}\(%esp\)"),
    "aarch64": (r"\b[xw]{number}\b", r"\[sp(?:, {offset})?\]"),
    "arm": (r"\b{0}\b", r"\[sp(?:, #{offset})?\]"),
    "ppc64le": (r"\b{number}\b", r"{offset}\(1\)"),
    "riscv64": (r"\b{0}\b", r"{offset}\(sp\)"),
    "s390x": (r"%{0}\b", r"{offset}\(%r15\)"),
}
TYPES = """
struct small { int a; char b; };
struct pair { long a; int b; };
struct large { long a, b, c; };
struct real { double a, b; };
struct mixed { double a; long b; };
struct single { float a; };
struct crooked { char a; long b; } __attribute__((packed));
struct nothing {};
extern volatile long out;
"""
_LONG_DOUBLE = {"i386": 12, "arm": 8}


class Types:
    """The same types in BTF, for a CPU."""

    def __init__(self, machine: str = "x86_64") -> None:
        word = word_size(machine)
        made = BtfWriter()
        self.ids: dict[str, int] = {
            "int": made.integer("int", 4, Encoding.SIGNED),
            "long": made.integer("long", word, Encoding.SIGNED),
            "char": made.integer("char", 1, Encoding.SIGNED),
            "long long": made.integer("long long", 8, Encoding.SIGNED),
            "__int128": made.integer("__int128", 16, Encoding.SIGNED),
            "float": made.record(Kind.FLOAT, "float", 4),
            "double": made.record(Kind.FLOAT, "double", 8),
            "long double": made.record(Kind.FLOAT, "long double", _LONG_DOUBLE.get(machine, 16)),
        }
        self.ids["char *"] = made.pointer(self.ids["char"])
        self._writer = made
        byte, wide = 8, 8 * word
        self._struct("small", 8, ("a", "int", 0), ("b", "char", 32))
        self._struct("pair", 2 * word, ("a", "long", 0), ("b", "int", wide))
        self._struct(
            "large", 3 * word, ("a", "long", 0), ("b", "long", wide), ("c", "long", 2 * wide)
        )
        self._struct("real", 16, ("a", "double", 0), ("b", "double", 64))
        self._struct("mixed", 8 + word, ("a", "double", 0), ("b", "long", 64))
        self._struct("single", 4, ("a", "float", 0))
        self._struct("crooked", 1 + word, ("a", "char", 0), ("b", "long", byte))
        self._struct("nothing", 0)
        self.ids["()"] = made.integer("()", 0, 0)
        self.ids["no float"] = made.record(Kind.FLOAT, "no float", 0)
        self.ids["complex"] = made.record(Kind.FLOAT, "complex", 1)
        self._struct("unit", 4, ("a", "()", 0), ("b", "int", 0))
        self._struct("unreal", 8, ("a", "no float", 0), ("b", "complex", 8))
        self._struct("padding", 8, ("a", "()", 0))
        self.btf = Btf(made.data())

    def _struct(self, name: str, size: int, *members: tuple[str, str, int]) -> None:
        rows = [(label, self.ids[kind], offset, 0) for label, kind, offset in members]
        self.ids[f"struct {name}"] = self._writer.composite(Kind.STRUCT, name, size, rows)

    def passed(self, machine: str, *names: str, returns: str = "") -> tuple[list[Passed], Passed]:
        """Where parameters and the result are."""
        values = [Value(self.ids[name]) for name in names]
        return passing_of(self.btf, machine, values, Value(self.ids.get(returns, 0)))


#: What stands before the number that is looked for.
BEFORE = (
    ("char", "int", "char *"),
    ("float", "double"),
    ("struct small", "struct pair"),
    ("struct pair", "struct pair", "struct pair"),
    ("struct large", "int"),
    ("struct real", "struct mixed", "char"),
    ("struct single", "struct crooked"),
    ("struct nothing", "char"),
    ("long long", "char", "long long"),
    ("__int128", "char", "__int128"),
    ("long", "long", "long", "long", "long", "struct pair", "char"),
    ("long double", "int"),
    ("int", *["double"] * 9),
    (*["long"] * 8, "char", "struct small", "__int128"),
)


@pytest.mark.parametrize("machine", ["x86_64", "i386", *sorted(TRIPLETS.keys() & SPELLED.keys())])
def test_the_last_parameter_is_where_a_compiler_looks_for_it(machine: str) -> None:
    types = Types(machine)
    rows = [names for names in BEFORE if machine not in ("i386", "arm") or "__int128" not in names]
    source = TYPES
    for number, names in enumerate(rows):
        listed = "".join(f"{name} p{at}, " for at, name in enumerate(names))
        source += f"void f{number}({listed}long last) {{ out = last; }}\n"
    text = assembly_of(machine, source)
    known = 0
    for number, names in enumerate(rows):
        body = re.split(rf"^f{number}:", text, flags=re.MULTILINE)[1]
        body = re.split(rf"^f{number + 1}:|\.size", body, flags=re.MULTILINE)[0]
        place = types.passed(machine, *names, "long")[0][-1]
        if isinstance(place, NotReadable):
            assert "is not known" in place.reason
            continue
        known += 1
        assert re.search(_pattern(machine, place, _frame(body)), body), (names, place, body)
    assert known >= 5 or machine == "arm"


def _frame(body: str) -> int:
    # gcc for RISC-V makes room on the stack in some of these functions, for nothing.
    match = re.search(r"addi\tsp,sp,-(\d+)", body)
    return int(match[1]) if match else 0


def _pattern(machine: str, place: Passed, frame: int) -> str:
    register, memory = SPELLED[machine]
    if isinstance(place, PassedInRegisters):
        name = place.pieces[0].name
        return register.format(name, number=re.sub(r"\D", "", name))
    assert isinstance(place, PassedInMemory)
    assert place.displacement is not None
    return memory.format(offset=place.displacement + frame)


def test_x86_64_splits_structures_by_what_is_in_them() -> None:
    places, result = Types().passed(
        "x86_64", "struct mixed", "struct pair", "struct real", returns="struct pair"
    )
    shown = [one.where for one in places]
    assert shown == ["in registers xmm0:rdi", "in registers rsi:rdx", "in registers xmm1:xmm2"]
    assert result.where == "in registers rax:rdx"
    assert isinstance(places[0], PassedInRegisters)
    assert [piece.register is None for piece in places[0].pieces] == [True, False]


def test_a_large_result_takes_the_first_register() -> None:
    places, result = Types().passed("x86_64", "int", returns="struct large")
    assert [places[0].where, result.where] == ["in register rsi", "at the address in register rax"]
    places, result = Types().passed("aarch64", "int", returns="struct large")
    assert places[0].where == "in register x0"
    assert isinstance(result, NotReadable)


@pytest.mark.parametrize("kernel", [False, True], ids=["program", "kernel"])
@pytest.mark.parametrize("machine", sorted(CONVENTIONS.keys() & PT_REGS.keys()))
def test_members_of_no_size_do_not_stop_a_convention(machine: str, *, kernel: bool) -> None:
    types = Types(machine)
    names = ("()", "no float", "complex", "struct unit", "struct unreal", "struct padding", "int")
    values = [Value(types.ids[name]) for name in names]
    for result in values:
        places, _ = passing_of(types.btf, machine, values, result, kernel=kernel)
        assert len(places) == len(values)
    if machine == "x86_64":
        places, _ = types.passed(machine, "struct unit", "int")
        assert [one.where for one in places] == ["in register rdi", "in register rsi"]


def test_an_object_that_is_not_trivial_is_passed_by_its_address() -> None:
    types = Types()
    value = Value(types.ids["struct pair"], by_reference=True)
    places, result = passing_of(types.btf, "x86_64", [value, Value(types.ids["int"])], value)
    assert [one.where for one in places] == ["at the address in register rsi", "in register rdx"]
    assert result.where == "at the address in register rax"


def test_what_follows_something_doubtful_is_not_guessed() -> None:
    places, _ = Types().passed("mips64el", "int", "struct pair", "int")
    assert [type(one) for one in places] == [PassedInRegisters, NotReadable, NotReadable]
    assert "depends on a structure of 16 bytes before it" in places[2].where


def test_rust_passes_two_numbers_as_two() -> None:
    types = Types()
    values = [Value(types.ids[f"struct {name}"]) for name in ("pair", "mixed", "large", "small")]
    places, result = passing_of(types.btf, "x86_64", values, values[0], rust=True)
    assert [one.where for one in places] == [
        "in registers rdi:rsi",
        "in registers xmm0:rdx",
        "at the address in register rcx",
        "in registers r8:r9",
    ]
    assert result.where == "in registers rax:rdx"
