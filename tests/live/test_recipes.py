"""Every command of docs/recipes.md runs, and finds what the page shows."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from blockdevice import on_block_device
from services import busy, running_cluster
from skips import need_program
from test_readme import consoles, run

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.usefixtures("ringbuf", "cookies", "vmlinux_btf")

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "recipes.md"
_RECIPES = consoles(_PAGE.read_text())
_BY_FUNCTIONS = _PAGE.read_text().partition("## The samples by kernel functions")[2]
_FILE = Path("/tmp/recipe")


def told(lines: list[str]) -> set[str]:
    """What of an output does not change from run to run: probes, names of items, headings."""
    text = "\n".join(lines)
    kinds = "tracepoint|rawtp|syscall|kprobe|postgresql|python"
    probes = re.findall(rf"(?:{kinds}):\w[\w:]*", text)
    items = re.findall(r"  ([a-z][\w>.-]*)=", text)
    symbols = r"NO_SOCKET|O_RDONLY|ENOENT|write\+0x|do_exit\+0x|;malloc |^dd;"
    names = re.findall(rf"{symbols}|COUNT|P99|avg|us; count|UPDATE", text, re.MULTILINE)
    return {*probes, *items, *names}


def need_functions(names: set[str]) -> None:
    """Skip where the kernel has none of that name."""
    known = {line.split()[2] for line in Path("/proc/kallsyms").read_text().splitlines()}
    if lacking := names - known:
        pytest.skip(f"needs a function that other kernels have: {', '.join(sorted(lacking))}")


@contextlib.contextmanager
def surroundings(command: str) -> Iterator[None]:
    """What a command needs: a file on a disk, a busy server, a program; a skip where it is not."""
    if "java" in command:
        need_program("java", "default-jre-headless")
    if "postgresql:" in command:
        with running_cluster() as cluster, busy(cluster):
            yield
    elif str(_FILE) in command:
        with on_block_device(_FILE):
            yield
    else:
        yield


@pytest.mark.parametrize(("command", "shown"), _RECIPES, ids=[c[:60] for c, _ in _RECIPES])
def test_recipes_find_what_is_shown(
    command: str, shown: list[str], request: pytest.FixtureRequest
) -> None:
    if f"$ {command}\n" in _BY_FUNCTIONS:
        request.getfixturevalue("kprobes")
        need_functions({name for line in shown for name in re.findall(r"kprobe:(\w+)", line)})
    with surroundings(command):
        lines, code = run(command)
    assert code == 0, lines
    assert told(shown) <= told(lines), lines
    (closing,) = (m for line in lines if (m := re.fullmatch(r"(\d+) events?, 0 lost", line)))
    assert int(closing[1]) > 0


def test_the_five_samples_and_ten_questions() -> None:
    page = _PAGE.read_text()
    first, second = page.split("## Ten more questions")
    assert len(re.findall(r"^### ", first, re.MULTILINE)) == 5
    second, numbers = second.split("## Percentiles, and stacks that weigh")
    numbers, third = numbers.split("## The samples by kernel functions")
    assert len(re.findall(r"^### ", second, re.MULTILINE)) == 10
    assert len(re.findall(r"^### ", numbers, re.MULTILINE)) == 5
    assert len(re.findall(r"^### ", third, re.MULTILINE)) == 5
    assert len(_RECIPES) == 5 + 11 + 5 + 6
    assert all(told(shown) for _, shown in _RECIPES)
