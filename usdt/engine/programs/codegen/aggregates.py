"""Code that adds to the value of a map: count(), sum(), hist() and the like.

A value has one part for each CPU. All additions are atomic: another program may preempt this one.
A histogram has an entry for each bucket: the bucket's number stands behind the key. What has no
keys is in an array, whose index is 0 or, of a histogram, the number of the bucket plus one. The
last entry of an array says whether zero() has left the map with a value of zeros.

tseries() has an entry for each of its last N intervals. They are numbered since 1970: interval I
is in entry I modulo N, whose first word is I. An entry of an older interval begins anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.frozen import frozen, replace
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
_INTERVAL = 8 + _PAIR  # u64 number of the interval, pair; of the last value its time for the hits
_BUSY = -1  # instead of the number of an interval: a program that was preempted begins it
_VALUE = 8  # where the value is in a pair
_BUCKETS = (Aggregate.HIST, Aggregate.LHIST, Aggregate.TSERIES)


def value_size_of(type_: AggregateType) -> int:
    """Return the bytes of a value for one CPU."""
    match type_.function:
        case Aggregate.COUNT | Aggregate.HIST | Aggregate.LHIST:
            return 8
        case Aggregate.TSERIES:
            return _INTERVAL
        case _:
            return _PAIR


def array_entries(type_: AggregateType) -> int:
    """Return the number of entries of an array: for the values, and for the mark of zero()."""
    match type_.function, type_.parameters:
        case Aggregate.HIST, (bits,):
            return 1 + (65 - bits << bits) + 1
        case Aggregate.LHIST, (low, high, step):
            return 1 + -(-(high - low) // step) + 1 + 1
        case Aggregate.TSERIES, (_, intervals):
            return intervals + 1
    return 1 + 1


def emit_add(emitter: ValueEmitter, statement: AddToMap) -> None:
    """Emit the addition of a number to a map's value."""
    asm = emitter.asm
    given = _given(emitter, statement)
    added = asm.new_label("added")
    if statement.array:
        _index(emitter, statement.type, given)
        emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, map_name(statement.map))
        asm.jump(Jump.EQ, R0, 0, added)  # never taken
    else:
        _find_or_make(emitter, statement, given, added)
    if statement.type.function is Aggregate.TSERIES:
        _add_to_interval(emitter, statement.type, given, added)
    else:
        _add(emitter, statement.type, given.number)
    asm.label(added)


@frozen
class _Given:
    """The slots of what is added: the number, its time, and the number of its interval."""

    number: int = 0
    moment: int = 0
    interval: int = 0


def _given(emitter: ValueEmitter, statement: AddToMap) -> _Given:
    if statement.value is None:
        return _Given()
    emitter.number(statement.value)
    emitter.numbers.unbind()
    number = emitter.numbers.push()
    if statement.moment is None:
        return _Given(number)
    emitter.number(statement.moment)
    moment = emitter.numbers.push()
    emitter.asm.mov(R1, statement.type.parameters[0])
    emitter.asm.alu(Alu.DIV, R0, R1)
    return _Given(number, moment, emitter.numbers.push())


def _find_or_make(emitter: ValueEmitter, statement: AddToMap, given: _Given, failed: str) -> None:
    # Leaves the address of the value in r0; goes to a label if the map is full.
    asm = emitter.asm
    key = _key(emitter, statement, given)
    size = value_size_of(statement.type)
    found = asm.new_label("found")

    def find() -> None:
        asm.mov(R2, key.base)
        asm.add(R2, key.offset)
        asm.load_map(R1, map_name(statement.map))
        asm.call(Helper.MAP_LOOKUP_ELEM)

    find()
    asm.jump(Jump.NE, R0, 0, found)
    zeros = emitter.frame.temporary(size)
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
    asm.goto(failed)
    asm.label(found)


def _index(emitter: ValueEmitter, type_: AggregateType, given: _Given) -> None:
    # Stores the index of an array's entry.
    asm = emitter.asm
    if type_.function not in _BUCKETS:
        asm.store(R10, KEY_SLOT, 0, 4)
        return
    _bucket(emitter, type_, given)
    if type_.function is not Aggregate.TSERIES:
        asm.add(R2, 1)
    asm.store(R10, KEY_SLOT, R2, 4)


def _key(emitter: ValueEmitter, statement: AddToMap, given: _Given) -> Place:
    key: Value = statement.key
    size = aligned(size_of(key.type))
    buckets = statement.type.function in _BUCKETS
    place = emitter.frame.temporary(size + (BUCKET_SIZE if buckets else 0))
    emitter.put(key, place)
    if buckets:
        _bucket(emitter, statement.type, given)
        emitter.asm.store(place.base, place.offset + size, R2)
    return place


def _bucket(emitter: ValueEmitter, type_: AggregateType, given: _Given) -> None:
    # Leaves the number of the bucket in r2: -1 below the lowest.
    asm = emitter.asm
    done = asm.new_label("bucket")
    if type_.function is Aggregate.TSERIES:
        asm.load(R2, R10, given.interval)
        asm.alu(Alu.MOD, R2, type_.parameters[1])
        return
    asm.load(R1, R10, given.number)
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


def _add_to_interval(emitter: ValueEmitter, type_: AggregateType, given: _Given, end: str) -> None:
    # Adds to the value at r0 and goes to the end. What belongs to an interval that is over, or that
    # a preempted program begins, is lost.
    asm = emitter.asm
    begun, late = asm.new_label("begun"), asm.new_label("late")
    asm.load(R1, R10, given.interval)
    asm.load(R2, R0, 0)
    asm.jump(Jump.EQ, R1, R2, begun)
    asm.jump(Jump.GT, R2, R1, late)
    asm.mov(R3, R0)
    if emitter.options.atomics:
        asm.mov(R0, R2)
        asm.mov(R4, _BUSY)
        asm.compare_exchange(R3, 0, R4)
        asm.jump(Jump.NE, R0, R2, late)
    asm.store(R3, 8, 0)
    asm.store(R3, 8 + _VALUE, 0)
    asm.store(R3, 0, R1)
    asm.mov(R0, R3)
    asm.label(begun)
    asm.add(R0, 8)
    if type_.inner is not None:
        _add(emitter, replace(type_, function=type_.inner), given.number)
    else:
        asm.load(R1, R10, given.number)
        asm.store(R0, _VALUE, R1)
        asm.load(R1, R10, given.moment)
        asm.store(R0, 0, R1)
    asm.goto(end)
    asm.label(late)
    emitter.count_lost()


def _add(emitter: ValueEmitter, type_: AggregateType, number: int) -> None:
    # Adds to the value at r0 the number in a slot.
    asm = emitter.asm
    match type_.function:
        case Aggregate.COUNT | Aggregate.HIST | Aggregate.LHIST:
            asm.mov(R1, 1)
            asm.atomic_add(R0, 0, R1)
        case Aggregate.SUM:
            asm.store(R0, 0, 1)
            asm.load(R1, R10, number)
            asm.atomic_add(R0, _VALUE, R1)
        case Aggregate.AVG | Aggregate.STATS:
            asm.mov(R1, 1)
            asm.atomic_add(R0, 0, R1)
            asm.load(R1, R10, number)
            asm.atomic_add(R0, _VALUE, R1)
        case Aggregate.MIN | Aggregate.MAX:
            asm.load(R1, R10, number)
            if type_.signed:
                asm.mov(R2, _SIGN)
                asm.alu(Alu.XOR, R1, R2)
            if type_.function is Aggregate.MIN:
                asm.alu(Alu.XOR, R1, -1)
            _raise(emitter)
        case Aggregate.TSERIES:
            raise TypeError(type_)  # what it computes of an interval is added


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
