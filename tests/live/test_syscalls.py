"""System calls: names, arguments, what they return; compared with strace."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from aggregating import log2_buckets
from kernelprobes import events_of, kprobe, program, results, tracing_kernel
from skips import need_program

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("ringbuf", "vmlinux_btf")

_OPENS = """
import os
os.close(os.open(b"/dev/null", os.O_RDWR | os.O_APPEND | os.O_CLOEXEC))
try: os.open(b"/nowhere/at/all", os.O_RDONLY)
except OSError: pass
"""


def strace(tmp_path: Path, *words: str, options: tuple[str, ...] = ()) -> list[str]:
    """The lines of strace's record of a command."""
    need_program("strace")
    log = tmp_path / "strace.log"
    command = ["strace", "-f", "-o", str(log), *options, "--", *words]
    subprocess.run(command, check=True, timeout=60, capture_output=True)
    return log.read_text(errors="replace").splitlines()


def test_arguments_and_what_is_returned_are_in_one_event() -> None:
    good, bad = events_of(_OPENS, "syscall:openat(dfd, filename, flags, return)")[-2:]
    assert good["probe"] == "syscall:openat"
    assert good["args"]["filename"] == "/dev/null"
    assert good["args"]["return"] >= 3
    assert good["args"]["flags"] == os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
    assert good["names"]["flags"] == "O_RDWR|O_APPEND|O_CLOEXEC"
    assert bad["args"]["return"] == -errno.ENOENT
    assert bad["names"] == {"dfd": "AT_FDCWD", "flags": "O_RDONLY|O_CLOEXEC", "return": "-ENOENT"}


def test_predicates_on_text_and_on_what_is_returned() -> None:
    (only,) = events_of(_OPENS, 'syscall:openat(filename == "/nowhere/*", return == -2, filename)')
    assert only["args"] == {"filename": "/nowhere/at/all"}
    assert not events_of(_OPENS, 'syscall:openat(filename == "/nowhere/*", return >= 0)')


def test_the_address_of_a_text_is_a_number_where_one_is_wanted() -> None:
    (event,) = events_of(
        _OPENS, 'syscall:openat(filename == "/nowhere/*", hex(arg1), arg2, (long)filename)'
    )
    args = event["args"]
    assert int(args["hex(arg1)"], 16) == args["(long)filename"] > 0
    assert args["arg2"] & os.O_CLOEXEC


def test_a_glob_takes_the_calls_that_have_what_is_asked_for() -> None:
    source = "import os\nos.stat('/dev/null')\nos.access('/dev/null', 0)\nos.getppid()"
    found = events_of(source, 'syscall:*(filename == "/dev/null", filename)')
    assert {event["probe"] for event in found} == {"syscall:newfstatat", "syscall:access"}


def test_counts_over_all_calls_are_those_of_strace(tmp_path: Path) -> None:
    lines = strace(tmp_path, "/bin/ls", "/")
    calls = Counter(m[1] for line in lines if (m := re.match(r"\d+ +(\w+)\(", line)))
    found = results("count", "syscall:*", "-c", "/bin/ls /")
    mine = Counter({r["probe"].partition(":")[2]: r["count"] for r in found})
    del calls["execve"]  # it was made before anything was attached
    assert mine == calls
    assert sum(mine.values()) > 30


def test_sizes_written_are_those_of_strace(tmp_path: Path) -> None:
    words = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1536", "count=50"]
    lines = strace(tmp_path, *words, options=("-e", "trace=write"))
    sizes = [int(m[1]) for line in lines if (m := re.search(r"write\(.*, (\d+)\) += ", line))]
    (found,) = results("hist", "syscall:write(count, fd == 1)", "-c", " ".join(words))
    written = [size for size in sizes if size == 1536]
    assert len(written) == 50
    assert found["count"] == 50
    assert found["buckets"] == log2_buckets(written)
    (everything,) = results("stats", "syscall:write(count)", "-c", " ".join(words), "--by", "comm")
    assert everything["count"] == len(sizes)
    assert everything["max"] == 1536
    assert everything["key"] == {"comm": "dd"}


def test_latency_from_a_call_to_its_return() -> None:
    source = "import time\nfor _ in range(3): time.sleep(0.01)"
    found = results(
        *("latency", "syscall:clock_nanosleep", "syscall:clock_nanosleep(return)"),
        *("-c", program(source)),
    )
    assert found[0]["count"] == 3
    assert found[0]["min"] >= 10_000_000
    assert found[1] == {"unfinished": 0, "unmatched": 0, "deep": 0}


def test_by_what_is_returned_and_by_text() -> None:
    source = "import os\nfor _ in range(4):\n try: os.unlink('/nowhere')\n except OSError: pass"
    (found,) = results("count", "syscall:unlink", "--by", "pathname,return", "-c", program(source))
    assert found["count"] == 4
    assert found["key"] == {"pathname": "/nowhere", "return": -2}
    assert found["names"] == {"return": "-ENOENT"}
    shown = kprobe("count", "syscall:unlink", "--by", "return", "-c", program(source)).stdout
    assert shown.splitlines()[-1].split() == ["4", "syscall:unlink", "-ENOENT"]


def test_text_of_strangers_is_escaped(tmp_path: Path) -> None:
    nasty = os.fsencode(tmp_path) + b"/new\nline\x1b[31m\xff\xe2\x80\xae"
    source = f"import os\ntry: os.unlink({nasty!r})\nexcept OSError: pass"
    (event,) = events_of(source, "syscall:unlink(pathname)")
    assert event["args"]["pathname"].encode("utf-8", "surrogateescape") == nasty
    words = ("trace", "-c", program(source), "syscall:unlink(pathname)")
    (line,) = kprobe(*words).stdout.splitlines()
    assert line.isprintable()
    assert "/new\\nline\\x1b[31m\\xff\\u202e" in line


def test_a_call_that_replaces_its_registers_says_so() -> None:
    source = "import os\nos.execv('/bin/true', ['true'])"
    found = events_of(source, "syscall:execve(filename)", "syscall:execve(filename, return)")
    before, after = found[-2:]
    assert before["args"] == {"filename": "/bin/true"}
    assert "replaces its registers" in after["args"]["filename"]["error"]
    assert after["args"]["return"] == 0


def test_calls_of_all_processes_without_the_tracer_itself() -> None:
    with tracing_kernel("trace", "--json", "syscall:*(fd)", "-d", "30") as tool:
        for _ in range(3):
            os.fstat(0)
        tool.wait_events(3)
        events = tool.stop()
    assert tool.pid not in {event["pid"] for event in events}
    assert os.getpid() in {event["pid"] for event in events}


_NARROW = r"""
#include <unistd.h>
#ifdef __x86_64__
#define ALSO , "r8", "r9", "r10", "r11"
#else
#define ALSO
#endif
int main(void)
{
    int result, i;
    for (i = 0; i < 5; i++)  /* 20: getpid there, writev here */
        __asm__ volatile("int $0x80" : "=a"(result) : "a"(20) : "memory" ALSO);
    return result != getpid();
}
"""


@pytest.mark.parametrize("bits", [32, 64])
def test_calls_by_the_numbers_of_32_bits_are_not_taken_for_others(
    bits: int, tmp_path: Path
) -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("needs x86-64: other CPUs' programs cannot make the other kind of call")
    path = tmp_path / "narrow"
    done = subprocess.run(
        [need_program("gcc"), f"-m{bits}", "-static", "-x", "c", "-", "-o", path],
        input=_NARROW,
        text=True,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        pytest.skip("needs gcc-multilib for -m32")
    found = results("count", "syscall:*", "-c", str(path))
    names = {line["probe"] for line in found if line["count"]}
    assert "syscall:writev" not in names
    assert ("syscall:exit_group" in names) == (bits == 64)


def test_only_processes_that_were_asked_for() -> None:
    with tracing_kernel("trace", "--json", "syscall:getppid", "-p", str(os.getpid())) as tool:
        subprocess.run([sys.executable, "-ISc", "import os; os.getppid()"], check=True)
        os.getppid()
        tool.wait_events(1)
        events = tool.stop()
    assert [event["pid"] for event in events] == [os.getpid()]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["syscall:opnat"], "no system call opnat; nearest is openat"),
        (["syscall:exit(return)"], "syscall:exit does not return"),
        (["sched:sched_switch"], "there is tracepoint:sched:sched_switch"),
    ],
)
def test_mistakes_are_told_in_one_line(words: list[str], message: str) -> None:
    (line,) = kprobe("trace", *words, code=1).stderr.splitlines()
    assert line.startswith("Error: ")
    assert message in line


def test_calls_are_listed_with_their_arguments() -> None:
    lines = kprobe("list", "-v", "syscall:openat").stdout.splitlines()
    assert lines[0] == "syscall:openat"
    assert "    const char *filename" in lines
    assert lines[-1] == "    long return"
    names = kprobe("list", "syscall:*").stdout.splitlines()
    assert len(names) > 300
    described = json.loads(kprobe("info", "--json", "syscall:openat").stdout)
    assert "O_CREAT" in next(f for f in described["fields"] if f["name"] == "flags")["names"]
