"""Plans made by hand: probes with arguments of every type, as tests of the engine need them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.context_registers import ContextRegisters
from usdt.arch.locations import Memory, Register, Unreadable, ValueClass, ValueType
from usdt.engine.compiler.arguments import Argument
from usdt.engine.compiler.plan import ProbePlan, make_plan
from usdt.engine.compiler.record.layout import RecordField
from usdt.engine.language import parse_probe

if TYPE_CHECKING:
    from usdt.arch.locations import Location
    from usdt.engine.compiler.outputs import Output

__all__ = ("EVERY_TYPE", "INTEGERS", "argument", "memory", "plan", "register", "scalar_type")

#: The integer types by name, s8…u64.
INTEGERS = {
    f"{letter}{8 * size}": ValueType(kind, size)
    for size in (1, 2, 4, 8)
    for letter, kind in (("s", ValueClass.SIGNED), ("u", ValueClass.UNSIGNED))
}


def scalar_type(name: str) -> ValueType:
    """s8…u64, f32, f64, or b and a number of bytes for an aggregate."""
    if name in INTEGERS:
        return INTEGERS[name]
    if name[0] == "f":
        return ValueType(ValueClass.FLOAT, int(name[1:]) // 8)
    return ValueType(ValueClass.BYTES, int(name[1:]))


def register(size: int = 8, offset: int = 80) -> Register:
    """A register of struct pt_regs."""
    return Register(offset, size)


def memory(size: int, displacement: int = 0) -> Memory:
    """What a register points at."""
    return Memory(112, None, 1, displacement, 8, size)


def argument(index: int, kind: str, fetch: Location | None = None) -> Argument:
    """arg{index} of a type; by default scalars come in a register, the rest in memory."""
    value = scalar_type(kind)
    if fetch is None:
        fetch = register(value.size) if value.size in (1, 2, 4, 8) else memory(value.size)
    return Argument(f"arg{index}", value, fetch)


#: arg0…arg7 are s8…u64, arg8 an int in memory, arg9 and arg10 floats, arg11 has 24 bytes, and
#: arg12 cannot be read.
EVERY_TYPE = (
    *(argument(index, name) for index, name in enumerate(INTEGERS)),
    argument(8, "s32", memory(4)),
    argument(9, "f64", memory(8, 8)),
    argument(10, "f32", memory(4, 16)),
    argument(11, "b24"),
    argument(12, "u64", Unreadable("thread-local")),
)


def plan(
    items: str,
    arguments: tuple[Argument, ...] = EVERY_TYPE,
    *,
    declared: int | None = None,
    max_string: int = 128,
) -> ProbePlan:
    """The plan of ``p:q(items)``, as if it were the entry of a function of x86-64."""
    request = parse_probe(f"p:q({items})")
    return make_plan(
        request.items,
        arguments,
        text=request.text,
        probe="p:q",
        declared=len(arguments) if declared is None else declared,
        max_string=max_string,
        registers=ContextRegisters("x86_64", entry=True),
    )


def form(shown: Output | RecordField) -> str:
    """The word by which recordings know a value's column."""
    return str(RecordField("", shown.column).to_json()["form"])
