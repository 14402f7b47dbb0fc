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
int main(void)
{
    struct pair p = {-5, (unsigned __int128)1 << 100, 4};
    return take(-7, &p, 1, 2, 3, 4, 5, 6, -((__int128)1 << 64)) == 0;
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
