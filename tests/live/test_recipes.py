"""Every command of docs/recipes.md runs, and finds what the page shows."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from blockdevice import on_block_device
from test_readme import consoles, run

pytestmark = pytest.mark.usefixtures("ringbuf", "cookies", "vmlinux_btf")

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "recipes.md"
_RECIPES = consoles(_PAGE.read_text())
_BY_FUNCTIONS = _PAGE.read_text().partition("## The samples by kernel functions")[2]
_FILE = Path("/tmp/recipe")


def told(lines: list[str]) -> set[str]:
    """What of an output does not change from run to run: probes, names of items, headings."""
    text = "\n".join(lines)
    probes = re.findall(r"(?:tracepoint|rawtp|syscall|kprobe):\w[\w:]*", text)
    items = re.findall(r"  ([a-z][\w>.-]*)=", text)
    names = re.findall(r"NO_SOCKET|O_RDONLY|ENOENT|write\+0x|do_exit\+0x|COUNT|avg|us; count", text)
    return {*probes, *items, *names}


def need_functions(names: set[str]) -> None:
    """Skip where the kernel has none of that name."""
    known = {line.split()[2] for line in Path("/proc/kallsyms").read_text().splitlines()}
    if lacking := names - known:
        pytest.skip(f"needs a function that other kernels have: {', '.join(sorted(lacking))}")


@pytest.mark.parametrize(("command", "shown"), _RECIPES, ids=[c[:60] for c, _ in _RECIPES])
def test_recipes_find_what_is_shown(
    command: str, shown: list[str], request: pytest.FixtureRequest
) -> None:
    if f"$ {command}\n" in _BY_FUNCTIONS:
        request.getfixturevalue("kprobes")
        need_functions({name for line in shown for name in re.findall(r"kprobe:(\w+)", line)})
    block = str(_FILE) in command
    with on_block_device(_FILE) if block else contextlib.nullcontext():
        lines, code = run(command)
    assert code == 0, lines
    assert told(shown) <= told(lines), lines
    (closing,) = (m for line in lines if (m := re.fullmatch(r"(\d+) events?, 0 lost", line)))
    assert int(closing[1]) > 0


def test_the_five_samples_and_ten_questions() -> None:
    page = _PAGE.read_text()
    first, second = page.split("## Ten more questions")
    assert len(re.findall(r"^### ", first, re.MULTILINE)) == 5
    second, third = second.split("## The samples by kernel functions")
    assert len(re.findall(r"^### ", second, re.MULTILINE)) == 10
    assert len(re.findall(r"^### ", third, re.MULTILINE)) == 5
    assert len(_RECIPES) == 5 + 11 + 6
    assert all(told(shown) for _, shown in _RECIPES)
