"""A program whose calls and pairs of probes last a known time; it measures them itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from symbol_programs import compiled

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

__all__ = ("THROWS", "measured", "span_program")

_SOURCE = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sdt.h>
#include <time.h>
#include <unistd.h>
#define NOIPA __attribute__((noipa))
static long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}
NOIPA void spend(long ns)
{
    if (ns >= 1000000) {
        struct timespec t = {ns / 1000000000, ns % 1000000000};
        nanosleep(&t, 0);
        return;
    }
    long end = now() + ns;
    while (now() < end)
        ;
}
/* One place of each probe: the kernel takes seconds to verify a program of 16 ways to read them. */
NOIPA void begin_span(const char *name, long id)
{
    STAP_PROBE2(span, begin, name, id);
}
NOIPA void end_span(long id)
{
    STAP_PROBE1(span, end, id);
}
/* A function with a string that it overwrites, and a result. */
NOIPA int work(char *name, int id, long ns)
{
    long began = now();
    spend(ns);
    printf("{\"id\": %d, \"ns\": %ld}\n", id, now() - began);
    name[0] = '!';
    return -id;
}
/* The same as a pair of probes. */
NOIPA void pair(char *name, int id, long ns)
{
    begin_span(name, id);
    long began = now();
    spend(ns);
    long lasted = now() - began;
    name[0] = '!';
    end_span(id);
    printf("{\"id\": %d, \"ns\": %ld}\n", id, lasted);
}
NOIPA int nest(int depth, long ns)
{
    begin_span("nest", depth);
    long began = now();
    spend(ns);
    if (depth)
        nest(depth - 1, ns);
    spend(ns);
    long lasted = now() - began;
    end_span(depth);
    printf("{\"id\": %d, \"ns\": %ld}\n", depth, lasted);
    return depth;
}
static jmp_buf away;
NOIPA void jump(int id)
{
    begin_span("jump", id);
    spend(1000);
    if (id % 2)
        longjmp(away, 1);
    end_span(id);
}
NOIPA void jumps(int rounds)
{
    begin_span("jumps", -1);
    for (volatile int id = 0; id < rounds; id++)
        if (!setjmp(away))
            jump(id);
    end_span(-1);
}
/* Helpers fire the probes, from frames that differ. */
NOIPA void helper_begin(int id)
{
    STAP_PROBE2(span, begin, "helped", id);
}
NOIPA void helper_end(int id)
{
    volatile char room[200];
    room[0] = 1;
    STAP_PROBE1(span, end, id);
    room[1] = room[0];
}
NOIPA void helped(int depth)
{
    helper_begin(depth);
    if (depth)
        helped(depth - 1);
    helper_end(depth);
    __asm__ volatile("");
}
NOIPA void tight(long rounds, long slow, long ns)
{
    for (long id = 0; id < rounds; id++) {
        begin_span("tight", id);
        if (slow && id % (rounds / slow) == 0)
            spend(ns);
        end_span(id);
    }
}
struct job { int id, state; };
NOIPA void take(struct job *job)
{
    job->state = 1;
}
NOIPA void release(struct job *job)
{
    job->state = 2;
}
static void *other(void *id)
{
    spend(2000000);
    end_span((long)id);
    return 0;
}
/* Calls that are in progress at a time, one in each thread. */
static pthread_barrier_t all;
NOIPA long meet(long id)
{
    pthread_barrier_wait(&all);
    return id;
}
static void *met(void *id)
{
    meet((long)id);
    return 0;
}
static void crowd(long number)
{
    pthread_t threads[number];
    pthread_barrier_init(&all, 0, number);
    for (long id = 0; id < number; id++)
        pthread_create(&threads[id], 0, met, (void *)id);
    for (long id = 0; id < number; id++)
        pthread_join(threads[id], 0);
}
/* Spans at a time in two threads whose IDs have the same low bits. */
static sem_t ready, go;
static int begun;
static void *collide(void *unused)
{
    begun = ((gettid() ^ getpid()) & 2047) == 0;
    if (begun) {
        begin_span("outer", 2);
        begin_span("inner", 3);
    }
    sem_post(&ready);
    if (begun) {
        sem_wait(&go);
        end_span(3);
        end_span(2);
    }
    return unused;
}
static void collisions(void)
{
    pthread_t thread;
    begin_span("main", 1);
    do {
        pthread_create(&thread, 0, collide, 0);
        sem_wait(&ready);
        if (!begun)
            pthread_join(thread, 0);
    } while (!begun);
    end_span(1);
    sem_post(&go);
    pthread_join(thread, 0);
}
int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    long rounds = argc > 2 ? atol(argv[2]) : 1, ns = argc > 3 ? atol(argv[3]) : 1000;
    for (long id = 1; id <= rounds; id++) {
        char name[32];
        snprintf(name, sizeof name, "name %ld", id);
        if (!strcmp(what, "work"))
            work(name, id, id * ns);
        else if (!strcmp(what, "pair"))
            pair(name, id, id * ns);
        else if (!strcmp(what, "spins"))
            pair(name, id, 1000 + id % 50 * ns);
        else if (!strcmp(what, "hang") || !strcmp(what, "many")) {
            begin_span(name, id);
        }
        else if (!strcmp(what, "interleaved")) {
            begin_span(name, id);
            if (id > 1)
                end_span(id - 1);
        }
        else if (!strcmp(what, "jobs")) {
            struct job job = {id};
            take(&job);
            release(&job);
        }
        else if (!strcmp(what, "threads")) {
            pthread_t thread;
            begin_span(name, id);
            pthread_create(&thread, 0, other, (void *)id);
            pthread_join(thread, 0);
        }
    }
    if (!strcmp(what, "nest"))
        nest(rounds, ns);
    if (!strcmp(what, "crowd"))
        crowd(rounds);
    if (!strcmp(what, "collide"))
        collisions();
    if (!strcmp(what, "jumps"))
        jumps(rounds);
    if (!strcmp(what, "helped"))
        helped(rounds);
    if (!strcmp(what, "tight"))
        tight(rounds, ns, argc > 4 ? atol(argv[4]) : 1000000);
    if (!strcmp(what, "busy")) {
        printf("ready\n");
        fflush(stdout);
        for (long id = 0;; id++) {
            helper_begin(id);
            helper_end(id);
        }
    }
    if (!strcmp(what, "hang")) {
        printf("ready\n");
        fflush(stdout);
        pause();
    }
    return 0;
}
"""


#: C++: every other call of inner() leaves it, and middle(), by an exception.
THROWS = r"""
#include <sys/sdt.h>
#define KEEP __asm__ volatile("" ::: "memory")
__attribute__((noinline)) void inner(int id)
{
    STAP_PROBE1(span, begin, id);
    KEEP;
    if (id % 2)
        throw id;
    STAP_PROBE1(span, end, id);
    KEEP;
}
__attribute__((noinline)) void middle(int id)
{
    STAP_PROBE1(span, begin, 100 + id);
    inner(id);
    STAP_PROBE1(span, end, 100 + id);
    KEEP;
}
int main()
{
    STAP_PROBE1(span, begin, 1000);
    for (int id = 0; id < 100; id++)
        try {
            middle(id);
        } catch (int) {
        }
    STAP_PROBE1(span, end, 1000);
}
"""


def span_program(folder: Path) -> Path:
    """Compile the program: ``PROGRAM work|pair|nest|… [ROUNDS [NANOSECONDS]]``."""
    # Both probes of a pair are in frames at one address, which jumps instead of calls would move.
    options = ("-O2", "-g", "-pthread", "-fno-optimize-sibling-calls")
    return compiled(folder, _SOURCE, *options, name="spans")


def measured(done: subprocess.CompletedProcess[str]) -> tuple[dict[int, int], list[dict[str, Any]]]:
    """Split a tool's output: nanoseconds by ID, as the program printed them, and the spans."""
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    own = {line["id"]: line["ns"] for line in lines if "ns" in line}
    return own, [line for line in lines if "ns" not in line]
