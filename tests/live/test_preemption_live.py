"""Tasks that are preempted while a program runs for them: others' hits are counted all the same.

Of a program by fentry the kernel takes those hits for a recursion, and passes them over. Here a
real-time thread wakes up, hundreds of times, on a CPU where another one spends much of its time in
the program.
"""

from __future__ import annotations

import collections
import itertools
import json

import pytest
from kernelprobes import kprobe, program

from usdt.bpf import features
from usdt.bpf.kprobes import KprobeMethod

pytestmark = pytest.mark.usefixtures("ringbuf", "kprobes", "vmlinux_btf")

_TIMES = 200
_SOURCE = f"""
import _thread, posix, time
posix.sched_setaffinity(0, {{0}})
null = posix.open("/dev/null", posix.O_WRONLY)
lock = _thread.allocate_lock()
lock.acquire()
def urgent():
    posix.sched_setscheduler(0, posix.SCHED_FIFO, posix.sched_param(10))
    for _ in range({_TIMES}):
        time.sleep(0.002)
        posix.write(null, b"x" * 1234)
    lock.release()
_thread.start_new_thread(urgent, ())
count = 0
data = b"y" * 4321
while not lock.acquire(False):
    posix.write(null, data)
    count += 1
posix.write(1, b"%d\\n" % count)
"""
_THREADS = f"""
import _thread, posix
null = posix.open("/dev/null", posix.O_WRONLY)
locks = []
def writes(lock, size):
    for _ in range({_TIMES}):
        posix.write(null, b"x" * size)
    lock.release()
for size in (1234, 2345, 3456):
    locks.append(_thread.allocate_lock())
    locks[-1].acquire()
    _thread.start_new_thread(writes, (locks[-1], size))
for lock in locks:
    lock.acquire()
"""
_LONG = ", ".join(f'str(buf, 250) != "{letter}*z"' for letter in "abcdef")  # takes its time


def _counted(items: str, *words: object) -> tuple[dict[int, int], int, str]:
    done = kprobe(
        *("count", f"vfs_write(count > 1233, count < 4322{items})", "--by", "count", "--json"),
        *("-c", program(_SOURCE), *words),
    )
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    (made,) = [int(line) for line in done.stdout.splitlines() if line.isdigit()]
    counts = {row["key"]["count"]: row["count"] for row in rows if "key" in row}
    return counts, made, done.stderr


@pytest.fixture
def all_kept() -> None:
    """A kernel that preempts no program, or one with a way whose programs it does not preempt."""
    if features.programs_are_preemptible() and not all(features.kprobe_session()):
        pytest.skip("programs are preempted here, and one at both ends of a call does not work")


@pytest.mark.usefixtures("all_kept")
@pytest.mark.parametrize("at_return", [False, True], ids=["at the entry", "at the return"])
def test_nothing_is_missed_of_who_preempts_a_task_in_a_program(at_return: bool) -> None:
    counts, made, said = _counted(f", {_LONG}" + (", return > 0" if at_return else ""))
    assert " missed " not in said
    assert counts == {1234: _TIMES, 4321: made}


@pytest.mark.usefixtures("all_kept")
def test_sequences_of_threads_that_preempt_one_another_are_whole() -> None:
    functions = "ksys_write(count > 1233, count)", "vfs_write(count, return)"
    done = kprobe("trace", "-s", "--json", "-c", program(_THREADS), *functions)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    found = collections.Counter((one["probe"], one.get("event", "call")) for one in events)
    ends = itertools.product(("kprobe:ksys_write", "kprobe:vfs_write"), ("call", "return"))
    assert found == dict.fromkeys(ends, 3 * _TIMES)


def test_what_is_missed_by_fentry_is_said() -> None:
    if not (features.have_fentry() and features.programs_are_preemptible()):
        pytest.skip("tasks are not preempted in programs here")
    counts, made, said = _counted(f", {_LONG}", "--via", KprobeMethod.FENTRY)
    missed = _TIMES - counts[1234] + made - counts[4321]
    # On a CPU with little else to do it may be none.
    assert (f"{missed} hit" in said) if missed else (" missed " not in said)
