"""A program that takes the time before and after each probe of its spans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from symbol_programs import compiled

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ("exact_program",)

_SOURCE = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sdt.h>
#include <time.h>
#include <unistd.h>
#define NOIPA __attribute__((noipa))
/* By the ID of a span: before and after its start, before and after its end. */
static struct { long start, started, end, ended; } *spans;
static long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}
/* Every thousandth sleeps, the others spin. */
static void spend(long id)
{
    long end = now() + id % 20 * 500;
    if (id % 1000 == 0)
        usleep(2000);
    while (now() < end)
        ;
}
#define BEGIN(id) do { long i_ = (id); \
    spans[i_].start = now(); STAP_PROBE1(exact, begin, i_); spans[i_].started = now(); } while (0)
#define END(id) do { long i_ = (id); \
    spans[i_].end = now(); STAP_PROBE1(exact, end, i_); spans[i_].ended = now(); } while (0)
/* Three spans inside one another, in one function. */
static void nested(long id)
{
    BEGIN(id);
    BEGIN(id + 1);
    spend(id);
    BEGIN(id + 2);
    spend(id + 2);
    END(id + 2);
    END(id + 1);
    END(id);
}
NOIPA long recursive(long id, long depth)
{
    BEGIN(id);
    spend(id);
    if (depth)
        recursive(id + 1, depth - 1);
    END(id);
    return depth;
}
/* The same by its calls. */
NOIPA long call(long id, long depth)
{
    spans[id].started = now();
    spend(id);
    if (depth) {
        spans[id + 1].start = now();
        call(id + 1, depth - 1);
        spans[id + 1].ended = now();
    }
    spans[id].end = now();
    return depth;
}
static void *finish(void *end)
{
    long id;
    while (read(*(int *)end, &id, sizeof id) == sizeof id) {
        spend(id);
        END(id);
    }
    return 0;
}
/* Two threads begin in turn what two others end. */
static void *begin(void *ends)
{
    int *pipes = ends;
    for (long id = pipes[4]; id < pipes[5]; id += 2) {
        BEGIN(id);
        if (write(pipes[1 + id / 2 % 2 * 2], &id, sizeof id) < 0)
            exit(1);
    }
    return 0;
}
static void threads(int rounds)
{
    int pipes[6], odd[6];
    pthread_t made[4];
    if (pipe(pipes) || pipe(pipes + 2))
        exit(1);
    pipes[4] = 0;
    pipes[5] = rounds;
    memcpy(odd, pipes, sizeof odd);
    odd[4] = 1;
    pthread_create(&made[0], 0, begin, pipes);
    pthread_create(&made[1], 0, begin, odd);
    pthread_create(&made[2], 0, finish, &pipes[0]);
    pthread_create(&made[3], 0, finish, &pipes[2]);
    pthread_join(made[0], 0);
    pthread_join(made[1], 0);
    close(pipes[1]);
    close(pipes[3]);
    pthread_join(made[2], 0);
    pthread_join(made[3], 0);
}
int main(int argc, char **argv)
{
    const char *what = argv[1];
    long rounds = atol(argv[2]);
    spans = calloc(rounds + 16, sizeof *spans);
    memset(spans, 1, (rounds + 16) * sizeof *spans); /* no page is new when it is measured */
    if (!strcmp(what, "nested"))
        for (long id = 0; id < rounds; id += 3)
            nested(id);
    if (!strcmp(what, "recursive"))
        for (long id = 0; id < rounds; id += 10)
            recursive(id, 9);
    if (!strcmp(what, "calls"))
        for (long id = 0; id < rounds; id += 10) {
            spans[id].start = now();
            call(id, 9);
            spans[id].ended = now();
        }
    if (!strcmp(what, "interleaved"))
        for (long id = 0; id < rounds + 5; id++) {
            if (id < rounds)
                BEGIN(id);
            spend(id);
            if (id >= 5)
                END(id - 5);
        }
    if (!strcmp(what, "threads"))
        threads(rounds);
    for (long id = 0; id < rounds; id++)
        printf("%ld %ld %ld %ld %ld\n",
               id, spans[id].start, spans[id].started, spans[id].end, spans[id].ended);
    return 0;
}
"""


def exact_program(folder: Path) -> Path:
    """Compile ``PROGRAM nested|recursive|calls|interleaved|threads ROUNDS``.

    It prints a line for each span: its ID, and nanoseconds of CLOCK_MONOTONIC before and after its
    start, and before and after its end.
    """
    return compiled(folder, _SOURCE, "-O2", "-g", "-pthread", name="exact")
