"""Stacks of programs without frame pointers: whole, from entries, the kernel, recordings."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest
from fixtures import TESTBINS
from skips import need_program, requires_root
from symbol_programs import compiled
from tracing_tools import run_usdt
from unwind_programs import BARE_OPTIONS, BARE_SOURCE

import usdt
from usdt.arch.unwinding import CPUS
from usdt.base.machine import PROCESS_MACHINE

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    requires_root,
    pytest.mark.skipif(PROCESS_MACHINE not in CPUS, reason="no unwinding on this CPU"),
]

CHAIN = ["leaf", "wide", "dynamic", "deep", "main"]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bare")
    return compiled(folder, BARE_SOURCE, *BARE_OPTIONS, name="bare")


def stack_of(*words: object) -> list[dict[str, object]]:
    """The stack of the first event; all but the last object are frames if it is not whole."""
    done = run_usdt("trace", "--json", "-n", "1", "--ustack", *words)
    assert done.returncode == 0, done.stderr
    event = json.loads(done.stdout.splitlines()[0])
    found = event["args"]["ustack"]
    assert isinstance(found, list), found
    return found


def names(stack: list[dict[str, object]]) -> list[object]:
    return [frame.get("symbol") for frame in stack]


def test_every_caller_is_there_without_frame_pointers(bare: Path) -> None:
    stack = stack_of("-c", bare, "bare:leaf")
    assert names(stack)[:5] == CHAIN
    assert names(stack)[-1] == "_start"


def test_a_probe_at_the_entry_has_the_immediate_caller(bare: Path) -> None:
    assert names(stack_of("-c", bare, f"uprobe:{bare}:wide"))[:4] == CHAIN[1:]


def test_a_probe_at_the_return_has_the_caller(bare: Path) -> None:
    assert names(stack_of("-c", bare, f"uprobe:{bare}:wide(return)"))[:3] == CHAIN[2:]


def test_a_system_call_has_the_stack_of_its_program(bare: Path) -> None:
    stack = stack_of("-c", bare, "syscall:write(fd == -1)")
    assert names(stack)[1] == "main"
    assert names(stack)[-1] == "_start"


def test_a_signal_handler_has_the_interrupted_function_below_it(bare: Path) -> None:
    found = names(stack_of("-c", f"{bare} -1", "bare:leaf"))
    assert found[:4] == ["leaf", "wide", "dynamic", "handler"]
    assert found[-1] == "_start"
    assert "main" in found[5:]


def test_a_return_probe_ends_the_stack_of_its_callees(bare: Path) -> None:
    done = run_usdt(
        *("trace", "--json", "-c", bare, "bare:leaf(ustack)", f"uprobe:{bare}:dynamic(return)")
    )
    [stack] = [
        args["ustack"]
        for args in (json.loads(line)["args"] for line in done.stdout.splitlines())
        if "ustack" in args
    ]
    assert names(stack)[:3] == CHAIN[:3]
    assert stack[3:] == [{"error": "a return probe has replaced the return address"}]


def test_a_stack_that_is_not_copied_whole_says_so(bare: Path) -> None:
    stack = stack_of("--stack-bytes", "4K", "-c", f"{bare} 40", "bare:leaf")
    assert names(stack[:4]) == CHAIN[:4]
    assert "not recorded" in str(stack[-1]["error"])
    text = run_usdt(
        *("trace", "-n", "1", "--ustack", "--stack-bytes", "4K", "-c", f"{bare} 40", "bare:leaf")
    )
    assert text.stdout.splitlines()[-1].strip().startswith("(the stack at 0x")
    folded = run_usdt(
        *("trace", "-n", "1", "--folded", "--stack-bytes", "4K", "-c", f"{bare} 40", "bare:leaf")
    )
    assert folded.stdout.startswith("bare;[incomplete];deep;")


def test_a_larger_copy_has_the_whole_stack(bare: Path) -> None:
    found = names(stack_of("--stack-bytes", "32K", "-c", f"{bare} 40", "bare:leaf"))
    assert found.count("deep") == 41
    assert found[-1] == "_start"


def test_a_recording_is_unwound_when_it_is_shown(bare: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.usdt"
    done = run_usdt("record", "--ustack", "-o", path, "-c", bare, "bare:leaf")
    assert done.returncode == 0, done.stderr
    event = json.loads(run_usdt("report", "--json", path).stdout.splitlines()[0])
    assert names(event["args"]["ustack"])[:5] == CHAIN


@pytest.mark.parametrize(
    ("words", "chain"),
    [
        (("bare:leaf", "syscall:write(fd == -1)"), ["main", "__libc_start_call_main"]),
        (("uprobe:{}:wide",), CHAIN[2:]),
    ],
    ids=["a pair", "a call"],
)
def test_a_span_has_the_whole_stack_of_its_end(
    words: tuple[str, ...], chain: list[str], bare: Path, tmp_path: Path
) -> None:
    words = ("--ustack", "-c", str(bare), *(word.format(bare) for word in words))
    path = tmp_path / "spans.usdt"
    shown = run_usdt("spans", "--json", *words)
    kept = run_usdt("record", "--spans", "-o", path, *words)
    reported = run_usdt("report", "--json", path)
    for done in (shown, kept, reported):
        assert done.returncode == 0, done.stderr
    for done in (shown, reported):
        [span] = map(json.loads, done.stdout.splitlines())
        found = names(span["end_args"]["ustack"])
        assert [one for one in found if "write" not in str(one)][: len(chain)] == chain
        assert found[-1] == "_start"


def test_python_has_a_stack_of_frames_that_exist() -> None:
    need_program("/usr/bin/python3.11", "python3.11")
    command = "/usr/bin/python3.11 -c 'import gc; gc.collect()'"
    stack = stack_of("-c", command, "python:gc__done(arg0 > 100)")
    assert names(stack)[-1] == "_start"
    assert {frame["module"] for frame in stack} == {"python3.11", "libc.so.6"}


def test_an_event_in_python_has_the_frames_and_why_they_end(bare: Path) -> None:
    with usdt.attach("bare:leaf(ustack)", command=[str(bare)]) as events:
        [event] = list(events)
    stack = event.args["ustack"]
    assert [frame.symbol for frame in stack][:5] == CHAIN
    assert stack.reason == ""


def test_frame_pointers_can_be_asked_for(bare: Path) -> None:
    assert names(stack_of("--unwind", "fp", "-c", bare, "bare:leaf"))[:2] != CHAIN[:2]


@pytest.mark.skipif(PROCESS_MACHINE != "x86_64", reason="i386 is of x86-64")
def test_a_32_bit_program_is_unwound_by_frame_pointers(tmp_path: Path) -> None:
    options = ("-m32", "-O0", "-fno-omit-frame-pointer", f"-I{TESTBINS}/out/include")
    try:
        program = compiled(tmp_path, BARE_SOURCE, *options, name="narrow")
    except subprocess.CalledProcessError:
        pytest.skip("gcc has no -m32: apt-get install gcc-multilib")
    assert names(stack_of("-c", program, "bare:leaf"))[:5] == CHAIN


def test_sizes_that_no_copy_can_have_are_refused(bare: Path) -> None:
    done = run_usdt("trace", "--ustack", "--stack-bytes", "1M", "-c", bare, "bare:leaf")
    assert done.returncode == 1
    assert done.stderr == "Error: 4096 to 57344 bytes of a stack are copied, not 1048576\n"
