"""Expressions evaluated in the kernel, compared with the same expressions compiled by gcc."""

from __future__ import annotations

import json
import random
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest
from expressions import (
    ARGUMENTS,
    HEADER,
    POINTER,
    POINTER_BYTES,
    Expression,
    expressions,
)
from fixtures import Fixture, compiler, start
from patience import patient

import usdt
from usdt.arch.locations import Unreadable
from usdt.base.errors import TracingError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from usdt.engine.output.formatters.event_records import Event

pytestmark = pytest.mark.usefixtures("ringbuf")

_VALUES = expressions(1, 480, 4)
_PREDICATES = expressions(2, 60, 3, predicates=True)
_ROWS = 16
_ADDRESS = 0x10000000  # where the program puts what the pointer points at
_AT_ONCE = 60  # of the 64 values a probe can show

_RANGES = {
    "signed char": (-(1 << 7), (1 << 7) - 1),
    "unsigned char": (0, (1 << 8) - 1),
    "short": (-(1 << 15), (1 << 15) - 1),
    "unsigned short": (0, (1 << 16) - 1),
    "int": (-(1 << 31), (1 << 31) - 1),
    "unsigned int": (0, (1 << 32) - 1),
    "long": (-(1 << 63), (1 << 63) - 1),
    "unsigned long": (0, (1 << 64) - 1),
}


def _rows() -> list[list[int]]:
    # Every extreme of every type, values near 0, and any; the last argument counts the rows.
    source = random.Random(3)
    rows = []
    for index in range(_ROWS):
        row = []
        for kind in ARGUMENTS:
            low, high = _RANGES[kind]
            near = source.randint(max(low, -3), 3)
            row.append(source.choice((low, high, near, near, 0, source.randint(low, high))))
        row[POINTER], row[-1] = _ADDRESS, index
        rows.append(row)
    return rows


def _literal(value: int) -> str:
    return "(-0x7fffffffffffffffl - 1)" if value == -(1 << 63) else f"{value}{'ul' * (value > 0)}"


def _source(rows: list[list[int]], checked: Sequence[Expression]) -> str:
    parameters = ", ".join(f"{kind} arg{i}" for i, kind in enumerate(ARGUMENTS))
    names = ", ".join(f"arg{i}" for i in range(len(ARGUMENTS)))
    members = " ".join(f"{kind} arg{i};" for i, kind in enumerate(ARGUMENTS))
    table = ",\n".join("{" + ", ".join(map(_literal, row)) + "}" for row in rows)
    spread = ", ".join(f"v->arg{i}" for i in range(len(ARGUMENTS)))
    constants = ", ".join(
        f"({kind}){_literal(value)}" for kind, value in zip(ARGUMENTS, rows[0], strict=True)
    )
    truths = "\n".join(
        f'    if (!setjmp(unreadable)) SHOW({one.c}); else printf("null");\n    printf(", ");'
        for one in checked
    )
    return f"""
#include <sys/sdt.h>
{HEADER}
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
struct values {{ {members} }};
const struct values rows[] = {{ {table} }};
enum {{ ROWS = sizeof rows / sizeof *rows }};

__attribute__((noipa)) void registers({parameters}) {{ STAP_PROBE12(e, registers, {names}); }}
__attribute__((noipa)) void memory(const struct values *v) {{ STAP_PROBE12(e, memory, {spread}); }}
__attribute__((noipa)) void constants(void) {{ STAP_PROBE12(e, constants, {constants}); }}
__attribute__((noipa)) void truth({parameters}) {{
    printf("[");
{truths}
    printf("0]\\n");
}}

int main(int argc, char **argv)
{{
    char line[100];
    unsigned char *bytes = mmap((void *){_ADDRESS}, {POINTER_BYTES}, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    for (unsigned i = 0; i < {POINTER_BYTES}; i++)
        bytes[i] = i * i * 37 + 11;
    if (argc > 1) {{
        for (const struct values *v = rows; v < rows + ROWS; v++)
            truth({spread});
        return 0;
    }}
    printf("ready %d\\n", getpid());
    while (fflush(stdout), fgets(line, sizeof line, stdin)) {{
        for (const struct values *v = rows; v < rows + ROWS; v++) {{
            registers({spread});
            memory(v);
            constants();
        }}
        printf("done %d\\n", 3 * ROWS);
    }}
}}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program with the probes; with any word it prints what C says of every row."""
    folder = tmp_path_factory.mktemp("expressions")
    path = folder / "expressions"
    text = _source(_rows(), [*_VALUES, *_PREDICATES])
    command = [*compiler(), "-O1", "-fwrapv", "-w", "-x", "c", "-", "-o", str(path)]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return path


@pytest.fixture(scope="module")
def truth(program: Path) -> list[list[int | None]]:
    """What C says: for each row, of each expression, None for a division by zero."""
    done = subprocess.run([program, "truth"], capture_output=True, text=True, check=True)
    return [json.loads(line)[:-1] for line in done.stdout.splitlines()]


@pytest.fixture
def running(program: Path) -> Iterator[Fixture]:
    """The program, waiting for the order to fire."""
    with start(program) as process:
        yield process.wait_ready()


def _take(events: usdt.Events, number: int) -> list[Event]:
    # Exactly so many events: any more are waited for briefly.
    found: list[Event] = []
    deadline = time.monotonic() + patient(100)
    while len(found) < number and time.monotonic() < deadline:
        found += events.poll(0.5)
    return found + events.poll(0.05)


def _number(value: Any) -> int | None:
    if isinstance(value, Unreadable):
        assert "division by zero" in value.reason
        return None
    assert isinstance(value, int)
    return value


@pytest.mark.parametrize("where", ["registers", "memory", "constants"])
def test_values_are_what_c_says(
    where: str, running: Fixture, truth: list[list[int | None]]
) -> None:
    parts = [_VALUES[i : i + _AT_ONCE] for i in range(0, len(_VALUES), _AT_ONCE)]
    requests = [f"e:{where}({', '.join(one.item for one in part)})" for part in parts]
    with usdt.attach(*requests, pid=running.pid) as events:
        running.fire()
        found = _take(events, _ROWS * len(parts))
        assert not events.losses
    assert len(found) == _ROWS * len(parts)
    rows: list[dict[str, int | None]] = [{} for _ in range(_ROWS)]
    seen: dict[str, int] = {}
    for event in found:
        first = next(iter(event.args))
        row = seen[first] = seen.get(first, -1) + 1
        rows[row] |= {key: _number(value) for key, value in event.args.items()}
    wrong = {
        (row, one.item): (rows[row][one.item], expected)
        for row in range(_ROWS)
        for one, expected in zip(_VALUES, truth[0 if where == "constants" else row], strict=False)
        if rows[row][one.item] != expected
    }
    assert not wrong


def test_predicates_let_pass_what_c_says(running: Fixture, truth: list[list[int | None]]) -> None:
    last = f"arg{len(ARGUMENTS) - 1}"
    requests = [f"e:registers({one.item}, {last}, {n})" for n, one in enumerate(_PREDICATES)]
    answers = [row[len(_VALUES) :] for row in truth]
    expected = {
        (n, row) for row, answer in enumerate(answers) for n, value in enumerate(answer) if value
    }
    undecided = sum(value is None for answer in answers for value in answer)
    with usdt.attach(*requests, pid=running.pid) as events:
        running.fire()
        found = _take(events, len(expected))
        unread = sum(lost.unread for lost in events.losses)
    passed = [(next(iter([*event.args.values()][1:])), event.args[last]) for event in found]
    assert sorted(passed) == sorted(expected)
    assert unread == undecided


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("!" * 150 + "1", id="to the left"),
        pytest.param("arg0" + "+(arg1" * 60 + ")" * 60, id="to the right"),
    ],
)
def test_what_is_too_deep_is_one_clear_error(text: str, running: Fixture) -> None:
    with pytest.raises(TracingError, match="nested deeper than 100 levels") as caught:
        usdt.attach(f"e:registers({text})", pid=running.pid)
    assert len(str(caught.value).splitlines()) == 1


def test_what_is_deep_is_computed(running: Fixture) -> None:
    text = "arg2" + "+(arg3" * 45 + ")" * 45
    items = f"{text}, arg2, arg3, {text} == arg2 + 45 * arg3"
    with usdt.attach(f"e:registers({items})", pid=running.pid) as events:
        running.fire()
        found = _take(events, _ROWS)
    assert len(found) == _ROWS
    for event in found:
        assert event.args[text] == event.args["arg2"] + 45 * event.args["arg3"]


def test_a_long_sum_is_not_deep(running: Fixture) -> None:
    text = "+".join(["arg2"] * 90)
    with usdt.attach(f"e:registers({text}, arg2)", pid=running.pid) as events:
        running.fire()
        found = _take(events, _ROWS)
    assert [event.args[text] for event in found] == [90 * event.args["arg2"] for event in found]
    assert len(found) == _ROWS
