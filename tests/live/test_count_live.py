"""``usdt count``: every count is that of a full trace of the same hits."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import termios
from typing import TYPE_CHECKING

import pytest
from aggregating import aggregated, aggregating, beside_a_trace, outcome, stopped, tally
from fixtures import Fixture, build, start
from patience import patient
from screen import Screen
from tracing_tools import USDT, Tool, one_error, run_usdt, until, usdt

from usdt.arch.locations import Unreadable
from usdt.base.machine import KERNEL_WORD_SIZE
from usdt.engine.aggregate.spec import Aggregation, parse_keys

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def program(name: str, *words: object) -> Fixture:
    return start(build("default", name), "-w", *words)


@pytest.fixture
def threads() -> Iterator[Fixture]:
    """Eight threads, each passing threads:hit(index, round, tid) a hundred times."""
    with program("threads", "-t", 8, "-n", 100) as made:
        yield made.wait_ready()


def counted(tool: Tool) -> int:
    """Hits in what the command has written so far."""
    return sum(record.get("count", 0) for record in tool.records)


def test_counts_of_many_probes() -> None:
    with program("ints", "-n", 7) as ints:
        found, hits = beside_a_trace(ints.wait_ready(), "count", "ints:*", probes=["ints:*"])
        assert ints.hits
    assert {r["probe"]: r["count"] for r in found.results} == tally(hit["probe"] for hit in hits)
    assert len(found.results) >= 23


@pytest.mark.parametrize(
    ("name", "probe", "items"),
    [
        pytest.param("threads", "threads:hit", ("tid", "comm", "arg0"), id="threads and names"),
        pytest.param("ints", "ints:*", ("arg0", "arg1"), id="integers of every size and sign"),
        pytest.param("ints", "ints:u64", ("hex(arg0)", "arg2", "pid", "uid"), id="hexadecimal"),
        pytest.param("ints", "ints:i8", ("arg0 * 3 - 1", "(u8)arg0"), id="expressions"),
        pytest.param("strings", "strings:two", ("str(arg0)", "str(arg1, 7)"), id="two strings"),
        pytest.param("strings", "strings:bytes", ("buf(arg0, 5)", "func"), id="buffers"),
        pytest.param("floats", "floats:f64", ("arg0",), id="floats"),
        pytest.param("structs", "structs:s16", ("arg0",), id="structures"),
    ],
)
def test_keys(name: str, probe: str, items: tuple[str, ...]) -> None:
    words = ",".join(items)
    with program(name, "-n", 5) as target:
        rows, lost, hits = aggregated(
            target.wait_ready(),
            Aggregation(keys=parse_keys(words, "--by")),
            [probe],
            [f"{probe}({words})"],
        )
    traced = [(hit.probe, *hit.args.values()) for hit in hits]
    read = [key for key in traced if not any(isinstance(part, Unreadable) for part in key)]
    assert {(row.source.probe, *map(comparable, row.key)): row.value.count for row in rows} == (
        tally((probe, *map(comparable, parts)) for probe, *parts in read)
    )
    assert read or KERNEL_WORD_SIZE == 4  # where compilers pass 64 bits in two operands
    assert sum(item.unread for item in lost) == len(traced) - len(read)


def comparable(part: object) -> object:
    """A part of a key as a trace has it."""
    return part.hex() if isinstance(part, bytes) else part


def test_a_key_that_cannot_be_read_is_counted_and_said() -> None:
    with program("strings", "-n", 3) as strings:
        found, hits = beside_a_trace(
            strings.wait_ready(),
            *("count", "strings:*", "--by", "str(arg0)"),
            probes=["strings:*(str(arg0))"],
        )
    unread = [hit for hit in hits if isinstance(hit["args"]["str(arg0)"], dict)]
    assert unread
    assert found.unreadable() == len(unread)
    assert {r["probe"]: r["unreadable"] for r in found.missed} == tally(
        hit["probe"] for hit in unread
    )
    read = [hit for hit in hits if hit not in unread]
    assert {(r["probe"], r["key"]["str(arg0)"]): r["count"] for r in found.results} == tally(
        (hit["probe"], hit["args"]["str(arg0)"]) for hit in read
    )
    assert any("is unreadable" in line for line in found.tool.errors)


def test_predicates_choose_what_is_counted(threads: Fixture) -> None:
    chosen = "threads:hit(arg1 >= 90, arg0 == 3)"
    with aggregating("count", "-p", threads.pid, chosen, "threads:hit(arg1 < 10)") as tool:
        threads.fire()
        found = stopped(tool)
    assert {r["request"]: r["count"] for r in found.results} == {
        "threads:hit(arg1>=90, arg0==3)": 10,
        "threads:hit(arg1<10)": 80,
    }


def test_a_probe_that_is_never_hit_has_a_count_too(threads: Fixture) -> None:
    words = ("threads:hit(arg0 == 99)", "threads:main")
    with aggregating("count", "-p", threads.pid, *words) as tool:
        threads.fire()
        found = stopped(tool)
    assert {r["probe"]: r["count"] for r in found.results} == {
        "threads:hit": 0,
        "threads:main": 100,
    }


def test_keys_without_room_are_counted(threads: Fixture) -> None:
    words = ("threads:hit", "--by", "arg1", "--max-keys", 10)
    with aggregating("count", "-p", threads.pid, *words) as tool:
        threads.fire()
        found = stopped(tool)
    assert len(found.results) == 10
    assert sum(r["count"] for r in found.results) + found.lost() == 800
    assert found.lost() > 0
    assert any("--max-keys" in line for line in found.tool.errors)


def test_the_largest_alone(threads: Fixture) -> None:
    with aggregating("count", "-p", threads.pid, "threads:*", "--top", 1) as tool:
        threads.fire()
        tool.process.send_signal(signal.SIGINT)
        tool.finish()
    line, left_out = tool.records
    assert line == {"probe": "threads:hit", "count": 800}
    assert left_out["left_out"] == {"keys": 1, "count": 100, "largest": 100}
    assert tool.closing == (900, 0)


@pytest.mark.parametrize("sort", [(), ("--sort", "count")], ids=["found first", "sorted"])
def test_the_largest_groups_alone(threads: Fixture, sort: tuple[str, ...]) -> None:
    words = ("threads:hit(arg1 < 50)", "threads:main", "--by", "arg0")
    for shown, probes in ((2, words[:1]), (3, words[:2])):
        with aggregating(
            "count", "-p", threads.pid, *probes, *words[2:], "--top", shown, *sort
        ) as tool:
            threads.fire()
            tool.process.send_signal(signal.SIGINT)
            tool.finish()
        *results, left_out = tool.records
        everything = 400 if len(probes) == 1 else 500
        counts = [line["count"] for line in results]
        assert len(counts) == shown
        assert sum(counts) + left_out["left_out"]["count"] == everything
        assert left_out["left_out"]["largest"] <= min(counts)
        assert tool.closing == (everything, 0)


@pytest.mark.parametrize("by", [(), ("--by", "arg0")], ids=["by probe", "by key"])
def test_intervals_add_up(threads: Fixture, by: tuple[str, ...]) -> None:
    with aggregating("count", "-p", threads.pid, "threads:hit", "-i", 0.1, *by) as tool:
        for _ in range(3):
            known = len(tool.lines)
            threads.fire()
            until(lambda known=known: len(tool.lines) > known, "an interval's counts")
        found = stopped(tool)
    times = {r["time"] for r in found.results}
    assert len(times) >= 3
    assert sum(r["count"] for r in found.results) == 2400
    if by:
        keys = tally(r["key"]["arg0"] for r in found.results for _ in range(r["count"]))
        assert keys == dict.fromkeys(range(8), 300)


def test_intervals_have_room_for_keys_of_their_own(threads: Fixture) -> None:
    words = ("threads:hit", "--by", "ts", "--max-keys", 2000, "-i", 0.1)
    with aggregating("count", "-p", threads.pid, *words) as tool:
        for number in range(1, 7):
            threads.fire()
            until(lambda n=number: counted(tool) >= 800 * n, "the hits of the interval")
        found = stopped(tool)
    assert sum(r["count"] for r in found.results) == 4800
    assert not found.missed


def test_stacks_as_keys(threads: Fixture) -> None:
    with aggregating("count", "-p", threads.pid, "threads:hit", "--by", "ustack,kstack") as tool:
        threads.fire()
        found = stopped(tool)
    assert sum(r["count"] for r in found.results) + found.lost() == 800
    innermost = {r["key"]["ustack"][0]["symbol"] for r in found.results}
    assert innermost == {"run"}
    assert all("error" in r["key"]["kstack"] for r in found.results)


STACKS = """\
#include <stdio.h>
#include <unistd.h>
__attribute__((noinline)) void leaf(void) { __asm__ volatile("" ::: "memory"); }
static void even(int n, int bits);
static void odd(int n, int bits);
static void next(int n, int bits) {
    if (!n) leaf();
    else if (bits & 1) odd(n - 1, bits >> 1);
    else even(n - 1, bits >> 1);
    __asm__ volatile("" ::: "memory");
}
static void even(int n, int bits) { next(n, bits); __asm__ volatile("" ::: "memory"); }
static void odd(int n, int bits) { next(n, bits); __asm__ volatile("" ::: "memory"); }
int main(void) { for (int i = 0; i < 1 << 14; i++) next(14, i); }
"""


@pytest.mark.parametrize(("keys", "least"), [(20_000, 15_000), (1000, 900)])
def test_the_table_of_stacks_follows_the_number_of_keys(
    tmp_path: Path, keys: int, least: int
) -> None:
    # The program calls leaf() once from each of 16,384 stacks, more than fit by default.
    (tmp_path / "stacks.c").write_text(STACKS)
    made = tmp_path / "stacks"
    flags = ("-O0", "-fno-omit-frame-pointer", "-o", made)
    subprocess.run(["gcc", *flags, tmp_path / "stacks.c"], check=True, timeout=patient(100))
    words = ("--by", "ustack", "--max-keys", keys, f"uprobe:{made}:leaf")
    with aggregating("count", "-c", made, *words) as tool:
        found = outcome(tool)
    assert sum(r["count"] for r in found.results) + found.lost() == 1 << 14
    assert len(found.results) >= least
    # Frame pointers: of two stacks whose hashes collide, the kernel keeps one.
    assert keys > 1 << 14 or found.lost()
    lines = [line for line in found.tool.errors if "no space" in line]
    assert len(lines) == bool(found.lost())
    for line in lines:
        assert "no space for more keys or stacks; a larger --max-keys may help" in line


def test_enough_is_enough() -> None:
    with program("loop", "-n", 100_000_000, "-q") as loop:
        loop.wait_ready()
        with aggregating("count", "-p", loop.pid, "loop:hit", "-n", 1000) as tool:
            loop.send("fire")
            assert outcome(tool).one["count"] >= 1000


def test_what_is_hit_until_the_last_instant_is_counted() -> None:
    # The loop runs on while the command detaches: its values have no gap.
    with program("loop", "-n", 100_000_000, "-q") as loop:
        loop.wait_ready()
        with aggregating("stats", "-p", loop.pid, "loop:hit(arg0)", "-n", 1000) as tool:
            loop.send("fire")
            numbers = outcome(tool).one
    assert numbers["count"] == numbers["max"] - numbers["min"] + 1
    assert numbers["sum"] == (numbers["min"] + numbers["max"]) * numbers["count"] // 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_end_it_with_its_results(threads: Fixture, number: int) -> None:
    with aggregating("count", "-p", threads.pid, "threads:hit") as tool:
        threads.fire()
        assert stopped(tool, number).one["count"] == 800


def test_a_command_is_counted_from_its_start_to_its_end() -> None:
    words = ("-c", f"{build('default', 'args')} -n 20 -q", "args:count3")
    with usdt("count", "--json", *words) as tool:
        assert outcome(tool).one["count"] == 20


def test_a_reader_that_has_gone_ends_it_quietly(threads: Fixture) -> None:
    words = [USDT, "count", "-p", str(threads.pid), "threads:hit", "-i", "0.05"]
    reading, writing = os.pipe()
    with subprocess.Popen(words, stdout=writing, stderr=subprocess.PIPE, text=True) as process:
        os.close(writing)
        os.close(reading)
        _, errors = process.communicate(timeout=patient(100))
    assert process.returncode == 0
    assert "Error" not in errors
    assert "Traceback" not in errors


def test_a_failed_run_leaves_an_earlier_file_alone(threads: Fixture, tmp_path: Path) -> None:
    output = tmp_path / "counts"
    output.write_text("earlier\n")
    done = run_usdt("count", "-p", threads.pid, "threads:hitt", "-o", output)
    assert "no probe threads:hitt" in one_error(done)
    assert output.read_text() == "earlier\n"
    done = run_usdt("count", "-p", threads.pid, "threads:hit", "-d", 0.1, "-o", output)
    assert done.returncode == 0
    assert output.read_text().split() == ["COUNT", "PROBE", "0", "threads:hit"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        pytest.param(("a:b(arg0)",), "expected a predicate", id="a value to count"),
        pytest.param(
            ("a:b", "--by", "arg0 == 1"), "a comparison is a predicate", id="a comparison"
        ),
        pytest.param(("a:b", "--by", "arg0 +"), "column", id="an expression that ends too soon"),
        pytest.param(("a:b", "--by", ""), "expected an expression", id="no key"),
    ],
)
def test_what_cannot_be_understood_points_at_the_place(words: tuple[str, ...], reason: str) -> None:
    done = run_usdt("count", "-p", os.getpid(), *words)
    assert reason in one_error(done, code=2)
    assert any(line.strip() == "^" for line in done.stderr.splitlines())


def test_keys_too_large_for_the_kernel_are_refused(threads: Fixture) -> None:
    done = run_usdt(
        "count", "-p", threads.pid, "threads:hit", "--by", "str(arg0,200),str(arg1,200)"
    )
    assert "at most 272 fit" in one_error(done, code=2)


def test_the_instructions_are_shown_when_asked_for_twice(threads: Fixture) -> None:
    done = run_usdt("count", "-p", threads.pid, "threads:hit", "-d", 0.05, "-v", "-v")
    assert "map[values]" in done.stderr
    assert "exit" in done.stderr


def test_results_are_drawn_again_and_again_on_a_terminal(threads: Fixture) -> None:
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("=4H", 6, 40, 0, 0))
    words = [USDT, "count", "-p", str(threads.pid), "threads:hit", "--by", "arg1"]
    with subprocess.Popen(words, stdout=theirs, stderr=subprocess.PIPE, text=True) as process:
        os.close(theirs)
        try:
            assert process.stderr is not None
            assert "tracing 1 site" in process.stderr.readline()
            threads.fire()
            shown = _read_until(ours, b"threads:hit")
            process.send_signal(signal.SIGINT)
            rest = shown + _read_until(ours, b"")
            assert process.wait(patient(100)) == 0
        finally:
            process.kill()
            os.close(ours)
    screen = Screen()
    screen.feed("$ usdt count\n" + shown.decode())
    assert len(screen.lines) <= 6  # what fits, and room for a line, below the command
    screen = Screen()
    screen.feed("$ usdt count\n" + rest.decode())
    assert screen.lines[0] == "$ usdt count"  # nothing above is wiped
    assert [line.split() for line in screen.lines if "threads:hit" in line] == [
        ["8", "threads:hit", str(number)] for number in sorted(range(100), key=str)
    ]


def _read_until(terminal: int, wanted: bytes) -> bytes:
    # What a terminal shows up to some text and what came with it; b"": to the end.
    found = b""
    while True:
        try:
            data = os.read(terminal, 1 << 16)
        except OSError:  # EIO: nobody has the other end open
            return found
        found += data
        if wanted and wanted in found:
            return found
