"""A structure of every kind of member as BTF, bytes of it, and plans with its type."""

from __future__ import annotations

import struct
import sys
from typing import TYPE_CHECKING

from usdt.arch.locations import Register, ValueType
from usdt.arch.locations import ValueClass as ValueKind
from usdt.btf.format import Encoding, Kind
from usdt.btf.reader import Btf
from usdt.btf.writer import BtfWriter
from usdt.engine.compiler.arguments import Argument, Display
from usdt.engine.compiler.ir import BtfType
from usdt.engine.compiler.plan import make_plan
from usdt.engine.compiler.resolve.btf_types import BtfTypes
from usdt.engine.language import parse_probe

if TYPE_CHECKING:
    from usdt.engine.compiler.plan import ProbePlan

__all__ = ("IDS", "NUMBERS", "SIZE", "arguments", "thing", "things", "typed_plan")

#: The types' names → IDs in things().
IDS: dict[str, int] = {}
SIZE = 208
NUMBERS = (1, -2, 3, -4, 5, -6)  # of the three structures of the array


def things(order: str = sys.byteorder) -> Btf:
    """``struct thing`` and what it is made of."""
    made = BtfWriter(order)
    integer = made.integer("int", 4, Encoding.SIGNED)
    word = made.integer("long unsigned int", 8)
    char = made.integer("char", 1, Encoding.SIGNED)
    truth = made.integer("bool", 1, Encoding.BOOL)
    small = made.integer("unsigned int", 4)
    name = made.array(char, 8)
    label = made.pointer(made.record(Kind.CONST, "", char))
    inner = made.composite(Kind.STRUCT, "inner", 8, [("a", integer, 0, 0), ("b", integer, 32, 0)])
    follows = made.pointer(inner)
    function = made.pointer(made.prototype(integer, [("x", integer)]))
    nothing = made.pointer(0)
    many, big = made.array(inner, 3), made.array(word, 13)
    colour = made.enum("colour", 4, [("RED", 0), ("GREEN", 1), ("BLUE", 7)])
    either = made.composite(Kind.UNION, "", 4, [("x", small, 0, 0), ("y", integer, 0, 0)])
    only = made.pointer(made.record(Kind.FWD, "hidden", 0))
    itself = made.pointer(only + 2)  # the structure, which comes next
    members = [
        ("name", name, 0, 0),
        ("label", label, 64, 0),
        ("in", inner, 128, 0),
        ("next", follows, 192, 0),
        ("fn", function, 256, 0),
        ("where", nothing, 320, 0),
        ("ok", truth, 384, 0),
        ("low", small, 392, 3),
        ("more", integer, 395, 5),
        ("colour", colour, 416, 0),
        ("many", many, 448, 0),
        ("", either, 640, 0),
        ("hidden", only, 704, 0),
        ("itself", itself, 768, 0),
        ("big", big, 832, 0),
    ]
    whole = made.composite(Kind.STRUCT, "thing", SIZE, members)
    pointer = made.pointer(whole)
    pointers = made.pointer(pointer)
    IDS.update(thing=whole, pointer=pointer, inner=inner, label=label, bool=truth, int=integer)
    IDS.update(colour=colour, pointers=pointers, function=function, follows=follows)
    return Btf(made.data())


def thing(name: bytes = b"lo", label: int = 0x1000, follows: int = 0x2000) -> bytes:
    """Its bytes."""
    bits = (5 | (-3 & 31) << 3) if sys.byteorder == "little" else (5 << 5 | -3 & 31)
    head = struct.pack("=8sQiiQQQ", name, label, 11, -12, follows, 0x3000, 0x4000)
    tail = struct.pack("=?BxxI6iIxxxxQQ13Q", True, bits, 7, *NUMBERS, 99, 0, 0, *range(13))
    assert len(head + tail) == SIZE
    return head + tail


_WORD = ValueType(ValueKind.UNSIGNED, 8)


def arguments() -> tuple[Argument, ...]:
    """``t`` points at one, ``n`` is an int, ``s`` points at text."""
    return (
        Argument("t", _WORD, Register(0, 8), display=Display.HEX, type_ref=BtfType(IDS["pointer"])),
        Argument("n", ValueType(ValueKind.SIGNED, 4), Register(8, 4), type_ref=BtfType(IDS["int"])),
        Argument("s", _WORD, Register(16, 8), display=Display.HEX, type_ref=BtfType(IDS["label"])),
    )


def typed_plan(
    items: str, *, kernel: bool = True, max_struct: int = 4096, in_short: bool = False
) -> ProbePlan:
    """The plan of ``rawtp:q(items)``."""
    btf = things()
    request = parse_probe(f"rawtp:q({items})")
    return make_plan(
        request.items,
        arguments(),
        text=request.text,
        probe="rawtp:q",
        declared=3,
        max_struct=max_struct,
        types=BtfTypes(lambda: btf, kernel=kernel),
        kernel=kernel,
        in_short=in_short,
    )
