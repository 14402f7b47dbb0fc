"""Programs with as many sites as a test wants, made when it runs.

``build_sites(folder, {"same": [SYNTAX.pointer] * 400})`` compiles a program with the probe
``sites:same``, which :func:`fixtures.start` runs: each ``fire`` goes past every site once.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, NamedTuple

import pytest

from usdt.base.machine import PROCESS_MACHINE, word_size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ("SYNTAX", "build_sites", "constants")


class Syntax(NamedTuple):
    """How this machine's assembler writes what the tests want."""

    constant: str
    stack: str  # the stack pointer
    on_stack: str  # what it points to
    back: str  # the instruction that returns
    nop: str = "nop"

    def number(self, value: int) -> str:
        """A constant operand, as an int."""
        return f"-4@{self.constant}{value}"

    @property
    def pointer(self) -> str:
        """The stack pointer as an operand."""
        return f"{_WORD}@{self.stack}"

    @property
    def pointed(self) -> str:
        """What the stack pointer points to, as an operand."""
        return f"{_WORD}@{self.on_stack}"


_WORD = word_size(PROCESS_MACHINE)
SYNTAX = {
    "x86_64": Syntax("$", "%rsp", "(%rsp)", "ret"),
    "i386": Syntax("$", "%esp", "(%esp)", "ret"),
    "aarch64": Syntax("", "sp", "[sp]", "ret"),
    "arm": Syntax("#", "sp", "[sp]", "bx lr"),
    "ppc64le": Syntax("i", "1", "0(1)", "blr"),
    "riscv64": Syntax("", "sp", "0(sp)", "ret"),
    "s390x": Syntax("", "%r15", "0(%r15)", "br %r14", "nop 0"),
}[PROCESS_MACHINE]

_MAIN = """\
#include <stdio.h>
#include <string.h>
#include <unistd.h>

unsigned short sites_semaphore __attribute__((section(".probes"), used));
void sites_fire(void);

int main(void)
{
    char line[64];
    printf("ready %d\\n", getpid());
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin) && !strcmp(line, "fire\\n")) {
        sites_fire();
        printf("done %d\\n", SITES);
        fflush(stdout);
    }
    return 0;
}
"""


def _site(name: str, number: int, args: str) -> str:
    # One nop and its note: addresses of the nop, of no base and of no semaphore, three strings.
    return (
        f"{name}{number}: {SYNTAX.nop}\n"
        '.pushsection .note.stapsdt,"?","note"\n'
        ".balign 4\n.4byte 8, 8f-7f, 3\n"
        f'.asciz "stapsdt"\n7: .{_WORD}byte {name}{number}, 0, 0\n'
        f'.asciz "sites"\n.asciz "{name}"\n.asciz "{args}"\n8: .balign 4\n'
        ".popsection\n"
    )


def build_sites(folder: Path, probes: Mapping[str, Sequence[str]]) -> Path:
    """Compile a program with probes ``sites:NAME``, one site for each argument string."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs the program gcc: apt-get install gcc")
    sites = [
        _site(name, number, args)
        for name, strings in probes.items()
        for number, args in enumerate(strings)
    ]
    (folder / "fire.s").write_text(
        ".text\n.globl sites_fire\n.type sites_fire,%function\nsites_fire:\n"
        f"{''.join(sites)}{SYNTAX.back}\n"
        '.section .note.GNU-stack,"",%progbits\n'
    )
    (folder / "main.c").write_text(_MAIN)
    path = folder / "sites"
    subprocess.run(
        [compiler, "-O1", "-pie", f"-DSITES={len(sites)}", "-o", path, "main.c", "fire.s"],
        cwd=folder,
        check=True,
    )
    return path


def constants(number: int) -> list[str]:
    """As many different argument strings."""
    return [f"{SYNTAX.number(index)} {SYNTAX.pointer}" for index in range(number)]
