"""``spans`` of programs that need no compiler here, and of kernel functions: on any kernel."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from fixtures import build
from functions import here
from kernelprobes import kprobe, program
from streams import read_events
from tracing_tools import KPROBE, USDT

from kprobe.functions.arguments import CallContextAbi
from usdt.bpf.kprobes import KprobeMethod

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("ringbuf")

_WRITES = """
from _thread import allocate_lock, start_new_thread
from posix import open, read, write
file, done = open("/dev/zero", 2), allocate_lock()
for number in range(3):
    write(file, bytes(4099))
    done.acquire()
    start_new_thread(lambda: (read(file, 4111), done.release()), ())
    done.acquire()
    done.release()
"""


def spans(tmp_path: Path, command: str, *words: object) -> tuple[list[dict[str, Any]], str]:
    output = tmp_path / "spans.json"
    done = kprobe("spans", "--json", "-o", output, *words, command=command)
    return read_events(output.read_text()), done.stderr


def test_pairs_nest(tmp_path: Path) -> None:
    command = f"{build('default', 'args')} -n 10"
    probes = "args:count[1-2](arg0)", "args:count[3-4](arg0, arg2)"
    found, errors = spans(tmp_path, USDT, "-c", command, *probes)
    assert [(span["probe"], span["end_probe"]) for span in found] == [
        ("args:count2", "args:count3"),
        ("args:count1", "args:count4"),
    ] * 10
    assert all(span["args"]["arg0"] == span["end_args"]["arg0"] for span in found)
    assert all(span["end_args"]["arg2"] == span["args"]["arg0"] + 2 for span in found)
    inner, outer = found[::2], found[1::2]
    pairs = zip(inner, outer, strict=True)
    assert all(one["duration"] < other["duration"] for one, other in pairs)
    assert "span was" not in errors
    assert "spans were" not in errors


@pytest.mark.parametrize("hits", [1, 5])
def test_a_probe_is_measured_to_its_own_next_hit(hits: int, tmp_path: Path) -> None:
    command = f"{build('default', 'loop')} -q -n {hits}"
    found, errors = spans(tmp_path, USDT, "-c", command, "loop:hit(arg0)", "loop:hit(arg0)")
    rounds = [(span["args"]["arg0"], span["end_args"]["arg0"]) for span in found]
    assert rounds == [(number, number + 1) for number in range(hits - 1)]
    assert f"{hits - 1} event{'s' * (hits != 2)}, 0 lost" in errors


def test_calls_of_a_function(tmp_path: Path) -> None:
    path = build("default", "args")
    found, errors = spans(tmp_path, USDT, "-c", f"{path} -n 10", f"uprobe:{path}:stap(arg0)")
    assert [span["args"]["arg0"] for span in found] == [*range(10)]
    assert "span was" not in errors
    assert "spans were" not in errors


@pytest.mark.usefixtures("vmlinux_btf")
def test_a_pointer_is_a_key_by_its_address(tmp_path: Path) -> None:
    """What it points to, the process, changes between the ends."""
    ends = "rawtp:sched_process_exec(p->pid)", "rawtp:sched_process_exit(p->pid)"
    command = program(f"from posix import execv\nexecv({sys.executable!r}, ['python', '-V'])")
    found, errors = spans(tmp_path, KPROBE, "-c", command, *ends, "--key", "p")
    (span,) = found
    assert span["args"] == span["end_args"] == {"p->pid": span["pid"]}
    assert "1 event, 0 lost" in errors


def test_calls_of_a_kernel_function(tmp_path: Path) -> None:
    here(KprobeMethod.PERF_EVENT)
    CallContextAbi(traced=False).stack.required()  # or a skip, on 32-bit ARM
    probe = "kprobe:vfs_write(arg2 == 4099, arg2, return)"
    found, errors = spans(tmp_path, KPROBE, "-c", program(_WRITES), probe)
    assert [(span["args"], span["end_args"]) for span in found] == [
        ({"arg2": 4099}, {"return": 4099})
    ] * 3, errors
    assert {span["probe"] for span in found} == {"kprobe:vfs_write"}
    assert all(span["duration"] > 0 and span["comm"].startswith("python") for span in found)
    assert "3 events, 0 lost" in errors


def test_a_key_pairs_functions_of_the_kernel_in_two_threads(tmp_path: Path) -> None:
    here(KprobeMethod.PERF_EVENT)
    ends = "kprobe:vfs_write(arg2 == 4099, arg2)", "kprobe:vfs_read(arg2 == 4111, arg2)"
    found, errors = spans(tmp_path, KPROBE, "-c", program(_WRITES), *ends, "--key", "arg0")
    assert [(span["args"], span["end_args"]) for span in found] == [
        ({"arg2": 4099}, {"arg2": 4111})
    ] * 3
    assert {span["end_probe"] for span in found} == {"kprobe:vfs_read"}
    assert all(span["pid"] == span["tid"] for span in found)  # the start's
    assert "begun and not ended" not in errors
