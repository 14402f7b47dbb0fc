"""A program that fires no faster than it is traced: in batches, each read before the next begins.

A batch fits into every buffer as a whole. So nothing is lost however late the tracer comes to read
it, and a test of that does not depend on the pace of the machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fixtures import build, start
from patience import patient
from tracing_tools import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from fixtures import Fixture

__all__ = ("BATCHES", "ROUNDS", "fire_and_wait", "lines_of", "loop", "numbers")

#: Hits of a batch: a few MB of records. Six fill every buffer, 8 MiB each, more than twice.
ROUNDS = 50_000 if patient(1) == 1 else 10_000  # in virtual machines
BATCHES = 6 if patient(1) == 1 else 5
_TIMEOUT = patient(120)


def loop() -> AbstractContextManager[Fixture]:
    """The program: each order to fire is a batch."""
    return start(build("default", "loop"), "-w", "-q", "-n", ROUNDS)


def fire_and_wait(program: Fixture, read: Callable[[], int], batches: int = BATCHES) -> None:
    """Fire batches; ``read`` says how many hits the tracer has read so far."""
    for number in range(1, batches + 1):
        program.fire(timeout=_TIMEOUT)
        _wait_for(read, number * ROUNDS)


def _wait_for(read: Callable[[], int], hits: int) -> None:
    until(lambda: read() >= hits, f"{hits} hits", timeout=_TIMEOUT, every=0.05)


def lines_of(output: Path) -> Callable[[], int]:
    """How many lines a growing file has."""
    count = position = 0

    def look() -> int:
        nonlocal count, position
        with output.open("rb") as file:
            file.seek(position)
            data = file.read()
        position += len(data)
        count += data.count(b"\n")
        return count

    return look


def numbers(batches: int = BATCHES) -> list[int]:
    """The rounds as the program counts them: the first argument of its hits, in their order."""
    return [*range(ROUNDS)] * batches
