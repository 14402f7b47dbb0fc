"""Code for strings: their lengths, one in another, one behind another."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from usdt.bpf._uapi import Helper
from usdt.bpf.asm.insn import R0, R1, R2, R3, R4, R5, R6, R7, R10, Jump
from usdt.engine.programs.types import aligned, size_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from usdt.bpf.asm.assembler import Assembler
    from usdt.bpf.asm.insn import Reg
    from usdt.engine.programs.codegen.frame import Place
    from usdt.engine.programs.codegen.values import ValueEmitter
    from usdt.engine.programs.typed import (
        FindText,
        Padded,
        PathText,
        TextLength,
    )

__all__ = (
    "emit_concatenated",
    "emit_each_byte",
    "emit_find_text",
    "emit_object",
    "emit_path",
    "emit_text_length",
)


def emit_object(asm: Assembler, path: tuple[int, ...], absent: str) -> None:
    """Leave the typed address of an object of the kernel in r1; go to ``absent`` if it is NULL."""
    # The verifier knows the types of what it loads from the context and from what that leads to.
    first, *between, last = path
    asm.load(R1, R6, first)
    asm.jump(Jump.EQ, R1, 0, absent)
    for offset in between:
        asm.load(R1, R1, offset)
        asm.jump(Jump.EQ, R1, 0, absent)
    if last:
        asm.add(R1, last)


def emit_path(emitter: ValueEmitter, what: PathText, place: Place, *, fill: bool) -> None:
    """Put the path of a file at a place, or its end; an empty string if it has none."""
    # bpf_d_path() leaves rests of the path behind it.
    asm, size = emitter.asm, what.type.size
    if fill:
        emitter.zero(place, size_of(what.type))
    else:
        asm.store(place.base, place.offset, 0, 1)
    whole = emitter.frame.temporary(size_of(what.type))
    emitter.zero(whole, size_of(what.type))
    absent = asm.new_label("absent")
    emit_object(asm, what.path, absent)
    asm.mov(R2, whole.base)
    asm.add(R2, whole.offset)
    asm.mov(R3, size)
    asm.call(Helper.D_PATH)
    _copy_text(asm, place, whole, size)
    asm.label(absent)


def emit_text_length(emitter: ValueEmitter, what: TextLength) -> None:
    """Leave the bytes of a string before its NUL in r0."""
    # A copy of the string tells its length, with the NUL.
    asm = emitter.asm
    place = emitter.in_memory(what.text)
    size = size_of(what.text.type)
    copy = emitter.frame.temporary(size)
    empty = asm.new_label("empty")
    _copy_text(asm, copy, place, size)
    asm.jump(Jump.SLE, R0, 0, empty)
    asm.add(R0, -1)
    asm.label(empty)


def emit_find_text(emitter: ValueEmitter, what: FindText) -> None:
    """Leave in r0 whether a string has another in it, or where."""
    # A function looks at each place of the string.
    asm, part = emitter.asm, what.part
    size = aligned(size_of(what.text.type))
    room = len(part) if isinstance(part, bytes) else size_of(part.type)
    if not room:
        asm.mov(R0, int(not what.position))
        return
    # Behind the string is a NUL, and room for what is compared at its last byte.
    place = emitter.frame.in_scratch(size + 8 + aligned(room))
    emitter.put(what.text, place)
    asm.store(place.base, place.offset + size, 0)
    wanted = place
    if not isinstance(part, bytes):
        wanted = emitter.frame.in_scratch(aligned(room))
        emitter.put(part, wanted)
    look = functools.partial(
        _look,
        part=[*part] if isinstance(part, bytes) else [None] * room,
        start=place.offset,
        wanted=wanted.offset,
        size=size,
        result=R1 if what.position else 1,
    )
    emit_each_byte(emitter, size, -int(what.position), look)


def emit_each_byte(
    emitter: ValueEmitter, size: int, state: int, step: Callable[[Assembler], None]
) -> None:
    """Call a function for each byte of a string in the scratch memory; leave its result in r0.

    Args:
        emitter: emits the call.
        size: bytes of the string.
        state: the first value of the result.
        step: emits the function. It has the index of the byte in r1, and in r2 the address of two
            words: that of the scratch memory, and the result. It returns 1 to be the last.
    """
    asm = emitter.asm
    result, memory = emitter.frame.push(), emitter.frame.push()
    asm.store(R10, result, state)
    asm.store(R10, memory, R7)
    name = asm.new_label("byte")
    asm.mov(R1, size)
    asm.load_function(R2, name)
    asm.mov(R3, R10)
    asm.add(R3, memory)
    asm.mov(R4, 0)
    asm.call(Helper.LOOP)
    asm.load(R0, R10, result)
    asm.function(name, step)


def _look(
    asm: Assembler,
    *,
    part: Sequence[int | None],
    start: int,
    wanted: int,
    size: int,
    result: Reg | int,
) -> None:
    # r1: a place of the string; r2: the address of the slots. A byte of what is wanted is a
    # constant, or is in memory, where it ends at a NUL.
    other, end, same = asm.new_label("other"), asm.new_label("last"), asm.new_label("same")
    asm.jump(Jump.GE, R1, size, end)  # never taken; gives the verifier the bound
    asm.load(R4, R2, 0)
    asm.mov(R3, R4)
    asm.add(R3, R1)
    for at, byte in enumerate(part):
        if byte is None:
            asm.load(R5, R4, wanted + at, 1)
            asm.jump(Jump.EQ, R5, 0, same)
        asm.load(R0, R3, start + at, 1)
        if not at:
            asm.jump(Jump.EQ, R0, 0, end)
        asm.jump(Jump.NE, R0, R5 if byte is None else byte, other)
    asm.label(same)
    asm.store(R2, 8, result)
    asm.label(end)
    asm.mov(R0, 1)
    asm.exit()
    asm.label(other)
    asm.mov(R0, 0)
    asm.exit()


def emit_concatenated(emitter: ValueEmitter, value: Padded, place: Place) -> None:
    """Put a string with another behind it at a place.

    They are joined in scratch memory, where an address may depend on the length of a string.
    """
    if value.after is None:
        raise TypeError(value)
    asm, mark = emitter.asm, emitter.frame.mark()
    first, size = size_of(value.value.type), size_of(value.type)
    whole = emitter.frame.in_scratch(size)
    behind = emitter.in_memory(value.after)
    done = asm.new_label("joined")
    emitter.zero(whole, size)
    emitter.put(value.value, whole)
    _copy_text(asm, emitter.frame.temporary(first), whole, first)  # tells the length, with the NUL
    asm.jump(Jump.SLE, R0, 0, done)
    asm.jump(Jump.GT, R0, first, done)  # never taken; gives the verifier the bound
    asm.mov(R1, whole.base)
    asm.add(R1, R0)
    asm.add(R1, whole.offset - 1)
    asm.mov(R2, size_of(value.after.type))
    asm.mov(R3, behind.base)
    asm.add(R3, behind.offset)
    asm.call(Helper.PROBE_READ_KERNEL_STR)
    asm.label(done)
    emitter.copy(whole, place, size)
    emitter.frame.release(mark)


def _copy_text(asm: Assembler, place: Place, source: Place, size: int) -> None:
    asm.mov(R1, place.base)
    asm.add(R1, place.offset)
    asm.mov(R2, size)
    asm.mov(R3, source.base)
    asm.add(R3, source.offset)
    asm.call(Helper.PROBE_READ_KERNEL_STR)
