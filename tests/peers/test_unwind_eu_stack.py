"""Stacks of waiting programs, unwound by us and by eu-stack of elfutils."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import debian
import pytest
from skips import need_program
from stopped_stacks import unwound

from usdt.arch.pt_regs import PT_REGS_X86_64
from usdt.base.machine import KERNEL_MACHINE
from usdt.symbolize import Symbolizer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.engine.output.frames import Stack

C = r"""
#include <alloca.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static volatile int sink;
static char byte;
__attribute__((noinline)) int compare(const void *a, const void *b)
{
#ifdef BARE /* musl's own functions have no unwind tables */
    long found;
    __asm__ volatile("syscall" : "=a"(found) : "a"(0), "D"(0), "S"(&byte), "d"(1)
                     : "rcx", "r11", "memory");
    sink += found;
#else
    sink += read(0, &byte, 1);
#endif
    return *(int *)a - *(int *)b;
}
__attribute__((noinline)) int wide(int n)
{
    char *room = alloca(n * 16 + 16);
    int numbers[] = {3, n, 1};
    memset(room, n, n * 16 + 16);
#ifdef BARE
    sink += compare(numbers, numbers + 1);
#else
    qsort(numbers, 3, sizeof *numbers, compare);
#endif
    return room[n] + numbers[1];
}
__attribute__((noinline)) int deep(int n) { return (n ? deep(n - 1) : wide(2)) + sink; }
int main(int argc, char **argv) { return deep(argc + 3) == 0; }
"""
OPTIONS = ("-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls")


def source(folder: Path) -> Path:
    path = folder / "waits.c"
    path.write_text(C)
    return path


def plain(folder: Path, *options: str | Path) -> list[str | Path]:
    program = folder / "waits"
    subprocess.run(["gcc", *OPTIONS, *options, "-o", program, source(folder)], check=True)
    return [program]


def static(folder: Path) -> list[str | Path]:
    return plain(folder, "-static")


def stripped(folder: Path) -> list[str | Path]:
    return plain(folder, "-s")


def musl(folder: Path) -> list[str | Path]:
    library = debian.files("musl-dev") / "usr/lib/x86_64-linux-musl"
    headers = debian.files("musl-dev") / "usr/include/x86_64-linux-musl"
    program = folder / "waits"
    words = [
        "gcc",
        *OPTIONS,
        "-DBARE",
        "-static",
        "-no-pie",
        "-nostdinc",
        "-isystem",
        headers,
        "-nostdlib",
    ]
    parts = [library / "crt1.o", library / "crti.o", source(folder), library / "libc.a"]
    subprocess.run([*words, "-o", program, *parts, library / "crtn.o"], check=True)
    return [program]


def python(_: Path) -> list[str | Path]:
    if not Path("/usr/bin/python3.11").exists():
        pytest.skip("needs /usr/bin/python3.11: apt-get install python3")
    return ["/usr/bin/python3.11", "-c", "import os; sorted([1, 2], key=lambda n: os.read(0, 1))"]


def bash(_: Path) -> list[str | Path]:
    return ["/bin/bash", "-c", 'f() { read -r x; }; y=z; for i in 1; do f "$y"; done']


def waiting(process: subprocess.Popen[bytes]) -> None:
    # In read(0), its last instruction before the kernel.
    deadline = time.monotonic() + 100
    path = Path(f"/proc/{process.pid}/syscall")
    while not path.read_text().startswith("0 0x0 "):
        assert time.monotonic() < deadline, path.read_text()
        time.sleep(0.01)


def registers(pid: int) -> dict[str, int]:
    names = [name for name in PT_REGS_X86_64 if name.startswith("r")]
    words = [word for name in names for word in ("-ex", f'printf "{name} %lx\\n", ${name}')]
    command = [need_program("gdb"), "-q", "-nx", "-batch", "-p", str(pid), *words]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {
        name: int(value, 16)
        for name, value in re.findall(r"^(\w+) ([0-9a-f]+)$", shown, re.MULTILINE)
    }


def of_eu_stack(pid: int) -> list[tuple[int, str]]:
    # Exit code 1 means that it could not unwind to the end.
    command = [need_program("eu-stack", "elfutils"), "-r", "-p", str(pid)]
    shown = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = re.findall(r"^#\d+ +0x([0-9a-f]+)(?: - 1)? *(\S*)", shown, re.MULTILINE)
    return [(int(address, 16), name) for address, name in found]


@pytest.fixture
def process(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[int]:
    command = request.param(tmp_path)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as made:
        try:
            waiting(made)
            yield made.pid
        finally:
            made.kill()
            made.communicate()


@pytest.mark.skipif(KERNEL_MACHINE != "x86_64", reason="gdb's registers are those of x86-64")
@pytest.mark.parametrize("process", [plain, static, stripped, python, bash], indirect=True)
def test_stacks_are_those_of_eu_stack(process: int) -> None:
    ours, theirs = both(process)
    assert not ours.reason
    assert len(ours) > 3
    assert [frame.address for frame in ours] == [address for address, _ in theirs]
    for frame, (_, name) in zip(ours, theirs, strict=True):
        assert not name or not frame.symbol or name in frame.symbol or frame.symbol in name


@pytest.mark.skipif(KERNEL_MACHINE != "x86_64", reason="gdb's registers are those of x86-64")
@pytest.mark.parametrize("process", [musl], indirect=True)
def test_a_static_program_of_musl_up_to_the_code_of_musl(process: int) -> None:
    ours, theirs = both(process)
    assert [frame.symbol for frame in ours][:8] == ["compare", "wide", *["deep"] * 5, "main"]
    assert [frame.address for frame in ours] == [address for address, _ in theirs[: len(ours)]]
    assert "waits has no unwind table for" in ours.reason


def both(pid: int) -> tuple[Stack, list[tuple[int, str]]]:
    theirs = of_eu_stack(pid)
    with Symbolizer() as symbolizer:
        return unwound(symbolizer, pid, registers(pid)), theirs
