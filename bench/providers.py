"""Measure what a probe of a Python program costs, untraced and traced.

Beside a bare call of a Python function with the same two values, and beside the package ``stapsdt``
where that is installed with the C library it needs. Each figure is for one statement in a loop of
its own, without what the loop itself takes; nothing is asserted. The best round counts: what
others do on the machine can only add to it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
import timeit
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

USDT = Path(sys.executable).parent / "usdt"
UNTRACED, TRACED = 20_000, 10_000  # statements of one repetition: shorter than a time slice
REPETITIONS = 10  # of a round
PATIENCE = 20.0


def _bare(number: int, text: str) -> None:
    """A probe that does nothing."""


def _best(statement: str, names: dict[str, Any], number: int, rounds: int) -> float:
    # Return nanoseconds for one statement.
    timer = timeit.Timer(statement, globals=names)
    return min(timer.repeat(rounds * REPETITIONS, number)) / number * 1e9


@contextlib.contextmanager
def _tracing(words: tuple[str, ...], enabled: Callable[[], int]) -> Iterator[None]:
    # Run in a separate process: threads of this one would compete with what is measured.
    command = [str(USDT), *words, "-p", str(os.getpid())]
    nothing = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=nothing, stderr=subprocess.PIPE, text=True) as tracer:
        deadline = time.monotonic() + PATIENCE
        while not enabled():
            if tracer.poll() is not None or time.monotonic() > deadline:
                tracer.kill()
                sys.exit(f"bench: {' '.join(command)} did not attach: {tracer.communicate()[1]}")
            time.sleep(0.01)
        yield
        tracer.terminate()
        tracer.communicate()


def _theirs() -> tuple[Any, Any] | str:
    # Return provider and probe of stapsdt, or why there are none.
    try:
        stapsdt = import_module("stapsdt")
    except ImportError:
        return "is not installed (pip install stapsdt)"
    except OSError as err:
        return f"is installed, but needs the C library libstapsdt, to be compiled: {err}"
    provider = stapsdt.Provider("theirs")
    probe = provider.add_probe("hit", stapsdt.ArgTypes.int64, stapsdt.ArgTypes.uint64)
    return (provider, probe) if provider.load() else "made no probes"


def providers(rounds: int) -> None:
    """Measure, and print the results."""
    from usdt import Provider  # noqa: PLC0415 - --help does not pay for it

    print(f"probes of a Python program, ns a statement: best of {rounds} rounds")
    ours = Provider("ours")
    probe, span = ours.probe("hit", int, str), ours.span("work")
    names = {"bare": _bare, "probe": probe, "wrapped": span(_bare)}
    loop = _best("pass", names, UNTRACED, rounds)

    def show(title: str, statement: str, number: int = UNTRACED, beside: str = "") -> float:
        taken = _best(statement, names, number, rounds) - loop
        more = f"   {taken - known[beside]:+9.1f} beside {beside}" if beside else ""
        print(f"  {title:38} {taken:9.1f} ns{more}")
        known[title] = taken
        return taken

    known: dict[str, float] = {}
    call = "a bare call"
    show(call, "bare(42, 'text')")
    show("fire(), not loaded", "probe.fire(42, 'text')", beside=call)
    with ours:
        show("fire(), nobody traces", "probe.fire(42, 'text')", beside=call)
        show(".enabled, nobody traces", "probe.enabled")
        show("a call in a span, nobody traces", "wrapped(42, 'text')", beside=call)
        for title, words in (
            ("usdt count", ("count", "ours:hit")),
            ("usdt trace, both values", ("trace", "ours:hit(arg0, str(arg1))")),
        ):
            with _tracing(words, lambda: probe.enabled):
                show(f"fire(), {title}", "probe.fire(42, 'text')", TRACED, beside=call)
    theirs = _theirs()
    if isinstance(theirs, str):
        print(f"  stapsdt is left out: it {theirs}")
        return
    names["theirs"] = theirs[1]
    show("stapsdt fire(), nobody traces", "theirs.fire(42, 7)", beside=call)
    show("stapsdt is_enabled, nobody traces", "theirs.is_enabled")
