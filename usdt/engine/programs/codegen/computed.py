"""Code for numbers that are computed from maps and from values in memory."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, assert_never

from usdt.bpf._uapi import Helper
from usdt.bpf.asm.insn import R0, R1, R2, R3, R4, R6, R10, Alu, Jump
from usdt.bpf.maps import possible_cpus
from usdt.engine.compiler.codegen.model import stack_flags
from usdt.engine.programs.codegen.names import map_name
from usdt.engine.programs.codegen.strings import emit_find_text, emit_object, emit_text_length
from usdt.engine.programs.typed import (
    AggregateNumber,
    CallWithObject,
    CompareBytes,
    Delete,
    FindText,
    MapAddress,
    MapLength,
    ReadStatus,
    StackOf,
    TextLength,
    WriteUser,
)
from usdt.engine.programs.types import Aggregate, bytes_of, size_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.bpf.asm.assembler import Assembler
    from usdt.engine.programs.codegen.values import ValueEmitter
    from usdt.engine.programs.typed import Computed

__all__ = ("emit_computed",)

_SIGN = -(1 << 63)


def emit_computed(
    emitter: ValueEmitter,
    what: Computed,
) -> None:
    """Emit code that leaves a number in r0."""
    mark = emitter.frame.mark()
    match what:
        case CompareBytes():
            _compare(emitter, what)
        case AggregateNumber():
            _aggregate(emitter, what)
        case CallWithObject(helper=helper, path=path):
            absent, done = emitter.asm.new_label("absent"), emitter.asm.new_label("called")
            emit_object(emitter.asm, path, absent)
            emitter.asm.call(helper)
            emitter.asm.goto(done)
            emitter.asm.label(absent)
            emitter.asm.mov(R0, 0)
            emitter.asm.label(done)
        case MapLength():
            _map_length(emitter, what)
        case MapAddress(map=variable, key=key):
            emitter.find(variable, key)
            emitter.numbers.address_as_number()
        case TextLength(text=StackOf() as stack):
            _stack_depth(emitter, stack)
        case TextLength():
            emit_text_length(emitter, what)
        case FindText(glob=True):
            from usdt.engine.programs.codegen.globs import emit_match  # noqa: PLC0415 - of few

            emit_match(emitter, what)
        case FindText():
            emit_find_text(emitter, what)
        case Delete():
            _delete(emitter, what)
        case ReadStatus():
            _read_status(emitter, what)
        case WriteUser():
            _write_user(emitter, what)
        case _:
            assert_never(what)
    emitter.frame.release(mark)


def _compare(emitter: ValueEmitter, what: CompareBytes) -> None:
    # Strings are filled up with zeros, so a shorter one ends where the longer one must end.
    asm = emitter.asm
    differ, done = asm.new_label("differ"), asm.new_label("compared")
    left, right = emitter.in_memory(what.left), emitter.in_memory(what.right)
    size = min(size_of(what.left.type), size_of(what.right.type))
    for at, width in _pieces(size if what.count < 0 else min(size, what.count)):
        asm.load(R1, left.base, left.offset + at, width)
        asm.load(R2, right.base, right.offset + at, width)
        asm.jump(Jump.NE, R1, R2, differ)
    asm.mov(R0, int(not what.difference))
    asm.goto(done)
    asm.label(differ)
    if what.difference:
        _first_difference(asm)
    else:
        asm.mov(R0, 0)
    asm.label(done)


def _first_difference(asm: Assembler) -> None:
    # Leaves in r0 the difference of the first bytes that differ of the words in r1 and r2.
    found = asm.new_label("found")
    for byte in range(8):
        shift = 8 * byte if sys.byteorder == "little" else 56 - 8 * byte
        for result, word in ((R0, R1), (R3, R2)):
            asm.mov(result, word)
            asm.alu(Alu.RSH, result, shift)
            asm.alu(Alu.AND, result, 0xFF)
        asm.jump(Jump.NE, R0, R3, found)
    asm.label(found)
    asm.alu(Alu.SUB, R0, R3)


def _pieces(size: int) -> Iterator[tuple[int, int]]:
    # Offsets and widths of the words that make up so many bytes.
    at = 0
    while at < size:
        width = next(one for one in (8, 4, 2, 1) if one <= size - at)
        yield at, width
        at += width


# ---------------------------------------------------------------- maps


def _aggregate(emitter: ValueEmitter, what: AggregateNumber) -> None:
    # Adds up the values of all CPUs; of min() and max(), keeps the greatest.
    asm, function = emitter.asm, what.type.function
    total, hits = emitter.frame.push(), emitter.frame.push()
    for slot in (total, hits):
        asm.store(R10, slot, 0)
    emitter.key(what.key)
    key = emitter.numbers.push(R2)
    for cpu in range(possible_cpus()):
        absent = asm.new_label("absent")
        asm.load_map(R1, map_name(what.map))
        asm.load(R2, R10, key)
        asm.mov(R3, cpu)
        asm.call(Helper.MAP_LOOKUP_PERCPU_ELEM)
        asm.jump(Jump.EQ, R0, 0, absent)
        asm.load(R1, R0, 0)
        asm.load(R2, R10, total)
        if function is not Aggregate.COUNT:  # hits, value
            asm.load(R3, R10, hits)
            asm.add(R3, R1)
            asm.store(R10, hits, R3)
            asm.load(R1, R0, 8)
        if function in (Aggregate.MIN, Aggregate.MAX):
            asm.jump(Jump.GE, R2, R1, absent)
            asm.mov(R2, R1)
        else:
            asm.add(R2, R1)
        asm.store(R10, total, R2)
        asm.label(absent)
    asm.load(R0, R10, total)
    _finish(asm, what, hits)


def _finish(asm: Assembler, what: AggregateNumber, hits: int) -> None:
    # Leaves the result in r0, in which the total is.
    match what.type.function:
        case Aggregate.AVG | Aggregate.STATS:
            _divide(asm, hits)
        case Aggregate.MIN | Aggregate.MAX as function:
            nothing = asm.new_label("nothing")
            asm.load(R1, R10, hits)
            asm.jump(Jump.EQ, R1, 0, nothing)
            if function is Aggregate.MIN:
                asm.alu(Alu.XOR, R0, -1)
            if what.type.signed:
                asm.mov(R1, _SIGN)
                asm.alu(Alu.XOR, R0, R1)
            asm.label(nothing)


def _divide(asm: Assembler, hits: int) -> None:
    # Divides the signed r0 by the number in a slot; by nothing gives 0.
    positive, done = asm.new_label("positive"), asm.new_label("divided")
    asm.load(R1, R10, hits)
    asm.mov(R2, R0)
    asm.jump(Jump.SGE, R0, 0, positive)
    asm.alu(Alu.NEG, R0)
    asm.label(positive)
    asm.alu(Alu.DIV, R0, R1)
    asm.jump(Jump.SGE, R2, 0, done)
    asm.alu(Alu.NEG, R0)
    asm.label(done)


def _delete(emitter: ValueEmitter, what: Delete) -> None:
    asm = emitter.asm
    deleted, done = asm.new_label("deleted"), asm.new_label("tried")
    emitter.key(what.key)
    asm.load_map(R1, map_name(what.map))
    asm.call(Helper.MAP_DELETE_ELEM)
    asm.jump(Jump.EQ, R0, 0, deleted)
    asm.mov(R0, 0)
    asm.goto(done)
    asm.label(deleted)
    asm.mov(R0, 1)
    asm.label(done)


def _read_status(emitter: ValueEmitter, what: ReadStatus) -> None:
    # Of the first byte.
    asm = emitter.asm
    emitter.number(what.address)
    slot = emitter.frame.push()
    asm.store(R10, slot, 0)
    asm.mov(R3, R0)
    emitter.numbers.read_to(Helper.PROBE_READ_USER, R10, slot, 1, kernel=what.kernel)


def _write_user(emitter: ValueEmitter, what: WriteUser) -> None:
    asm = emitter.asm
    no, done = asm.new_label("no"), asm.new_label("written")
    emitter.number(what.address)
    address = emitter.numbers.push()
    place = emitter.in_memory(what.value)
    emitter.number(what.length)
    asm.mov(R3, R0)
    asm.add(R3, -1)  # one comparison gives the verifier both bounds
    asm.jump(Jump.GT, R3, bytes_of(what.value.type) - 1, no)
    asm.add(R3, 1)
    asm.load(R1, R10, address)
    asm.mov(R2, place.base)
    asm.add(R2, place.offset)
    asm.call(Helper.PROBE_WRITE_USER)
    asm.jump(Jump.NE, R0, 0, no)
    asm.mov(R0, 1)
    asm.goto(done)
    asm.label(no)
    asm.mov(R0, 0)
    asm.label(done)


def _map_length(emitter: ValueEmitter, what: MapLength) -> None:
    # The kernel passes the address of a slot to a function that counts in it.
    asm = emitter.asm
    asm.mov(R0, 0)
    emitter.numbers.unbind()
    slot = emitter.numbers.push()
    asm.load_map(R1, map_name(what.map))
    asm.load_function(R2, "count entries")
    asm.mov(R3, R10)
    asm.add(R3, slot)
    asm.mov(R4, 0)
    asm.call(Helper.FOR_EACH_MAP_ELEM)
    asm.load(R0, R10, slot)
    asm.function("count entries", _count_entry)


def _count_entry(asm: Assembler) -> None:
    asm.load(R0, R4, 0)
    asm.add(R0, 1)
    asm.store(R4, 0, R0)
    asm.mov(R0, 0)
    asm.exit()


def _stack_depth(emitter: ValueEmitter, stack: StackOf) -> None:
    # A copy of the stack tells its length; there is none of a kernel thread in user space.
    asm = emitter.asm
    there = asm.new_label("there")
    size = 8 * stack.type.frames
    copy = emitter.frame.temporary(size)
    asm.mov(R1, R6)
    asm.mov(R2, copy.base)
    asm.add(R2, copy.offset)
    asm.mov(R3, size)
    asm.mov(R4, stack_flags(stack.kind))
    asm.call(Helper.GET_STACK)
    asm.jump(Jump.SGE, R0, 0, there)
    asm.mov(R0, 0)
    asm.label(there)
    asm.alu(Alu.RSH, R0, 3)
