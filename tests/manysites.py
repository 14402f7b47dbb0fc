"""Programs with as many sites as a test wants, made when it runs.

``build_sites(folder, {"same": ["8@%rsp"] * 400})`` compiles a program with the probe
``sites:same``, which :func:`fixtures.start` runs: each ``fire`` goes past every site once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ("build_sites", "constants")

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
        f"{name}{number}: nop\n"
        '.pushsection .note.stapsdt,"?","note"\n'
        ".balign 4\n.4byte 8, 8f-7f, 3\n"
        f'.asciz "stapsdt"\n7: .8byte {name}{number}, 0, 0\n'
        f'.asciz "sites"\n.asciz "{name}"\n.asciz "{args}"\n8: .balign 4\n'
        ".popsection\n"
    )


def build_sites(folder: Path, probes: Mapping[str, Sequence[str]]) -> Path:
    """Compile a program with probes ``sites:NAME``, one site for each argument string."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs the program gcc: apt-get install gcc")
    if os.uname().machine != "x86_64":
        pytest.skip("needs x86-64: its registers are named")
    sites = [
        _site(name, number, args)
        for name, strings in probes.items()
        for number, args in enumerate(strings)
    ]
    (folder / "fire.s").write_text(
        ".text\n.globl sites_fire\nsites_fire:\n" + "".join(sites) + "ret\n"
        '.section .note.GNU-stack,"",@progbits\n'
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
    return [f"-4@${index} 8@%rsp" for index in range(number)]
