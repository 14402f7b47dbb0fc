"""Programs whose stacks are hard to unwind, without frame pointers."""

from __future__ import annotations

from fixtures import TESTBINS

__all__ = ("BARE_OPTIONS", "BARE_SOURCE", "CXX_SOURCE")

# Exceptions, alloca(), signal handlers, threads and contexts; visited() is called in all of them.
# Compiled with -DROUNDS=NUMBER, and with -DWAIT to begin when a line comes.
CXX_SOURCE = """
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <ucontext.h>
#include <vector>
volatile int sink;
extern "C" __attribute__((noinline)) void visited(int n) { sink += n; }
__attribute__((noinline)) int deep(int n, std::string text)
{
    visited(n);
    if (n == 0)
        throw std::runtime_error(text);
    std::vector<char> room(n * 10, 'x');
    char *more = static_cast<char *>(__builtin_alloca(n * 7 + 1));
    more[0] = room[0];
    int found = deep(n - 1, text + more[0]);
    sink += found;
    return found + 1;
}
__attribute__((noinline)) void handler(int) { visited(1); }
ucontext_t here, there;
__attribute__((noinline)) void elsewhere() { deep(3, "else"); }
void begin()
{
    try {
        elsewhere();
    } catch (const std::exception &) {
        visited(0);
    }
}
int main()
{
    std::signal(SIGUSR2, handler);
#ifdef WAIT
    getchar();
#endif
    for (int n = 1; n < ROUNDS; n++) {
        try {
            sink += deep(n % 20, "why");
        } catch (const std::exception &) {
            visited(n);
        }
        if (n % 10 == 0)
            std::raise(SIGUSR2);
        if (n % 10 == 5)
            std::thread(begin).join();
        if (n % 10 == 7) {
            static char room[1 << 16];
            getcontext(&there);
            there.uc_stack.ss_sp = room;
            there.uc_stack.ss_size = sizeof room;
            there.uc_link = &here;
            makecontext(&there, begin, 0);
            swapcontext(&here, &there);
        }
    }
}
"""

# Each function has a frame of another size, one of a size that only its argument tells, and none
# has a frame pointer. The leaf has no frame at all.
# Arguments: depth; rounds, which begin when a line comes, with another depth each.
BARE_SOURCE = r"""
#define _GNU_SOURCE
#include <alloca.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/sdt.h>
static volatile int sink;
__attribute__((noinline)) int leaf(int n) { STAP_PROBE1(bare, leaf, n); return n + sink; }
__attribute__((noinline)) int wide(int n)
{
    char room[2000];
    memset(room, n, sizeof room);
    return leaf(n) + room[n & 7];
}
__attribute__((noinline)) int dynamic(int n)
{
    char *room = alloca(n * 16 + 16);
    memset(room, n, n * 16 + 16);
    return wide(n) + room[n];
}
__attribute__((noinline)) int deep(int n, int left)
{
    char room[512];
    memset(room, n, sizeof room);
    return (left ? deep(n, left - 1) : dynamic(n)) + room[n & 7];
}
static void handler(int number) { sink += dynamic(number & 3); }
int main(int argc, char **argv)
{
    int depth = argc > 1 ? atoi(argv[1]) : 0, rounds = argc > 2 ? atoi(argv[2]) : 1;
    signal(SIGUSR1, handler);
    if (depth < 0) {
        raise(SIGUSR1);
        return 0;
    }
    if (argc > 2)
        getchar();
    for (int n = 0; n < rounds; n++) {
        sink = deep(2, argc > 2 ? n % depth : depth);
        if (n % 10 == 9)
            raise(SIGUSR1);
    }
    return write(-1, "", 0) == 0;
}
"""
BARE_OPTIONS = (
    *("-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-Wl,--build-id"),
    f"-I{TESTBINS}/out/include",
)
