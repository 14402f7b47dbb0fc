"""Every example of docs/api.md runs, and prints what the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from example_lines import LINES, check_lines
from house import ROOT

import kprobe
import usdt
from usdt import bpf

if TYPE_CHECKING:
    from types import ModuleType

_PAGE = ROOT / "docs" / "api.md"
if not _PAGE.exists():
    pytest.skip("needs docs/api.md, which virtual machines lack", allow_module_level=True)

from test_readme import consoles, needs_python, shape  # noqa: E402 - reads README.md, which they lack, too

pytestmark = pytest.mark.usefixtures("ringbuf", "cookies", "vmlinux_btf")

TEXT = _PAGE.read_text()


def blocks() -> list[tuple[str, str]]:
    """Each program of the page, and what is shown of its output."""
    return re.findall(
        r"```python\n((?:(?!```).)*?)```\n\n```text\n((?:(?!```).)*?)```", TEXT, re.DOTALL
    )


@needs_python
@pytest.mark.parametrize(
    ("program", "shown"), blocks(), ids=[program.split("\n\n")[1][:50] for program, _ in blocks()]
)
def test_examples_print_what_is_shown(program: str, shown: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert not done.returncode, done.stderr
    assert not done.stderr
    assert [*map(shape, done.stdout.splitlines())] == [*map(shape, shown.splitlines())]


def test_every_example_has_its_output() -> None:
    assert len(blocks()) == TEXT.count("```python") == TEXT.count("```text") > 12


@pytest.mark.parametrize("module", [bpf, kprobe, usdt], ids=lambda module: module.__name__)
def test_every_public_name_is_on_the_page(module: ModuleType) -> None:
    missing = [name for name in module.__all__ if not re.search(rf"\b{name}\b", TEXT)]
    assert not missing


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert (Path(_PAGE).parent / target).exists(), target


def test_what_the_larger_examples_print_looks_as_it_does() -> None:
    shown = consoles(TEXT)
    names = [re.findall(r"examples/(\w+)\.py", command) for command, _ in shown]
    assert sorted(name for found in names for name in found) == sorted(LINES)
    for (name,), (_, lines) in zip(names, shown, strict=True):
        check_lines(name, lines)
