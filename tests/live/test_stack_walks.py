"""Stacks as keys of aggregations, unwound in the kernel: as those unwound in user space."""

from __future__ import annotations

import subprocess
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from skips import requires_root
from symbol_programs import compiled
from tracing_tools import Tool

from usdt.base.errors import NotSupported
from usdt.engine.runtime.unwinding import walks_by_tables

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [requires_root]

LIBC = "/lib/x86_64-linux-gnu/libc.so.6"
PYTHON = """
import json, re
input()
for n in range(40):
    json.loads(json.dumps([1, 2, {"a": [n]}]))
    re.compile(f"a{n}b*").match("ab"), sorted([3, n, 1], key=abs)
"""
BASH = "read; for i in 1 2 3 4 5 6 7; do [[ $i == *b* ]] || y=${x/a/b}; x=($i $i); done"
CXX = r"""
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
    char *more = static_cast<char *>(__builtin_alloca(n * 7 + 1));
    more[0] = 'x';
    int found = deep(n - 1, text + more[0]);
    sink += found;
    return found + 1;
}
__attribute__((noinline)) void handler(int) { visited(1); }
ucontext_t here, there;
void begin()
{
    try {
        deep(3, "else");
    } catch (const std::exception &) {
        visited(0);
    }
}
int main()
{
    std::signal(SIGUSR2, handler);
    getchar();
    for (int n = 1; n < 40; n++) {
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


@pytest.fixture(autouse=True)
def _walks() -> None:
    try:
        walks_by_tables("dwarf", kernel=False)
    except NotSupported as err:
        pytest.skip(str(err))


@contextmanager
def waiting(*command: object) -> Iterator[subprocess.Popen[bytes]]:
    """A program that waits for a line."""
    with subprocess.Popen(
        [*map(str, command)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as program:
        try:
            yield program
        finally:
            program.kill()


def addresses(stack: Any) -> tuple[Any, ...]:
    """The places of a stack in JSON; None at the end if it is incomplete."""
    return tuple(
        None if "error" in frame else (frame.get("link_address"), frame["module"])
        for frame in stack
    )


def both(program: subprocess.Popen[bytes], probe: str) -> tuple[Counter[Any], Counter[Any]]:
    """How often a program has each stack at a probe: counted in the kernel, and event by event."""
    counting = ("count", "--json", "--by", "ustack", "--unwind", "dwarf", "-p", program.pid, probe)
    with (
        Tool("trace", "--json", "--ustack", "-p", program.pid, probe) as trace,
        Tool(*counting) as count,
    ):
        trace.wait_tracing()
        count.wait_tracing()
        program.communicate(b"\n")
        trace.wait_end()
        count.finish()
        counted: Counter[Any] = Counter()
        for line in count.records:
            counted[addresses(line["key"]["ustack"])] += line["count"]
        traced = Counter(addresses(line["args"]["ustack"]) for line in trace.records)
        return counted, traced


@pytest.mark.parametrize("name", ["python", "bash", "cxx"])
def test_stacks_are_those_of_single_events(name: str, tmp_path: Path) -> None:
    probe = f"uprobe:{LIBC}:malloc"
    match name:
        case "python":
            command: tuple[object, ...] = ("/usr/bin/python3.11", "-c", PYTHON)
        case "bash":
            command = ("/bin/bash", "-c", BASH)
        case _:
            path = compiled(tmp_path, CXX, "-xc++", "-O2", "-fomit-frame-pointer")
            command, probe = (path,), f"uprobe:{path}:visited"
    if not Path(str(command[0])).exists():
        pytest.skip(f"needs {command[0]}")
    with waiting(*command) as program:
        counted, traced = both(program, probe)
    assert sum(counted.values()) >= 50
    assert counted == traced
