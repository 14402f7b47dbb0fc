"""Where instructions begin: as objdump has it, for every byte of some functions."""

from __future__ import annotations

import importlib
import itertools
import subprocess
from typing import TYPE_CHECKING

import cross
import pytest
from fixtures import build
from skips import need_program

from usdt.elf.file import ElfFile
from usdt.uprobes import instruction_boundary as boundary
from usdt.uprobes.instruction_boundary import boundary_problem

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """
#include <stdlib.h>
double scaled(double x, long y) { return x * (double)y / 3.0 + (double)(y << 7); }
int chosen(int x)
{
    switch (x) {
    case 1: return 17;
    case 2: return abs(x) * 1234567;
    case 3: return x / 12345;
    case 9: return -x;
    case 11: return x % 7;
    default: return x * 3;
    }
}
long summed(const long *all, int n) { long s = 0; while (n--) s += all[n] ^ 0x123456789; return s; }
"""


def functions(
    path: Path, objdump: str, environment: dict[str, str] | None = None
) -> dict[str, list[int]]:
    """The addresses of the instructions of each function, by objdump's account."""
    done = subprocess.run(
        [objdump, "-d", "--section=.text", "-z", str(path)],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
        timeout=60,
    )
    found: dict[str, list[int]] = {}
    name = ""
    for line in done.stdout.splitlines():
        if line.endswith(">:"):
            name = line.partition("<")[2][:-2]
        elif line.startswith(" ") and line.count("\t") > 1:
            found.setdefault(name, []).append(int(line.partition(":")[0], 16))
    return found


def check(path: Path, known: list[int]) -> int:
    """Every byte of a function's code is judged as it should be; how many were."""
    begins = set(known)
    with ElfFile(path) as elf:
        for address in range(known[0], known[-1] + 1):
            problem, unknown = boundary_problem(elf, known[0], address)
            assert not unknown, hex(address)
            assert (not problem) == (address in begins), (hex(address), problem)
    return len(known)


@pytest.mark.parametrize("options", [("-O2",), ("-O0",), ("-O3", "-mavx2", "-ffast-math")])
def test_every_byte_of_functions_on_x86(tmp_path: Path, options: tuple[str, ...]) -> None:
    pytest.importorskip(
        "capstone", reason="needs the Python package capstone: pip install capstone"
    )
    (tmp_path / "code.c").write_text(SOURCE)
    path = tmp_path / "code.so"
    words = [need_program("gcc"), "-shared", "-fPIC", *options, "-o", path, tmp_path / "code.c"]
    subprocess.run(list(map(str, words)), check=True, timeout=60)
    known = functions(path, need_program("objdump", "binutils"))
    assert sum(check(path, known[name]) for name in ("scaled", "chosen", "summed")) > 40


@pytest.mark.parametrize("machine", ["riscv64", "s390x", "aarch64", "ppc64le"])
def test_every_byte_of_functions_elsewhere(tmp_path: Path, machine: str) -> None:
    command, environment = cross._compiler(machine)
    (tmp_path / "code.c").write_text(SOURCE)
    path = tmp_path / "code.so"
    words = [*command, "-shared", "-fPIC", "-nostdlib", "-O2", "-o", path, tmp_path / "code.c"]
    subprocess.run(list(map(str, words)), check=True, env=environment, timeout=60)
    known = functions(path, command[0].removesuffix("gcc") + "objdump", environment)
    assert sum(check(path, known[name]) for name in ("scaled", "summed")) > 10


def test_the_instruction_that_is_cut_is_named(tmp_path: Path) -> None:
    pytest.importorskip(
        "capstone", reason="needs the Python package capstone: pip install capstone"
    )
    path = build("default", "args")
    (name, known), *_ = functions(path, need_program("objdump", "binutils")).items()
    assert name
    at = next(a for a, b in itertools.pairwise(known) if b - a > 1)
    with ElfFile(path) as elf:
        problem, unknown = boundary_problem(elf, known[0], at + 1)
        assert not unknown
        assert problem == f"the instruction there begins at {at:#x} (+{at - known[0]:#x})"
        problem, unknown = boundary_problem(elf, known[0], known[0] + (2 << 20))
        assert (problem, unknown.endswith("(the code cannot be read)")) == ("", True)


def test_without_capstone_it_is_said_that_nothing_was_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    path = build("default", "args")
    known = next(iter(functions(path, need_program("objdump", "binutils")).values()))
    with ElfFile(path) as elf:
        problem, unknown = boundary_problem(elf, known[0], known[0] + 1)
    assert (problem, unknown) == ("", f"{boundary._UNKNOWN} (capstone is not installed)")
