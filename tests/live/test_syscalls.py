"""System calls: names, arguments, what they return; compared with strace."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from collections import Counter
from struct import calcsize
from typing import TYPE_CHECKING

import pytest
from aggregating import log2_buckets
from kernelprobes import events_of, kprobe, program, results, tracing_kernel
from skips import need_program
from tracing_tools import run_usdt, until

from kprobe.tracepoints import catalog, syscalls
from kprobe.tracepoints.syscall_numbers import numbers

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("ringbuf")

# CPUs with the table of numbers that newer ones share have only those with a directory.
_UNLINK = "unlink" if "unlink" in numbers() else "unlinkat"
_STAT = ("newfstatat", "fstatat64", "stat64", "statx")
_ACCESS = ("access", "faccessat", "faccessat2")

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
    # The C library of 32-bit programs adds O_LARGEFILE.
    large = good["args"]["flags"] - (os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
    more = "|O_LARGEFILE" if large else ""
    assert good["names"]["flags"].replace(more, "") == "O_RDWR|O_APPEND|O_CLOEXEC"
    assert bool(large) == (calcsize("P") == 4)
    assert bad["args"]["return"] == -errno.ENOENT
    bad["names"]["flags"] = bad["names"]["flags"].replace(more, "")
    assert bad["names"] == {"dfd": "AT_FDCWD", "flags": "O_RDONLY|O_CLOEXEC", "return": "-ENOENT"}


@pytest.mark.parametrize(
    "predicate",
    [
        "return == -ENOENT",
        "-ENOENT == return",
        'return == "-ENOENT"',
        "return < 0 && return != -EACCES",
        "return == -ENOENT, flags == (O_RDONLY | O_CLOEXEC)",
        'return == -ENOENT, flags == "O_RDONLY|O_CLOEXEC"',
        "(flags & O_RDWR) == 0, return < 0",
        "dfd == AT_FDCWD, return == -ENOENT",
    ],
)
def test_errors_and_flags_are_compared_by_name(predicate: str) -> None:
    found = events_of(_OPENS, f'syscall:openat({predicate}, filename == "/no*")')
    assert [event["args"]["return"] for event in found] == [-errno.ENOENT]


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ("return == ENOENT", "the result of a failed call is negative: write -ENOENT"),
        ("flags == O_WRONLY|O_CREAT", "write parentheses, … == (O_WRONLY|O_CREAT)"),
        ("flags == O_CLOEXE", "unknown name 'O_CLOEXE', at column 25; did you mean O_CLOEXEC?"),
        ('flags == "O_RDONLY|O_CLOEXE"', "none of its values has the name"),
    ],
)
def test_misspelt_names_of_numbers_are_refused(items: str, message: str) -> None:
    assert message in kprobe("trace", f"syscall:openat({items})", code=2).stderr.splitlines()[-1]


_CALL = re.compile(r"syscall:(\w+)\((.*)\) = (.*)$")


def test_a_whole_call_is_one_line_as_of_strace(tmp_path: Path) -> None:
    done = kprobe(
        "trace", "-c", program(_OPENS), "syscall:openat(return)", "syscall:getpid(return)"
    )
    *_, good, bad = [
        found.groups() for found in map(_CALL.search, done.stdout.splitlines()) if found
    ]
    assert bad == (
        "openat",
        'dfd=AT_FDCWD, filename="/nowhere/at/all", flags=O_RDONLY|O_CLOEXEC, mode=0',
        "-2 ENOENT",
    )
    assert re.fullmatch(r"\d+", good[2])
    words = [sys.executable, "-c", _OPENS]
    (theirs,) = (line for line in strace(tmp_path, *words) if "/nowhere/at/all" in line)
    assert re.search(r"AT_FDCWD, \"/nowhere/at/all\", O_RDONLY\|O_CLOEXEC\) = -1 ENOENT", theirs)


@pytest.mark.parametrize(
    "items", ["return", "args, return", "dfd, filename, flags, mode, return", "return < 0"]
)
def test_arguments_stand_beside_the_result(items: str) -> None:
    bad = events_of(_OPENS, f"syscall:openat({items})")[-1]
    assert list(bad["args"]) == ["dfd", "filename", "flags", "mode", "return"]
    assert bad["args"]["return"] == -errno.ENOENT
    assert bad["names"]["return"] == "-ENOENT"


def test_args_are_all_arguments_beside_other_values() -> None:
    bad = events_of(_OPENS, "syscall:openat(tid, args, filename, hex(flags), return)")[-1]
    shown = ["tid", "dfd", "filename", "flags", "mode", "hex(flags)", "return"]
    assert list(bad["args"]) == shown
    entry = events_of(_OPENS, "syscall:openat(args)")[-1]
    assert list(entry["args"]) == shown[1:5]


def test_an_argument_is_also_a_member_of_args() -> None:
    items = 'args.filename == "/no*", args.filename, args->flags & O_CLOEXEC, out(args.dfd)'
    (bad,) = events_of(_OPENS, f"syscall:openat({items})")
    assert bad["args"] == {
        "args.filename": "/nowhere/at/all",
        "args->flags&O_CLOEXEC": os.O_CLOEXEC,
        "out(args.dfd)": -100,
    }
    words = ["trace", "syscall:openat(args.filname)"]
    assert (
        "unknown name 'filname', at column 21; did you mean filename?"
        in kprobe(*words, code=2).stderr
    )


def test_a_pattern_shows_whole_calls_and_keeps_them_in_recordings(tmp_path: Path) -> None:
    path = tmp_path / "calls.usdt"
    done = run_usdt("record", "-o", path, "-c", program(_OPENS), "syscall:*(return)")
    assert done.returncode == 0, done.stderr
    lines = run_usdt("report", path).stdout.splitlines()
    calls = [found for found in map(_CALL.search, lines) if found]
    assert len(calls) == len(lines)
    assert {"openat", "close", "mmap", "read"} <= {call[1] for call in calls}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["count", "syscall:openat", "--by", "args"], "args is several values: name those that"),
        (["hist", "syscall:openat(args)"], "(dfd, filename, flags, mode)"),
        (["trace", "syscall:openat(args + 1)"], "args stands alone as an item"),
        (["trace", "syscall:openat(args == 1)"], "args stands alone as an item"),
    ],
)
def test_args_is_no_single_value(words: list[str], message: str) -> None:
    assert message in kprobe(*words, code=2).stderr.splitlines()[-1]


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
    stat, access = (event["probe"].removeprefix("syscall:") for event in found)
    assert stat in _STAT
    assert access in _ACCESS


def test_counts_over_all_calls_are_those_of_strace(tmp_path: Path) -> None:
    lines = strace(tmp_path, "/bin/ls", "/")
    calls = Counter(m[1] for line in lines if (m := re.match(r"\d+ +(\w+)\(", line)))
    found = results("count", "syscall:*", "-c", "/bin/ls /")
    mine = Counter({r["probe"].partition(":")[2]: r["count"] for r in found})
    del calls["execve"]  # it was made before anything was attached
    assert mine == calls
    assert sum(mine.values()) > 30


_FAMILY = """
import os
for path in (b"/bin/true", b"/nowhere"):
    child = os.fork()
    if not child:
        try: os.execv(path, [path])
        except OSError: os._exit(1)
    os.waitpid(child, 0)
"""


def summary(lines: list[str]) -> tuple[Counter[str], Counter[str]]:
    """Of ``strace -c``: how many calls of each name, and how many of them failed."""
    calls, errors = Counter[str](), Counter[str]()
    for line in lines:
        match = re.fullmatch(r" *[\d.]+ +[\d.]+ +\d+ +(\d+) +(\d+)? +(\w+)", line)
        if match and match[3] != "total":
            calls[match[3]] += int(match[1])
            errors[match[3]] += int(match[2] or 0)
    return calls, +errors


def test_counts_of_a_family_are_straces_summary(tmp_path: Path) -> None:
    words = [sys.executable, "-I", "-S", "-c", _FAMILY]
    calls, errors = summary(strace(tmp_path, *words, options=("-c",)))
    calls["execve"] -= 1  # the first, made before anything was attached
    found = results("count", "syscall:*", "-f", "-c", program(_FAMILY))
    mine = Counter({r["probe"].partition(":")[2]: r["count"] for r in found})
    assert mine.pop("exit_group") == 3  # which strace leaves out, as it does not return
    assert mine == calls
    assert mine["execve"] == 2
    failed = "syscall:*(return < 0 && return >= -4095)"
    found = results("count", failed, "-f", "-c", program(_FAMILY))
    assert Counter({r["probe"].partition(":")[2]: r["count"] for r in found}) == errors
    assert errors["execve"] == 1


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
        *("latency", "syscall:clock_nanosleep*", "syscall:clock_nanosleep*(return)"),
        *("-c", program(source)),
    )
    assert found[0]["count"] == 3
    assert found[0]["min"] >= 5_000_000  # to a time that was computed before the call
    assert found[1] == {"unfinished": 0, "unmatched": 0, "deep": 0}


def test_by_what_is_returned_and_by_text() -> None:
    source = "import os\nfor _ in range(4):\n try: os.unlink('/nowhere')\n except OSError: pass"
    probe = f"syscall:{_UNLINK}"
    (found,) = results("count", probe, "--by", "pathname,return", "-c", program(source))
    assert found["count"] == 4
    assert found["key"] == {"pathname": "/nowhere", "return": -2}
    assert found["names"] == {"return": "-ENOENT"}
    shown = kprobe("count", probe, "--by", "return", "-c", program(source)).stdout
    assert shown.splitlines()[-1].split() == ["4", probe, "-ENOENT"]


def test_text_of_strangers_is_escaped(tmp_path: Path) -> None:
    nasty = os.fsencode(tmp_path) + b"/new\nline\x1b[31m\xff\xe2\x80\xae"
    source = f"import os\ntry: os.unlink({nasty!r})\nexcept OSError: pass"
    probe = f"syscall:{_UNLINK}(pathname)"
    (event,) = events_of(source, probe)
    assert event["args"]["pathname"].encode("utf-8", "surrogateescape") == nasty
    (line,) = kprobe("trace", "-c", program(source), probe).stdout.splitlines()
    assert line.isprintable()
    assert "/new\\nline\\x1b[31m\\xff\\u202e" in line
    counted = ("count", f"syscall:{_UNLINK}", "--by", "pathname", "-c", program(source))
    heading, line = kprobe(*counted).stdout.splitlines()
    assert "pathname" in heading
    assert line.isprintable()
    assert line.endswith("/new\\nline\\x1b[31m\\xff\\u202e")
    (found,) = results(*counted)
    assert found["key"]["pathname"].encode("utf-8", "surrogateescape") == nasty


_EXECS = """
import os, _thread
for path in ("/nowhere/at/all", "/bin/true"):
    try: os.execv(path, ["true"])
    except OSError: pass
"""


def test_what_replaces_the_process_shows_what_it_was_given() -> None:
    before = events_of(_EXECS, "syscall:execve(filename)")[-2:]
    after = events_of(_EXECS, "syscall:execve(filename, hex(argv), return)")[-2:]
    names = ["/nowhere/at/all", "/bin/true"]
    assert [event["args"]["filename"] for event in before] == names
    assert [event["args"]["filename"] for event in after] == names
    assert [event["args"]["return"] for event in after] == [-errno.ENOENT, 0]
    assert not any("event" in event for event in after), "as of every other call"
    assert all(int(event["args"]["hex(argv)"], 16) for event in after)
    (good,) = events_of(_EXECS, 'syscall:execve(filename == "/bin/*", return == 0)')
    assert good["args"].pop("envp") != good["args"].pop("argv")
    assert good["args"] == {"filename": "/bin/true", "return": 0}
    counted = results("count", "syscall:execve", "--by", "filename,return", "-c", program(_EXECS))
    assert {(r["key"]["filename"], r["key"]["return"]) for r in counted} >= {
        ("/nowhere/at/all", -errno.ENOENT),
        ("/bin/true", 0),
    }


def test_a_thread_that_replaces_its_process_is_found_again() -> None:
    # It becomes the first thread: its ID is another one at the return.
    source = _EXECS.replace("for", "def run():\n  for").replace("    try", "      try")
    source = source.replace("    except", "      except")
    source += "_thread.start_new_thread(run, ())\nimport time\ntime.sleep(60)"
    before = events_of(source, "syscall:execve(filename)")[-1]
    after = events_of(source, "syscall:execve(filename, return)")[-1]
    assert before["tid"] != before["pid"]
    assert after["tid"] == after["pid"]
    assert after["args"] == {"filename": "/bin/true", "return": 0}


def test_every_event_of_a_system_call_is_of_a_known_number() -> None:
    known = {call.event for call in syscalls.matching("*")}
    named = {name for event in catalog.events() if (name := _entered(event))}
    assert known <= named
    assert len(named - known) <= 3, f"newer than the tables, or misnamed: {named - known}"


def _entered(event: catalog.Event) -> str:
    if event.category != "syscalls" or not event.name.startswith("sys_enter_"):
        return ""
    return event.name.removeprefix("sys_enter_")


def test_calls_of_all_processes_without_the_tracer_itself() -> None:
    with tracing_kernel("trace", "--json", "syscall:*(fd)", "-d", "30") as tool:
        own = f'"pid": {os.getpid()},'

        def shown() -> bool:
            os.fstat(0)  # again: on a busy machine hits are lost
            return any(own in line for line in list(tool.lines))

        until(shown, "a call of this process")
        events = tool.stop()
    assert tool.pid not in {event["pid"] for event in events}


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
    found = results("count", "syscall:*", "-f", "-c", str(path))
    names = {line["probe"] for line in found if line["count"]}
    assert "syscall:writev" not in names
    assert ("syscall:exit_group" in names) == (bits == 64)
    done = kprobe("count", "syscall:*", "-c", path, code=int(bits == 32))
    assert ("runs a program of 32 bits" in done.stderr) == (bits == 32)


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
