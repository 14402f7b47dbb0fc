"""Programs whose calls are known, because they print them; for tests of probes on functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from symbol_programs import compiled

from usdt.base.machine import PROCESS_MACHINE

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ("CALLS", "OPTIONS", "calls", "needs_libc")

#: For tests that trace functions of libc.
needs_libc = pytest.mark.skipif(
    PROCESS_MACHINE in ("arm", "armeb"),
    reason="libc is Thumb code here, for which Linux has no uprobes",
)

#: Functions keep their shape: no copy of one is made, none is inlined, none becomes a jump.
OPTIONS = ("-O1", "-fno-inline", "-fno-ipa-cp", "-fno-optimize-sibling-calls", "-pthread")

#: ``calls WHAT``: calls functions and prints what went in and out, a line a call as it returns.
CALLS = r"""
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

long fib(long n)
{
    long r = n < 2 ? n : fib(n - 1) + fib(n - 2);
    printf("fib %ld %ld\n", n, r);
    return r;
}
long many(int a, char b, short c, long d, unsigned e, long f, long g, int h, const char *i)
{
    long r = a + b + c + d + e + f + g + h;
    printf("many %d %d %d %ld %u %ld %ld %d %s %ld\n", a, b, c, d, e, f, g, h, i, r);
    return r;
}
int erase(char *text)
{
    int n = strlen(text);
    memset(text, 'x', n);
    return n;
}
int fill(char *text, int room)
{
    return snprintf(text, room, "made inside");
}
void many_calls(void)
{
    char text[] = "before", made[32] = "old";
    many(-1, 2, -3, 1L << 30, 5, 6, -7, 8, "nine");
    many(1, -2, 3, -4, 4000000000u, -6, 7, -8, "zehn");
    printf("erase %d\n", erase(text));
    printf("fill %d\n", fill(made, sizeof made));
}
static jmp_buf place;
int leap(int n)
{
    if (n % 2)
        longjmp(place, 1);
    return n;
}
void leaps(void)
{
    for (volatile int i = 0; i < 10; i++)
        if (!setjmp(place))
            printf("leap %d\n", leap(i));
}
struct big { long a[5]; };
struct big wide(int n)
{
    struct big r = {{n, n + 1, 2, 3, 4}};
    return r;
}
static void *work(void *nobody)
{
    fib(7);
    return nobody;
}
int level(int n)
{
    volatile int below = n ? level(n - 1) : 0;
    return below + 1;
}
int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    pthread_t threads[4];
    if (argc > 2) {
        getchar();
    }
    if (!strcmp(what, "fib"))
        fib(7);
    if (!strcmp(what, "many"))
        many_calls();
    if (!strcmp(what, "leaps"))
        leaps();
    if (!strcmp(what, "wide"))
        printf("wide %ld\n", wide(41).a[1]);
    if (!strcmp(what, "level"))
        printf("level %d\n", level(9));
    if (!strcmp(what, "deep"))
        printf("level %d\n", level(99));
    if (!strcmp(what, "deeper"))
        printf("level %d\n", level(999));
    if (!strcmp(what, "threads")) {
        for (int i = 0; i < 4; i++)
            pthread_create(&threads[i], NULL, work, NULL);
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
    }
    return 0;
}
"""


def calls(folder: Path, *options: str, name: str = "calls") -> Path:
    """The program; ``options`` of the compiler besides :data:`OPTIONS`."""
    return compiled(folder, CALLS, *OPTIONS, *options, name=name)
