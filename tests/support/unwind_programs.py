"""A program whose stacks are hard to unwind, without frame pointers."""

from __future__ import annotations

__all__ = ("CXX_SOURCE",)

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
