"""One hit of a probe, run on the tests' own machine: registers in, what is shown out."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from bpfmachine import Machine
from planning import EVERY_TYPE, argument, plan

from usdt.arch.locations import Register, Unreadable
from usdt.engine.compiler.arguments import Argument
from usdt.engine.compiler.codegen.model import ProgramVariant, TaskFilter
from usdt.engine.compiler.codegen.program import generate
from usdt.engine.output.decode import Decoder
from usdt.engine.output.formatters.event import EventFormatter

if TYPE_CHECKING:
    from usdt.bpf.asm.assembler import Code
    from usdt.engine.compiler.plan import ProbePlan

__all__ = (
    "NUMBER",
    "POINTER",
    "RAX",
    "RDI",
    "RIP",
    "TEXT",
    "UNREADABLE",
    "program",
    "registers",
    "run",
    "shown",
    "text_machine",
)

RAX, RDI, RIP = 80, 112, 128  # in struct pt_regs
TEXT = 0x7F0000001000  # where rdi points
UNREADABLE = Unreadable("memory not readable")


def registers(**values: int) -> bytes:
    """A struct pt_regs with these registers."""
    places = {"rax": RAX, "rdi": RDI, "rip": RIP, "rsi": 104}
    context = bytearray(168)
    for name, value in values.items():
        struct.pack_into("=Q", context, places[name], value & (1 << 64) - 1)
    return bytes(context)


def program(made: ProbePlan, *, sleepable: bool = False, accept: TaskFilter | None = None) -> Code:
    """The program of one plan, for the probe of index 0."""
    return generate([ProgramVariant(1, 0, made)], accept or TaskFilter(), sleepable=sleepable)


def shown(made: ProbePlan, machine: Machine) -> list[dict[str, Any]]:
    """The arguments of the records that the machine was given."""
    decoder = Decoder(EventFormatter())
    decoder.add(1, "p:q", made)
    data = b"".join(struct.pack("=II", len(one), 0) + one for one in machine.records)
    return [event.args for batch in decoder.batches(data) for event in batch]


def run(items: str, machine: Machine, *arguments: Argument, sleepable: bool = False) -> Any:
    """What one hit shows; None if it shows nothing."""
    made = plan(items, arguments or EVERY_TYPE)
    machine.run(program(made, sleepable=sleepable))
    found = shown(made, machine)
    return found[0] if found else None


def text_machine(text: bytes, **more: Any) -> Machine:
    """A machine on which arg0 (rdi, a register) points at some bytes."""
    return Machine(context=registers(rdi=TEXT), user={TEXT: text}, **more)


POINTER = Argument("arg0", argument(0, "u64").type, Register(RDI, 8))
NUMBER = Argument("arg1", argument(0, "s64").type, Register(RAX, 8))
