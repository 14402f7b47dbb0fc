"""Code that adds to the value of a map: count(), sum(), hist() and the like.

A value has one part for each CPU. All additions are atomic: another program may preempt this one.
A histogram has an entry for each bucket: the bucket's number stands behind the key. What has no
keys is in an array, whose index is 0 or, of a histogram, the number of the bucket plus one. The
last entry of an array says whether zero() has left the map with a value of zeros.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.bpf._uapi import Helper
from usdt.bpf.asm.insn import R0, R1, R2, R3, R4, R10, Alu, Jump
from usdt.engine.compiler.codegen.buckets import emit_log_linear
from usdt.engine.compiler.codegen.map_calls import emit_map_call
from usdt.engine.compiler.codegen.stack_slots import KEY_SLOT
from usdt.engine.programs.codegen.names import map_name
from usdt.engine.programs.types import Aggregate, AggregateType, aligned, size_of

if TYPE_CHECKING:
    from usdt.engine.programs.codegen.frame import Place
    from usdt.engine.programs.codegen.values import ValueEmitter
    from usdt.engine.programs.typed import AddToMap, Value

__all__ = ("BUCKET_SIZE", "array_entries", "emit_add", "value_size_of")

BUCKET_SIZE = 8  # bytes of the number of a bucket, behind the key
_SIGN = -(1 << 63)
_NOEXIST = 1  # BPF_NOEXIST
_TRIES = 16  # attempts to exchange; each fails if another hit changes the value at the same instant
_PAIR = 16  # u64 hits, u64 value; of sum, min and max 1 instead of the hits
_VALUE = 8  # where the value is in a pair
_BUCKETS = (Aggregate.HIST, Aggregate.LHIST)


def value_size_of(type_: AggregateType) -> int:
    """Return the bytes of a value for one CPU."""
    match type_.function:
        case Aggregate.COUNT | Aggregate.HIST | Aggregate.LHIST:
            return 8
        case _:
            return _PAIR


def array_entries(type_: AggregateType) -> int:
    """Return the number of entries of an array: for the values, and for the mark of zero()."""
    match type_.function, type_.parameters:
        case Aggregate.HIST, (bits,):
            return 1 + (65 - bits << bits) + 1
        case Aggregate.LHIST, (low, high, step):
            return 1 + -(-(high - low) // step) + 1 + 1
    return 1 + 1


def emit_add(emitter: ValueEmitter, statement: AddToMap) -> None:
    """Emit the addition of a number to a map's value."""
    asm, frame = emitter.asm, emitter.frame
    added = asm.new_label("added")
    number = None
    if statement.value is not None:
        emitter.number(statement.value)
        emitter.numbers.unbind()
        number = emitter.numbers.push()
    if statement.array:
        _find_in_array(emitter, statement, number)
        asm.jump(Jump.EQ, R0, 0, added)  # never taken
        _add(emitter, statement.type, number)
        asm.label(added)
        return
    key = _key(emitter, statement, number)
    size = value_size_of(statement.type)
    found = asm.new_label("found")

    def find() -> None:
        asm.mov(R2, key.base)
        asm.add(R2, key.offset)
        asm.load_map(R1, map_name(statement.map))
        asm.call(Helper.MAP_LOOKUP_ELEM)

    find()
    asm.jump(Jump.NE, R0, 0, found)
    zeros = frame.temporary(size)
    for at in range(0, size, 8):
        asm.store(zeros.base, zeros.offset + at, 0)
    asm.mov(R2, key.base)
    asm.add(R2, key.offset)
    asm.load_map(R1, map_name(statement.map))
    asm.mov(R3, zeros.base)
    asm.add(R3, zeros.offset)
    asm.mov(R4, _NOEXIST)
    asm.call(Helper.MAP_UPDATE_ELEM)
    find()  # another CPU may have made the entry meanwhile
    asm.jump(Jump.NE, R0, 0, found)
    emitter.count_lost()
    asm.goto(added)
    asm.label(found)
    _add(emitter, statement.type, number)
    asm.label(added)


def _find_in_array(emitter: ValueEmitter, statement: AddToMap, number: int | None) -> None:
    # Leaves the address of the value in r0.
    asm = emitter.asm
    if statement.type.function in _BUCKETS and number is not None:
        asm.load(R1, R10, number)
        _bucket(emitter, statement.type)
        asm.add(R2, 1)
        asm.store(R10, KEY_SLOT, R2, 4)
    else:
        asm.store(R10, KEY_SLOT, 0, 4)
    emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, map_name(statement.map))


def _key(emitter: ValueEmitter, statement: AddToMap, number: int | None) -> Place:
    key: Value = statement.key
    size = aligned(size_of(key.type))
    buckets = statement.type.function in _BUCKETS
    place = emitter.frame.temporary(size + (BUCKET_SIZE if buckets else 0))
    emitter.put(key, place)
    if buckets and number is not None:
        emitter.asm.load(R1, R10, number)
        _bucket(emitter, statement.type)
        emitter.asm.store(place.base, place.offset + size, R2)
    return place


def _bucket(emitter: ValueEmitter, type_: AggregateType) -> None:
    # Leaves the number of the bucket of the number in r1 in r2: -1 below the lowest.
    asm = emitter.asm
    done = asm.new_label("bucket")
    asm.mov(R2, -1)
    if type_.function is Aggregate.HIST:
        if type_.signed:
            asm.jump(Jump.SLT, R1, 0, done)
        emit_log_linear(asm, type_.parameters[0])
        asm.label(done)
        return
    low, high, step = type_.parameters
    asm.mov(R3, low)
    asm.jump(Jump.SLT, R1, R3, done)
    asm.mov(R2, -(-(high - low) // step))
    asm.mov(R4, high)
    asm.jump(Jump.SGE, R1, R4, done)
    asm.alu(Alu.SUB, R1, R3)
    asm.mov(R3, step)
    asm.alu(Alu.DIV, R1, R3)
    asm.mov(R2, R1)
    asm.label(done)


def _add(emitter: ValueEmitter, type_: AggregateType, number: int | None) -> None:
    # Adds to the value at r0 the number in a slot.
    asm = emitter.asm
    match type_.function:
        case Aggregate.COUNT | Aggregate.HIST | Aggregate.LHIST:
            asm.mov(R1, 1)
            asm.atomic_add(R0, 0, R1)
        case Aggregate.SUM:
            asm.store(R0, 0, 1)
            asm.load(R1, R10, number or 0)
            asm.atomic_add(R0, _VALUE, R1)
        case Aggregate.AVG | Aggregate.STATS:
            asm.mov(R1, 1)
            asm.atomic_add(R0, 0, R1)
            asm.load(R1, R10, number or 0)
            asm.atomic_add(R0, _VALUE, R1)
        case Aggregate.MIN | Aggregate.MAX:
            asm.load(R1, R10, number or 0)
            if type_.signed:
                asm.mov(R2, _SIGN)
                asm.alu(Alu.XOR, R1, R2)
            if type_.function is Aggregate.MIN:
                asm.alu(Alu.XOR, R1, -1)
            _raise(emitter)
        case Aggregate.TSERIES:
            raise NotImplementedError  # the checker refuses it


def _raise(emitter: ValueEmitter) -> None:
    # Stores r1 in the pair at r0 if it is greater.
    asm = emitter.asm
    done = asm.new_label("raised")
    asm.mov(R3, R0)
    asm.load(R0, R3, _VALUE)
    if not emitter.options.atomics:
        asm.jump(Jump.GE, R0, R1, done)
        asm.store(R3, _VALUE, R1)
        asm.label(done)
        asm.store(R3, 0, 1)
        return
    for _ in range(_TRIES):
        asm.jump(Jump.GE, R0, R1, done)
        asm.mov(R2, R0)
        asm.compare_exchange(R3, _VALUE, R1)
        asm.jump(Jump.EQ, R0, R2, done)
    slot = emitter.numbers.push(R3)
    emitter.count_lost()
    asm.load(R3, R10, slot)
    emitter.numbers.pop()
    asm.label(done)
    asm.store(R3, 0, 1)
