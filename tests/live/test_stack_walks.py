"""Stacks as keys of aggregations, unwound in the kernel: as those unwound in user space."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fixtures import build
from skips import requires_root
from symbol_programs import compiled
from tracing_tools import Tool, run_usdt, until
from unwind_programs import BARE_OPTIONS, BARE_SOURCE, CXX_SOURCE

import usdt
from usdt.base.errors import NotSupported
from usdt.base.machine import PROCESS_MACHINE
from usdt.engine.runtime.unwinding import walks_by_tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.engine.compiler.limits import UnwindMethod

pytestmark = [requires_root]

PYTHON = """
import json, re
input()
for n in range(40):
    json.loads(json.dumps([1, 2, {"a": [n]}]))
    re.compile(f"a{n}b*").match("ab"), sorted([3, n, 1], key=abs)
"""
_CXX_OPTIONS = ("-xc++", "-O2", "-fomit-frame-pointer", "-DROUNDS=40", "-DWAIT")
BASH = "read; for i in 1 2 3 4 5 6 7; do [[ $i == *b* ]] || y=${x/a/b}; x=($i $i); done"


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
            # On a busy machine, a trace begins while it starts, and another one later.
            until(lambda: ") S " in Path(f"/proc/{program.pid}/stat").read_text(), "it to wait")
            yield program
        finally:
            program.kill()


def addresses(stack: Any) -> tuple[Any, ...]:
    """The places of a stack in JSON; None at the end if it is incomplete.

    The vdso is in memory only: its addresses are unknown once the process has ended.
    """
    return tuple(
        None
        if "error" in frame
        else (frame["module"] != "[vdso]" and frame.get("link_address"), frame["module"])
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


@pytest.mark.parametrize("name", ["python", "bash", "bare", "cxx"])
def test_stacks_are_those_of_single_events(name: str, tmp_path: Path) -> None:
    probe = "uprobe:libc:malloc"
    match name:
        case "python":
            command: tuple[object, ...] = ("/usr/bin/python3.11", "-c", PYTHON)
        case "bash":
            command = ("/bin/bash", "-c", BASH)
        case "bare":
            path = compiled(tmp_path, BARE_SOURCE, *BARE_OPTIONS)
            command, probe = (path, 20, 100), f"uprobe:{path}:leaf"
        case _:
            path = compiled(tmp_path, CXX_SOURCE, *_CXX_OPTIONS)
            command, probe = (path,), f"uprobe:{path}:visited"
    if not Path(str(command[0])).exists():
        pytest.skip(f"needs the program {command[0]}")
    with waiting(*command) as program:
        counted, traced = both(program, probe)
    assert sum(counted.values()) >= 50
    # A walk ends early where the process maps something at that moment, such as a thread's stack.
    cut, missing = counted - traced, traced - counted
    assert sum(cut.values()) == sum(missing.values()) <= sum(traced.values()) // 50
    for stack in cut:
        assert stack[-1] is None
        assert any(whole[: len(stack) - 1] == stack[:-1] for whole in missing)


def counted(*words: object) -> list[list[dict[str, Any]]]:
    """The stacks that a command counts."""
    done = run_usdt("count", "--json", "--by", "ustack", "--unwind", "dwarf", *words)
    assert done.returncode == 0, done.stderr
    return [json.loads(line)["key"]["ustack"] for line in done.stdout.splitlines()]


def outermost(stacks: list[list[dict[str, Any]]]) -> set[str]:
    """The last functions of stacks, or why they end earlier."""
    return {stack[-1].get("symbol") or stack[-1].get("error") or "?" for stack in stacks}


def test_a_command_has_whole_stacks_from_its_start() -> None:
    command = "/usr/bin/python3.11 -c 'import json'"
    stacks = counted("-c", command, "uprobe:libc:mmap")
    assert len(stacks) >= 5
    assert outermost(stacks) == {"_start"}


def test_children_have_whole_stacks_from_their_start() -> None:
    script = "for i in 1 2 3; do x=$(printf $i); done; /bin/true"
    stacks = counted("-f", "-c", f"/bin/bash -c '{script}'", "uprobe:libc:write")
    assert outermost(stacks) == {"_start"}


def test_a_system_call_has_the_stack_of_its_program() -> None:
    command = "/bin/bash -c 'for i in 1 2 3; do echo $i > /dev/null; done'"
    assert outermost(counted("-c", command, "syscall:write(fd == 1)")) == {"_start"}


@pytest.mark.skipif(PROCESS_MACHINE != "x86_64", reason="i386 is of x86-64")
@pytest.mark.parametrize("method", ["auto", "dwarf"])
def test_a_stack_of_a_32_bit_program_says_what_to_do(method: str) -> None:
    words = ("--by", "ustack", "-c", build("m32O0", "args"), "args:count0")
    lines = run_usdt("count", "--unwind", method, *words).stdout
    assert "(unwind tables of 32-bit programs are not read: use --unwind fp)" in lines
    assert "main+" in run_usdt("count", "--unwind", "fp", *words).stdout


def test_stacks_of_few_frames_are_cut_without_a_reason() -> None:
    done = run_usdt(
        *("count", "--json", "--by", "ustack(2)", "-c", "/bin/bash -c 'x=$(printf 1)'"),
        "uprobe:libc:malloc",
    )
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert {len(one["key"]["ustack(2)"]) for one in results} == {2}
    # A hit may come before it is known which files a process has mapped; it says so.
    cut = sum(one["count"] for one in results if "error" in one["key"]["ustack(2)"][1])
    assert cut < 0.1 * sum(one["count"] for one in results)


def test_threads_of_the_kernel_have_no_user_stack() -> None:
    # Beside them one small program: the names of all that runs on this machine take seconds.
    with subprocess.Popen(["bash", "-c", "while sleep 0.01; do :; done"]) as program:
        probe = f"rawtp:sched_switch(pid < 100 || pid == {program.pid})"
        done = run_usdt("count", "--json", "--by", "ustack", "-a", "-d", "0.3", probe)
        program.kill()
    assert done.returncode == 0, done.stderr
    stacks = [json.loads(line)["key"]["ustack"] for line in done.stdout.splitlines()]
    assert {"error": "no frames: the task has no user stack"} in stacks  # that of the idle task
    frames = [frame for stack in stacks if isinstance(stack, list) for frame in stack]
    assert frames
    assert not any(frame.get("address") == 0 for frame in frames)


def test_python_chooses_the_method() -> None:
    words: dict[str, UnwindMethod] = {"tables": "dwarf", "pointers": "fp"}
    found = {}
    for name, method in words.items():
        with (
            waiting("/usr/bin/python3.11", "-c", PYTHON) as program,
            usdt.Session(pid=program.pid, unwind=method) as session,
        ):
            counts = session.count("uprobe:libc:malloc", by="ustack")
            program.communicate(b"\n")
            session.run(10)
            found[name] = [*counts]
    assert found["tables"]
    assert all("_start+" in stack[-1] for stack in found["tables"])
    # At a function's entry its caller is hidden from them.
    assert not set(map(tuple, found["pointers"])) <= set(map(tuple, found["tables"]))
    with pytest.raises(ValueError, match="expected one of auto, dwarf, fp"):
        usdt.Session(unwind="magic")  # type: ignore[arg-type]


def test_verbose_reports_the_tables() -> None:
    done = run_usdt(
        *("count", "-v", "--by", "ustack", "-c", "/bin/true", "uprobe:libc:write"),
    )
    assert "user stacks by unwind tables in the kernel" in done.stderr
    done = run_usdt(
        *("count", "-v", "--by", "ustack", "--unwind", "fp", "-c", "/bin/true"),
        "uprobe:libc:write",
    )
    assert "user stacks by frame pointers, followed in the kernel" in done.stderr
