"""Mutations of seeds: bytes, numbers at every width, chunks, splices, and pieces of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

__all__ = ("MAX_SIZE", "mutate")

MAX_SIZE = 1 << 18  # of a mutant, in bytes

_NUMBERS = (0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128, 255, 256, 4095, 4096, 65535)
_EDGES = tuple(1 << bit for bit in (15, 16, 24, 30, 31, 32, 40, 48, 62, 63))
_PIECES = (
    *(bytes([byte]) for byte in b"()[]{}<>,.:;@%$#*&!?~^|+-=/\\'\"_ \t\n\r\0\x1b\x07\x7f"),
    *(b"\xff", b"\xc3\xa9", b"\xe2\x80\xae", b"\xc2\x9b", b"\xed\xa0\x80", b"->", b"&&", b"9" * 30),
    *(b"arg0", b"return", b"str(", b"buf(", b"0x", b"-1", b"1e999", b"null", b"[" * 40, b"(" * 40),
)


def mutate(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Return ``data`` with one to eight mutations; ``others`` are seeds to splice with."""
    mutant = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5, 8))):
        rng.choice(_MUTATIONS)(rng, mutant, others)
    return bytes(mutant[:MAX_SIZE])


def _span(rng: random.Random, mutant: bytearray) -> tuple[int, int]:
    start = rng.randint(0, len(mutant))
    return start, min(len(mutant), start + rng.choice((1, 2, 4, 8, 16, 64, 256, 4096)))


def _flip(rng: random.Random, mutant: bytearray, _: Sequence[bytes]) -> None:
    if mutant:
        mutant[rng.randrange(len(mutant))] ^= 1 << rng.randrange(8)


def _byte(rng: random.Random, mutant: bytearray, _: Sequence[bytes]) -> None:
    if mutant:
        mutant[rng.randrange(len(mutant))] = rng.randrange(256)


def _number(rng: random.Random, mutant: bytearray, _: Sequence[bytes]) -> None:
    # Overwrites an aligned number with an edge value, or one near the number that was there.
    size = rng.choice((1, 2, 4, 4, 8, 8))
    if len(mutant) < size:
        return
    at = rng.randrange(len(mutant) - size + 1)
    at -= at % size if rng.random() < 0.8 else 0
    order = rng.choice(("little", "little", "big"))
    old = int.from_bytes(mutant[at : at + size], order)
    value = rng.choice(
        (rng.choice(_NUMBERS), rng.choice(_EDGES), -rng.choice(_NUMBERS), old + 1, old - 1, old * 2)
    )
    mutant[at : at + size] = (value % (1 << 8 * size)).to_bytes(size, order)


def _delete(rng: random.Random, mutant: bytearray, _: Sequence[bytes]) -> None:
    start, end = _span(rng, mutant)
    del mutant[start:end]


def _repeat(rng: random.Random, mutant: bytearray, _: Sequence[bytes]) -> None:
    start, end = _span(rng, mutant)
    if len(mutant) < MAX_SIZE:
        mutant[start:start] = mutant[start:end] * rng.choice((1, 1, 2, 16))


def _move(rng: random.Random, mutant: bytearray, _: Sequence[bytes]) -> None:
    start, end = _span(rng, mutant)
    chunk = mutant[start:end]
    to = rng.randint(0, max(0, len(mutant) - len(chunk)))
    mutant[to : to + len(chunk)] = chunk


def _cut(rng: random.Random, mutant: bytearray, _: Sequence[bytes]) -> None:
    del mutant[rng.randint(0, len(mutant)) :]


def _insert(rng: random.Random, mutant: bytearray, _: Sequence[bytes]) -> None:
    at = rng.randint(0, len(mutant))
    mutant[at:at] = rng.choice(_PIECES)


def _splice(rng: random.Random, mutant: bytearray, others: Sequence[bytes]) -> None:
    other = rng.choice(others)
    start = rng.randint(0, len(other))
    at, end = _span(rng, mutant)
    mutant[at:end] = other[start : start + rng.choice((4, 16, 64, 256))]


_MUTATIONS = (
    *(_flip, _flip, _byte, _number, _number, _number),
    *(_delete, _repeat, _move, _cut, _insert, _insert, _splice),
)
