"""Code that matches strings with patterns of ``*``, ``?`` and classes such as ``[a-z]``.

It goes through a string once. A word has a bit for each place in the pattern at which a match can
be; each byte of the string moves the bits of the places whose character it is. A ``*`` keeps a bit
where it is as well.
"""

from __future__ import annotations

import functools
from itertools import count, takewhile
from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.bpf.asm.insn import R0, R1, R2, R3, R4, R5, Alu, Jump
from usdt.engine.programs.codegen.strings import emit_each_byte
from usdt.engine.programs.types import aligned, size_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.bpf.asm.assembler import Assembler
    from usdt.engine.programs.codegen.values import ValueEmitter
    from usdt.engine.programs.typed import FindText

__all__ = ("Glob", "emit_match", "parse_glob")

_MOST = 63  # characters of a pattern: a place is behind the last of them
_ANY = frozenset(range(1, 256))


@frozen
class Glob:
    """A pattern.

    Attributes:
        characters: for each character of what matches, the bytes that it may be.
        stars: a bit for each number of characters behind which a ``*`` stands.
    """

    characters: tuple[frozenset[int], ...]
    stars: int


def parse_glob(pattern: bytes) -> Glob:
    """Read a pattern.

    Raises:
        ValueError: a class is not closed or has a range that is empty, or it is too long.
    """
    characters: list[frozenset[int]] = []
    stars = at = 0
    while at < len(pattern):
        match pattern[at : at + 1]:
            case b"*":
                stars |= 1 << len(characters)
            case b"?":
                characters.append(_ANY)
            case b"[":
                members, at = _class(pattern, at + 1)
                characters.append(members)
            case character:
                characters.append(frozenset(character))
        at += 1
        if len(characters) > _MOST:
            raise ValueError(f"a pattern has {_MOST} characters at most")
    return Glob(tuple(characters), stars)


def _class(pattern: bytes, start: int) -> tuple[frozenset[int], int]:
    # The bytes of a class that begins behind its "[", and the index of its "]".
    inverted = pattern[start : start + 1] == b"!"
    first = start + inverted
    end = pattern.find(b"]", first + 1)  # as the first member, "]" stands for itself
    if end < 0:
        raise ValueError("a class has no ']' at its end")
    members: set[int] = set()
    at = first
    while at < end:
        low = high = pattern[at]
        if at + 2 < end and pattern[at + 1 : at + 2] == b"-":
            high, at = pattern[at + 2], at + 2
        if low > high:
            raise ValueError(f"the range {chr(low)}-{chr(high)} is empty")
        members.update(range(low, high + 1))
        at += 1
    return (_ANY - members if inverted else frozenset(members)), end


def emit_match(emitter: ValueEmitter, what: FindText) -> None:
    """Leave in r0 whether a pattern matches a string."""
    if not isinstance(what.part, bytes):
        raise TypeError(what)
    asm, glob = emitter.asm, parse_glob(what.part)
    size = aligned(size_of(what.text.type))
    place = emitter.frame.in_scratch(size)
    emitter.put(what.text, place)
    step = functools.partial(_step, glob=glob, start=place.offset, size=size)
    emit_each_byte(emitter, size, 1, step)
    asm.alu(Alu.RSH, R0, len(glob.characters))
    asm.alu(Alu.AND, R0, 1)


def _step(asm: Assembler, *, glob: Glob, start: int, size: int) -> None:
    # r1: the index of a byte; r2: the address of the slots.
    end = asm.new_label("last")
    asm.jump(Jump.GE, R1, size, end)  # never taken; gives the verifier the bound
    asm.load(R3, R2, 0)
    asm.add(R3, R1)
    asm.load(R0, R3, start, 1)
    asm.jump(Jump.EQ, R0, 0, end)
    asm.load(R5, R2, 8)
    asm.mov(R4, 0)
    for members in dict.fromkeys(glob.characters):
        bits = sum(1 << at for at, one in enumerate(glob.characters) if one == members)
        _add_bits(asm, members, bits)
    asm.alu(Alu.AND, R4, R5)
    asm.alu(Alu.LSH, R4, 1)
    asm.mov(R1, _signed(glob.stars))
    asm.alu(Alu.AND, R5, R1)
    asm.alu(Alu.OR, R4, R5)
    asm.store(R2, 8, R4)
    asm.jump(Jump.EQ, R4, 0, end)  # nothing can match any more
    asm.mov(R0, 0)
    asm.exit()
    asm.label(end)
    asm.mov(R0, 1)
    asm.exit()


def _add_bits(asm: Assembler, members: frozenset[int], bits: int) -> None:
    # Adds bits to r4 if the byte in r0 is one of some.
    found, absent = asm.new_label("member"), asm.new_label("no member")
    if members != _ANY:
        for low, high in _ranges(members):
            other = asm.new_label("range")
            asm.jump(Jump.LT, R0, low, other)
            asm.jump(Jump.LE, R0, high, found)
            asm.label(other)
        asm.goto(absent)
    asm.label(found)
    asm.mov(R1, _signed(bits))
    asm.alu(Alu.OR, R4, R1)
    asm.label(absent)


def _ranges(members: frozenset[int]) -> Iterator[tuple[int, int]]:
    for low in sorted(members):
        if low - 1 not in members:
            yield low, max(takewhile(members.__contains__, count(low)))


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number
