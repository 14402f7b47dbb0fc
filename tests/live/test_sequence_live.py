"""``-s``: functions shown only where they call one another in the order given.

A program calls three functions at random, from several threads, and prints every entry and return.
What must be shown is computed from that. It may leave them by longjmp() now and then: that is seen
at the next call, higher up the stack, of a function that is traced, so then all three are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from function_programs import OPTIONS
from kernelprobes import kprobe
from streams import read_events
from symbol_programs import compiled
from tracing_tools import one_error, run_usdt

from usdt.bpf.link import UprobeMethod

pytestmark = pytest.mark.usefixtures("ringbuf")

_WAYS = [pytest.param(via, id=str(via)) for via in UprobeMethod]
_NEEDS = {
    UprobeMethod.UPROBE_MULTI: "uprobe_multi",
    UprobeMethod.PERF_LINK: "cookies",
    UprobeMethod.PERF_EVENT: "uprobe_pmu",
    UprobeMethod.UPROBE_EVENTS: "uprobe_pmu",
}

_SOURCE = r"""
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static __thread unsigned state;
static __thread jmp_buf back;
static int jumps;
static int tid(void) { return syscall(SYS_gettid); }
static unsigned pick(unsigned n) { state = state * 1103515245 + 12345; return state / 65536 % n; }
static void calls(int depth);
#define FUNCTION(name) \
    int name(int n, int depth) \
    { \
        printf("%d > " #name " %d\n", tid(), n); \
        calls(depth + 1); \
        if (jumps && !pick(40)) \
            longjmp(back, 1); \
        printf("%d < " #name " %d\n", tid(), n * 2); \
        return n * 2; \
    }
FUNCTION(one)
FUNCTION(two)
FUNCTION(three)
static void calls(int depth)
{
    for (int number = pick(3); depth < 6 && number--;)
        switch (pick(3)) {
        case 0: one(pick(100), depth); break;
        case 1: two(pick(100), depth); break;
        case 2: three(pick(100), depth); break;
        }
}
static void from(int size)
{
    volatile char room[size];
    room[0] = 0;
    calls(0);
}
static void *work(void *seed)
{
    state = (unsigned)(long)seed;
    for (volatile int i = 0; i < 150; i++) {
        if (!setjmp(back)) /* each time higher up the stack than all that was left */
            from((150 - i) * 8192);
        else
            printf("%d !\n", tid());
    }
    return 0;
}
int main(int count, char **words)
{
    jumps = count > 1;
    pthread_t threads[3];
    for (long i = 0; i < 3; i++)
        pthread_create(&threads[i], 0, work, (void *)(i * 77 + 5));
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], 0);
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("sequence"), _SOURCE, *OPTIONS, name="nested")


def expected(
    log: list[list[str]], order: tuple[str, ...], least: int = 0
) -> dict[int, list[tuple[str, str, int]]]:
    """What -s shows of the calls that a program logged, by thread.

    Args:
        log: words of its lines.
        order: the functions, outermost first.
        least: of the outermost only calls with at least this argument count.
    """
    shown: dict[int, list[tuple[str, str, int]]] = {}
    stacks: dict[int, list[dict[str, Any]]] = {}
    for words in log:
        thread, stack = int(words[0]), stacks.setdefault(int(words[0]), [])
        if words[1] == "!":
            stack.clear()
        elif words[1] == ">":
            name, value = words[2], int(words[3])
            chain = [call for call in stack if call["counts"]]
            counts = len(chain) < len(order) and order[len(chain)] == name
            if counts and not chain and value < least:
                counts = False
            call = {"name": name, "value": value, "counts": counts, "shown": False}
            stack.append(call)
            if counts and len(chain) == len(order) - 1:
                for one in (*chain, call):
                    if not one["shown"]:
                        one["shown"] = True
                        shown.setdefault(thread, []).append(("call", one["name"], one["value"]))
        else:
            call = stack.pop()
            assert call["name"] == words[2]
            if call["shown"]:
                shown.setdefault(thread, []).append(("return", words[2], int(words[3])))
    return shown


def found(events: list[dict[str, Any]], program: Path) -> dict[int, list[tuple[str, str, int]]]:
    threads: dict[int, list[tuple[str, str, int]]] = {}
    for event in events:
        kind = event.get("event", "call")
        name = event["probe"].removeprefix(f"uprobe:{program.name}:")
        value = event["args"]["return" if kind == "return" else "arg0"]
        threads.setdefault(event["tid"], []).append((kind, name, value & 0xFFFFFFFF))
    return threads


def traced(
    command: object, program: Path, *probes: str, via: UprobeMethod
) -> tuple[list[dict[str, Any]], list[list[str]]]:
    output = Path(f"{program}.json")
    words = ("trace", "-s", "--json", "-o", output, "-c", command, "--via", str(via), *probes)
    done = run_usdt(*map(str, words))
    assert done.returncode == 0, done.stderr
    assert done.stderr.rstrip().endswith(" 0 lost"), done.stderr
    events = read_events(output.read_text())
    return events, [line.split() for line in done.stdout.splitlines()]


@pytest.mark.parametrize("via", _WAYS)
def test_only_calls_in_the_order_given_are_shown(
    program: Path, via: UprobeMethod, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(_NEEDS[via])
    probes = [f"uprobe:{program}:{name}(arg0, return)" for name in ("one", "two", "three")]
    events, log = traced(f"{program} jumps", program, *probes, via=via)
    want = expected(log, ("one", "two", "three"))
    assert sum(map(len, want.values())) > 20
    assert found(events, program) == want


@pytest.mark.usefixtures("uprobe_pmu")
def test_a_predicate_chooses_the_calls_that_begin_one(program: Path) -> None:
    outer, inner = f"uprobe:{program}:two(arg0, arg0 >= 50)", f"uprobe:{program}:one"
    events, log = traced(program, program, outer, f"{inner}(arg0)", via=UprobeMethod.PERF_EVENT)
    want = expected(log, ("two", "one"), least=50)
    assert found(events, program) == want
    assert want


@pytest.mark.usefixtures("uprobe_pmu")
def test_values_of_both_ends_are_shown_at_the_return(program: Path) -> None:
    one, two = (f"uprobe:{program}:{name}" for name in ("one", "two"))
    probes = f"{one}(arg0)", f"{two}(arg0, return - arg0)"
    events, log = traced(program, program, *probes, via=UprobeMethod.PERF_EVENT)
    returned = [event for event in events if event.get("event") and ":two" in event["probe"]]
    entered = [event for event in events if not event.get("event") and ":two" in event["probe"]]
    assert entered
    assert returned
    values = sorted(event["args"]["arg0"] for event in entered)
    differences = sorted(event["args"]["return-arg0"] & 0xFFFFFFFF for event in returned)
    left = [call for calls in expected(log, ("one", "two")).values() for call in calls]
    assert values == sorted(value for kind, name, value in left if (kind, name) == ("call", "two"))
    halves = [value // 2 for kind, name, value in left if (kind, name) == ("return", "two")]
    assert differences == sorted(halves)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("uprobe:libc:malloc",), "2 to 16 functions, outermost first, not 1"),
        (("--via", "tracefs", "uprobe:libc:malloc", "uprobe:libc:free"), "-s needs BPF"),
    ],
)
def test_what_is_no_sequence_is_refused(words: tuple[str, ...], message: str) -> None:
    done = run_usdt("trace", "-s", "-c", "true", *words)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_place_that_is_no_entry_is_refused(program: Path) -> None:
    done = run_usdt("trace", "-s", "-c", str(program), f"uprobe:{program}:one", "syscall:openat")
    assert "this is not a function's entry" in one_error(done)


@pytest.mark.usefixtures("uprobe_pmu")
def test_a_call_that_is_a_jump_counts(tmp_path: Path) -> None:
    source = """
        int last(int n) { __asm__ volatile(""); return n + 1; }
        int first(int n) { __asm__ volatile(""); return last(n * 2); }
        int main(void) { return first(20) != 41 || last(1) != 2; }"""
    program = compiled(tmp_path, source, "-O2", "-fno-inline", "-fno-ipa-cp", name="jump")
    probes = [f"uprobe:{program}:{name}(arg0, return)" for name in ("first", "last")]
    events, _ = traced(program, program, *probes, via=UprobeMethod.PERF_EVENT)
    (shown,) = found(events, program).values()
    assert shown == [
        *(("call", "first", 20), ("call", "last", 40)),
        *(("return", "last", 41), ("return", "first", 41)),
    ]


def test_a_function_is_named_once(program: Path) -> None:
    done = run_usdt("trace", "-s", "-c", str(program), *[f"uprobe:{program}:one"] * 2)
    assert "-s takes each function once" in one_error(done)


def test_kprobe_takes_them_as_well(program: Path) -> None:
    output = Path(f"{program}.kprobe.json")  # the program's own lines are on stdout
    done = kprobe(
        *("trace", "-s", "--json", "-o", output, "-n", "6", "-c", program),
        *(f"uprobe:{program}:one(arg0)", f"uprobe:{program}:three(arg0)"),
    )
    lines = read_events(output.read_text())
    assert len(lines) == 6, done.stderr
    assert lines[0]["probe"].endswith(":one")
