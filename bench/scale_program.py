"""The program that scale.py traces: any number of sites, of probes, of values and of stacks."""

from __future__ import annotations

import contextlib
import json
import subprocess
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ("Program", "build")

# .rept makes a hundred thousand sites of one text: nop, and its note with three strings.
_SITES = """
.altmacro
.macro site number
990: nop
.pushsection .note.stapsdt,"","note"
.balign 4
.4byte 8, 992f-991f, 3
.asciz "stapsdt"
991: .8byte 990b, 0, 0
.asciz "scale"
.asciz "NAME"
.asciz ""
992: .balign 4
.popsection
.endm
.text
.globl sites
sites:
.set number, 0
.rept COUNT
site %number
.set number, number + 1
.endr
ret
.section .note.GNU-stack,"",%progbits
"""

# `fire N KEYS` is N hits whose value is one of so many; `stacks N` is N hits, each from a stack of
# its own: one of two functions calls the next for each bit of the number.
_MAIN = r"""
#include <stdio.h>
#include <sys/sdt.h>
#include <time.h>
void sites(void);
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}
__attribute__((noinline)) static void hit(long value)
{
    STAP_PROBE1(work, hit, value);
}
static void one(long number, int bits);
__attribute__((noinline)) static void zero(long number, int bits)
{
    if (bits)
        (number & 1 ? one : zero)(number >> 1, bits - 1);
    else
        hit(number);
    __asm__ volatile("");
}
__attribute__((noinline)) static void one(long number, int bits)
{
    if (bits)
        (number & 1 ? one : zero)(number >> 1, bits - 1);
    else
        hit(number);
    __asm__ volatile("" ::: "memory");
}
int main(void)
{
    long count, keys;
    char word[16];
    setvbuf(stdout, 0, _IOLBF, 0);
    puts("\"ready\"");
    while (scanf("%15s %ld %ld", word, &count, &keys) == 3) {
        double start = now();
        if (word[0] == 'f')
            for (long number = 0; number < count; number++)
                hit(number % keys);
        else if (word[0] == 's')
            for (long number = 0; number < count; number++)
                zero(number, 17);
        else
            sites();
        printf("%f\n", (now() - start) / count);
    }
    return 0;
}
"""


def build(folder: Path, sites: int, *, names: bool = False) -> Path:
    """A program with the probe ``work:hit``, and so many sites of ``scale:site``.

    Args:
        folder: Takes it.
        sites: Number of nops with notes.
        names: Whether each site is a probe of its own, ``scale:site0`` and so on.
    """
    text = _SITES.replace("COUNT", str(sites)).replace("NAME", r"site\number" if names else "site")
    source, main, path = folder / "sites.s", folder / "main.c", folder / f"work{sites}{names:d}"
    source.write_text(text)
    main.write_text(_MAIN)
    words = ["gcc", "-O1", "-fno-optimize-sibling-calls", "-fno-omit-frame-pointer"]
    subprocess.run([*words, "-o", path, main, source], check=True)
    return path


class Program:
    """It at work; a context manager."""

    def __init__(self, path: Path, *, cpu: int | None = None) -> None:
        words = [str(path)] if cpu is None else ["taskset", "-c", str(cpu), str(path)]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.pid = self._process.pid
        self.answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, word: str, count: int, keys: int = 1) -> None:
        """Let it begin to fire."""
        if self._process.stdin is None:
            raise OSError("the traced program has no input")
        print(word, count, keys, file=self._process.stdin, flush=True)

    def answer(self) -> float:
        """Nanoseconds of each hit that it was asked for."""
        if self._process.stdout is None:
            raise OSError("the traced program has no output")
        value = json.loads(self._process.stdout.readline())
        return value if isinstance(value, float) else 0.0

    def fire(self, word: str, count: int, keys: int = 1) -> float:
        """Both."""
        self.ask(word, count, keys)
        return self.answer()


@contextlib.contextmanager
def programs(path: Path, count: int) -> Iterator[list[Program]]:
    """So many of them."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Program(path)) for _ in range(count)]
