"""Programs whose functions' addresses are known, because they tell them; for tests of symbols."""

from __future__ import annotations

import contextlib
import subprocess
from typing import TYPE_CHECKING

from kept_builds import KEPT, compile_in
from skips import need_program

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ("TELLER", "compiled", "running", "told")

#: Prints "name address" of its functions and of what else it has mapped, then waits for its input.
TELLER = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
__attribute__((noinline)) int exported_function(int x) { return x + 1; }
__attribute__((noinline)) static int hidden_function(int x) { return x + 2; }
int main(void)
{
    void *anonymous = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("exported %p\nhidden %p\nmain %p\n", exported_function, hidden_function, main);
    printf("qsort %p\nanonymous %p\nvdso %#lx\n", qsort, anonymous, getauxval(AT_SYSINFO_EHDR));
    printf("end -\n");
    fflush(stdout);
    getchar();
    return exported_function(1) + hidden_function(2) == 0;
}
"""


def compiled(
    folder: Path, source: str, *options: str, name: str = "teller", kept: Path | None = KEPT
) -> Path:
    """A program of C source; C++ with ``-xc++`` among the options."""
    path = folder / f"{name}.c"
    path.write_text(source)
    program = folder / name
    compiler = need_program("g++" if "-xc++" in options else "gcc")
    compile_in(folder, [compiler, *options, "-w", "-o", program, path], kept=kept)
    return program


@contextlib.contextmanager
def running(*words: str | Path) -> Iterator[subprocess.Popen[str]]:
    """A program with pipes; killed in the end."""
    process = subprocess.Popen(
        list(map(str, words)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        with process:
            yield process
            process.kill()
    finally:
        process.kill()


def told(process: subprocess.Popen[str]) -> dict[str, int]:
    """What the program says of itself: name → address."""
    assert process.stdout is not None
    found = {}
    for line in process.stdout:
        name, _, value = line.strip().partition(" ")
        if name == "end":
            return found
        found[name] = int(value, 16)
    raise AssertionError("the program ended early")
