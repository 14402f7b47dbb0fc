"""``__int128``: a number wherever it is, in registers, on the stack, in a structure."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from skips import need_program, requires_root
from tracing_tools import run_usdt

from usdt.base.machine import PROCESS_MACHINE, word_size

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    requires_root,
    pytest.mark.skipif(word_size(PROCESS_MACHINE) == 4, reason="32-bit CPUs have no __int128"),
]

SOURCE = """
struct pair { __int128 low; unsigned __int128 high; int tail; };
__attribute__((noipa)) int
take(__int128 first, struct pair *p, int a, int b, int c, int d, int e, int f, __int128 last)
{
    return (int)first + p->tail + a + b + c + d + e + f + (int)last;
}
__attribute__((noipa)) __int128 wide(__int128 value, __int128 again)
{
    return ((__int128)1 << 90) + value + again - (value + again) - 1;
}
int main(void)
{
    struct pair p = {-5, (unsigned __int128)1 << 100, 4};
    int found = take(-7, &p, 1, 2, 3, 4, 5, 6, -((__int128)1 << 64));
    return found + (int)wide(found, -5) == 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wide")
    (folder / "program.c").write_text(SOURCE)
    path = folder / "program"
    command = [need_program("gcc"), "-g", "-O1", "-o", str(path), str(folder / "program.c")]
    subprocess.run(command, check=True)
    return path


def arguments_of(program: Path, items: str) -> dict[str, Any]:
    done = run_usdt("trace", "--json", "-c", program, f"uprobe:{program}:take({items})")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[0])["args"]
    assert isinstance(found, dict)
    return found


def test_it_is_a_number_in_registers_on_the_stack_and_in_memory(program: Path) -> None:
    assert arguments_of(program, "first, last, p->low, p->high, p->tail") == {
        "first": -7,
        "last": -(1 << 64),
        "p->low": -5,
        "p->high": 1 << 100,
        "p->tail": 4,
    }


def test_it_is_not_calculated_with(program: Path) -> None:
    done = run_usdt("trace", "-c", program, f"uprobe:{program}:take(p->low + 1)")
    assert done.returncode == 2
    assert "a value of 16 bytes can be shown, not calculated with" in done.stderr


@pytest.mark.parametrize(
    ("probe", "by", "key"),
    [
        pytest.param("take", "first", -7, id="in registers"),
        pytest.param("take", "last", -(1 << 64), id="on the stack"),
        pytest.param("take", "p->high", 1 << 100, id="in memory"),
        pytest.param("take", "out(p->low)", -5, id="in memory, at the return"),
        pytest.param("take(return)", "first", -7, id="in registers of the entry, at the return"),
        pytest.param("take(return)", "p->low", -5, id="in memory of the entry, at the return"),
        pytest.param("wide", "return", (1 << 90) - 1, id="a result"),
    ],
)
def test_it_is_a_key(program: Path, probe: str, by: str, key: int) -> None:
    done = run_usdt("count", "--json", "-c", program, f"uprobe:{program}:{probe}", "--by", by)
    assert done.returncode == 0, done.stderr
    (found,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert (found["key"], found["count"]) == ({by: key}, 1)


def test_it_pairs_a_start_with_its_end(program: Path) -> None:
    start, end = f"uprobe:{program}:take", f"uprobe:{program}:wide"
    keys = ("--key", "p->low", "--end-key", "again")
    done = run_usdt("latency", "--json", "-c", program, start, end, *keys)
    assert done.returncode == 0, done.stderr
    found, pairs = [json.loads(line) for line in done.stdout.splitlines()]
    assert (found["count"], pairs["unmatched"]) == (1, 0)


def test_a_result_alone_is_a_number(program: Path) -> None:
    done = run_usdt("trace", "--json", "-c", program, f"uprobe:{program}:wide(return)")
    assert json.loads(done.stdout)["args"] == {"return": (1 << 90) - 1}


def test_it_pairs_spans_whose_end_shows_its_arguments(program: Path) -> None:
    start, end = f"uprobe:{program}:take(a)", f"uprobe:{program}:wide"
    keys = ("--key", "p->low", "--end-key", "again")
    done = run_usdt("spans", "--json", "-c", program, start, end, *keys)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[0])
    assert found["end_args"] == {"value": 18, "again": -5}, "the result is not yet there"
