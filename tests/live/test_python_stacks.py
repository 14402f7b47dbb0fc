"""Python stacks of real programs, compared with what Python itself says of them."""

from __future__ import annotations

import contextlib
import json
import signal
from pathlib import Path

import pytest
from python_programs import (
    NEWEST,
    PYTHONS,
    each_installed_python,
    each_python,
    interpreter,
    running,
    shown,
    written,
)
from skips import need_program, requires_root, skip_or_fail
from streams import read_events
from tracing_tools import run_usdt, tracing, until

import usdt
from usdt.base.errors import NotSupported
from usdt.bpf import features
from usdt.engine.compiler.codegen import python_stack
from usdt.engine.compiler.codegen.python_frames import RUNTIMES
from usdt.symbolize.file_cache import FileCache
from usdt.symbolize.python_stacks import PythonStacks
from usdt.symbolize.sources.build_id_files import BuildIdFiles

pytestmark = requires_root

# It prints the stack that Python sees at the system call, then makes the call again and again.
_KNOWN = """
    import json, os, sys, threading, time

    class Worker:
        def run(self):
            for _ in [0]:
                return [self.call(tell) for tell in (True, False)][0]

        def call(self, tell):
            if not tell:
                return (
                    os.getppid()
                )
            frame, found = sys._getframe(), []
            while frame is not None:
                found.append((getattr(frame.f_code, "co_qualname"), frame.f_lineno))
                frame = frame.f_back
            found[0] = found[0][0], 12
            return found

    def sorted_by(value):
        return Worker().run()

    def generated():
        yield sorted([1], key=sorted_by), Worker().run()

    def work():
        return next(generated())[1]

    print(json.dumps(work()), flush=True)
    while True:
        work()
        time.sleep(0.01)
"""


def _traced(pid: int, *words: str, number: int = 2) -> list[list[dict[str, object]]]:
    done = run_usdt("trace", "--json", "-n", number, "-p", pid, *words)
    assert done.returncode == 0, done.stderr
    stacks = [json.loads(line)["args"] for line in done.stdout.splitlines()]
    return [stack for args in stacks for name, stack in args.items() if "pystack" in name]


@each_python
def test_the_functions_at_a_system_call_are_those_that_python_names(
    python: str, tmp_path: Path
) -> None:
    program = written(tmp_path, _KNOWN)
    with running(python, program) as (pid, line):
        events = _traced(pid, "syscall:getppid(pystack)", number=4)
    own = [tuple(frame) for frame in json.loads(line)]
    stacks = [*map(shown, events)]
    own[-1] = stacks[0][-1]  # the module is at another line now
    assert own in stacks
    through_c = [name for name, _ in next(stack for stack in stacks if stack != own)]
    assert through_c[:3] == ["Worker.call", "Worker.run", "sorted_by"] or through_c[1].endswith(">")
    assert through_c[through_c.index("sorted_by") + 1] == "generated"  # sorted() is between them
    assert {frame["file"] for frame in events[0]} == {str(program)}


@each_python
def test_a_command_is_known_when_it_has_begun(python: str, tmp_path: Path) -> None:
    program = written(tmp_path, _KNOWN)
    output = tmp_path / "events"
    words = ("-o", output, "-c", f"{python} {program}", "--pystack", "syscall:getppid")
    with tracing(*words) as tool:
        until(lambda: '"symbol": "<module>"' in output.read_text(), "a stack")
        tool.process.send_signal(signal.SIGINT)
        tool.finish()


_PLACES = """
    import gc, os, time

    def collect():
        gc.collect()

    print("ready", flush=True)
    while True:
        collect()
        time.sleep(0.01)
"""


def test_a_probe_of_the_interpreter_and_a_function_of_libc_have_the_same_stack(
    tmp_path: Path,
) -> None:
    python = need_program("/usr/bin/python3.11", "python3.11")
    with running(python, written(tmp_path, _PLACES)) as (pid, _):
        for probe in ("python:gc__start", "uprobe:libc:clock_nanosleep"):
            (stack, _) = _traced(pid, f"{probe}(pystack(2))")
            expected = [("collect", 5), ("<module>", 9)] if "gc" in probe else [("<module>", 10)]
            assert shown(stack) == expected


@pytest.mark.parametrize(
    "probe",
    [
        "uprobe:libc:clock_nanosleep(return, pystack(2))",
        "syscall:clock_nanosleep(return, pystack(2))",
        "tracepoint:sched:sched_switch(prev_state == 1, pystack(2))",
    ],
)
def test_the_end_of_a_call_and_events_of_the_kernel_have_it_as_well(
    probe: str, tmp_path: Path
) -> None:
    with running(PYTHONS[0], written(tmp_path, _PLACES)) as (pid, _):
        (stack, _) = _traced(pid, probe)
    assert shown(stack) == [("<module>", 10)]


def test_a_span_of_a_function_has_it(tmp_path: Path) -> None:
    with running(PYTHONS[0], written(tmp_path, _PLACES)) as (pid, _):
        words = ("spans", "--json", "-n", 2, "-p", pid, "uprobe:libc:clock_nanosleep(pystack)")
        done = run_usdt(*words)
    spans = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(spans) >= 2, done.stderr
    assert {tuple(*map(tuple, shown(one["end_args"]["pystack"]))) for one in spans} == {
        ("<module>", 10)
    }


def test_text_and_folded_stacks_name_the_line(tmp_path: Path) -> None:
    program = written(tmp_path, _PLACES)
    with running(PYTHONS[0], program) as (pid, _):
        words = ("-n", 1, "-p", pid, "--pystack", "syscall:clock_nanosleep")
        text = run_usdt("trace", *words).stdout
        folded = run_usdt("trace", "--folded", *words).stdout
    assert text.splitlines()[1:] == [f"        <module> ({program}:10)"]
    assert folded.endswith(";<module> (program.py:10) 1\n")


def test_a_stack_that_is_none_says_why(tmp_path: Path) -> None:
    (stack, _) = _traced_command("sh -c 'kill -0 $$; kill -0 $$'", "syscall:kill(pystack)")
    assert stack == {"error": "no frames: not a Python process"}
    old = [*(Path.home() / ".pyenv/versions").glob("3.10.*/bin/python3.10")]
    if old:
        command = (
            f"{old[0]} -c 'import os, time; [(os.getppid(), time.sleep(0.5)) for _ in range(9)]'"
        )
        (*_, stack) = _traced_command(command, "syscall:getppid(pystack)")
        assert "3.11 to 3.14 are supported" in str(stack)


def _traced_command(command: str, probe: str) -> list[object]:
    done = run_usdt("trace", "--json", "-n", 2, "-c", command, probe)
    assert done.returncode == 0, done.stderr
    return [json.loads(line)["args"]["pystack"] for line in done.stdout.splitlines()]


_CALLERS = """
    import os, sys, time

    def often():
        os.getppid()
        os.getppid()

    def once():
        os.getppid()

    print("ready", flush=True)
    while True:
        often()
        once()
        time.sleep(0.01)
"""


def test_hits_are_counted_by_python_stack_whatever_process_they_are_of(tmp_path: Path) -> None:
    program = written(tmp_path, _CALLERS)
    with running(PYTHONS[0], program) as (one, _), running(PYTHONS[-1], program) as (other, _):
        pids = ("-p", one, "-p", other, "-d", 0.5)
        done = run_usdt("count", "--json", *pids, "syscall:getppid", "--by", "pystack(2)")
        folded = run_usdt("stats", "--folded", "--pystack", *pids, "syscall:getppid(tid)")
    results = [json.loads(line) for line in done.stdout.splitlines()]
    found = {tuple(shown(one["key"]["pystack(2)"])): one["count"] for one in results}
    module = ("<module>", 13), ("<module>", 14)
    often = (("often", 5), module[0]), (("often", 6), module[0])
    assert set(found) == {*often, (("once", 9), module[1])}, done.stderr
    assert abs(found[often[0]] - found[often[1]]) <= 2
    lines = {line.rpartition(" ")[0].partition(";")[2] for line in folded.stdout.splitlines()}
    assert "<module> (program.py:14);once (program.py:9)" in lines


def test_hits_without_a_python_stack_are_counted_with_the_reason() -> None:
    command = "sh -c 'kill -0 $$; kill -0 $$'"
    done = run_usdt("count", "-c", command, "syscall:kill", "--by", "pystack")
    assert "(no frames: not a Python process)" in done.stdout
    assert done.stdout.splitlines()[1].split() == ["2", "syscall:kill"]


def test_a_recording_names_the_functions_of_a_process_that_is_gone(tmp_path: Path) -> None:
    program = written(tmp_path, _CALLERS)
    recording = tmp_path / "calls.rec"
    with running(PYTHONS[0], program) as (pid, _):
        words = ("-n", 6, "-p", pid, "--pystack")
        done = run_usdt("record", "-o", recording, *words, "syscall:getppid")
        assert done.returncode == 0, done.stderr
    program.unlink()
    report = run_usdt("report", "--json", recording)
    stacks = [json.loads(line)["args"]["pystack"] for line in report.stdout.splitlines()]
    assert {shown(stack)[0] for stack in stacks} == {("often", 5), ("often", 6), ("once", 9)}
    folded = run_usdt("report", "--format", "folded", recording).stdout
    assert "<module> (program.py:14);once (program.py:9) 2" in folded
    reasons = tmp_path / "none.rec"
    run_usdt("record", "-o", reasons, "-c", "sh -c 'kill -0 $$'", "--pystack", "syscall:kill")
    assert "?(no frames: not a Python process)" in run_usdt("report", reasons).stdout


def test_programs_for_many_probes_are_accepted_by_the_kernel(tmp_path: Path) -> None:
    with running(PYTHONS[0], written(tmp_path, _CALLERS)) as (pid, _):
        (stack,) = _traced(pid, "--pystack", "syscall:get*", number=1)
    assert shown(stack)[-1][0] == "<module>"


@pytest.mark.parametrize("loops", [False, True], ids=["loops of the program", "bpf_loop()"])
def test_both_kinds_of_loops_find_the_same_frames(
    loops: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if loops and not features.have_loops():
        skip_or_fail(NotSupported("bpf_loop() (Linux 5.17, with a JIT compiler)"))
    monkeypatch.setattr(python_stack, "have_loops", lambda: loops)
    program = written(tmp_path, _CALLERS)
    with running(PYTHONS[0], program) as (pid, _), usdt.Session(pid=pid) as session:
        counts = session.count("syscall:getppid", by="pystack(2)")
        with session.attach("syscall:getppid(pystack)") as events:
            stacks = [next(iter(events)).args["pystack"] for _ in range(3)]
        session.run(0.3)
    assert {frame.symbol for stack in stacks for frame in stack} == {"<module>", "often", "once"}
    assert len(counts.snapshot()) == 3


_CHILDREN = """
    import os, select, threading, time
    reader, writer = os.pipe()

    def in_thread():
        while True:
            os.getppid()
            time.sleep(0.01)

    def in_child():
        os.close(writer)
        while not select.select([reader], [], [], 0.01)[0]:  # until its parent has ended
            os.getpgrp()
        os._exit(0)

    def start():
        threading.Thread(target=in_thread, daemon=True).start()
        if os.fork() == 0:
            print("ready", flush=True)
            in_child()

    start()
    time.sleep(60)
"""


def test_only_processes_that_are_traced_are_looked_at(tmp_path: Path) -> None:
    program = written(tmp_path, _PLACES)
    with (
        running(PYTHONS[0], program) as (traced, _),
        running(PYTHONS[0], program) as (other, _),
        contextlib.closing(FileCache("", BuildIdFiles())) as cache,
        PythonStacks(cache) as stacks,
    ):
        runtimes = stacks.open([traced])[RUNTIMES]
        stacks.follow((), (traced, other), ())
        assert [int.from_bytes(pid, "little") for pid, _ in runtimes.items()] == [traced]
        stacks.open()  # another session traces all
        stacks.follow((), (other,), ())
        assert len([*runtimes.items()]) == 2


@each_python
def test_threads_and_forked_children_have_their_own_stacks(python: str, tmp_path: Path) -> None:
    program = written(tmp_path, _CHILDREN)
    output = tmp_path / "events"
    words = ("-o", output, "-f", "-c", f"{python} {program}", "--pystack")
    with tracing(*words, "syscall:getppid", "syscall:getpgrp") as tool:
        last = ('"symbol": "Thread._bootstrap"', '"symbol": "in_child"')
        until(lambda: all(name in output.read_text() for name in last), "stacks of both")
        tool.process.send_signal(signal.SIGINT)
        tool.finish()
    events = read_events(output.read_text())
    stacks = [(event["probe"], event["args"]["pystack"]) for event in events]
    # The first hits come before the tracer has seen that the process runs Python.
    early = {stack["error"] for _, stack in stacks if isinstance(stack, dict)}
    reasons = ("the process was not known yet", "not a Python process")
    assert early <= {f"no frames: {reason}" for reason in reasons}
    found = {
        (probe, *(name for name, _ in shown(stack)))
        for probe, stack in stacks
        if isinstance(stack, list)
    }
    thread = ("in_thread", "Thread.run", "Thread._bootstrap_inner", "Thread._bootstrap")
    child = ("in_child", "start", "<module>")
    assert found == {("syscall:getppid", *thread), ("syscall:getpgrp", *child)}


def test_threads_are_found_in_another_pid_namespace(tmp_path: Path) -> None:
    unshare = need_program("unshare", "util-linux")
    program = written(tmp_path, _CALLERS)
    inside = (unshare, "--pid", "--fork", "--kill-child", "--mount-proc", PYTHONS[-1], program)
    with running(*inside) as (parent, _):
        (child,) = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        assert Path(f"/proc/{child}/status").read_text().partition("NSpid:")[2].split()[1] == "1"
        (stack,) = _traced(int(child), "--pystack", "syscall:getppid", number=1)
    assert shown(stack)[1][0] == "<module>"


_INTERPRETERS = """
    import os, sys, time
    try:
        import _xxsubinterpreters as interpreters
        run = interpreters.run_string
    except ImportError:
        import _interpreters as interpreters
        run = interpreters.exec

    def outside():
        os.getpgrp()

    inside = interpreters.create()
    code = "import os\\ndef within():\\n    os.getppid()\\nwithin()"
    print("ready", flush=True)
    while True:
        outside()
        run(inside, code)
        time.sleep(0.01)
"""


@each_python
def test_functions_of_other_interpreters_are_found(python: str, tmp_path: Path) -> None:
    with running(python, written(tmp_path, _INTERPRETERS)) as (pid, _):
        (within,) = _traced(pid, "--pystack", "syscall:getppid", number=1)
        (outside,) = _traced(pid, "--pystack", "syscall:getpgrp", number=1)
    assert [name for name, _ in shown(within)] == ["within", "<module>"]
    assert [name for name, _ in shown(outside)] == ["outside", "<module>"]


_LEFT = """
    import os, time

    def made(number):
        names = {}
        exec(f"def short_lived_{number}():\\n    os.getppid()", {"os": os}, names)
        names.popitem()[1]()

    print("ready", flush=True)
    number = 0
    while True:
        made(number)
        number += 1
        time.sleep(0.002)
"""


def test_functions_that_are_gone_have_their_own_names(tmp_path: Path) -> None:
    program = written(tmp_path, _LEFT)
    with running(PYTHONS[0], program) as (pid, _):
        stacks = _traced(pid, "--pystack", "syscall:getppid", number=60)
    names = [shown(stack)[0] for stack in stacks]
    numbers = [int(name.rpartition("_")[2]) for name, _ in names]
    assert numbers == list(range(numbers[0], numbers[0] + 60))
    assert {line for _, line in names} == {2}


@each_installed_python
def test_python_functions_stand_among_the_native_frames(python: str, tmp_path: Path) -> None:
    program = written(tmp_path, _KNOWN)
    with running(python, program) as (pid, _):
        words = ("--json", "-n", 4, "-p", pid, "--ustack", "--pystack", "syscall:getppid")
        done = run_usdt("trace", *words)
        folded = run_usdt("trace", "--folded", *words[1:]).stdout
    for line in done.stdout.splitlines():
        args = json.loads(line)["args"]
        own = [frame for frame in args["ustack"] if frame.get("python")]
        assert own == args["pystack"]
        symbols = [frame["symbol"] for frame in args["ustack"]]
        assert "_PyEval_EvalFrameDefault" not in symbols
        assert symbols[0] == "getppid"
        assert symbols.index("PyEval_EvalCode") == symbols.index("<module>") + 1
        if "sorted_by" in symbols:  # called by a C function, which generated() calls
            at = symbols.index("sorted_by")
            assert not args["ustack"][at + 1].get("python")
            assert symbols.index("generated") > at + 1
    assert folded.count("<module> (program.py") == 4


def test_python_functions_come_last_if_the_interpreter_cannot_be_seen(tmp_path: Path) -> None:
    # Its code is in _PyEval_EvalFrameDefault.cold, which only the debug symbols name.
    with running(interpreter(NEWEST), written(tmp_path, _KNOWN)) as (pid, _):
        words = ("--json", "-n", 1, "-p", pid, "--ustack", "--pystack", "syscall:getppid")
        args = json.loads(run_usdt("trace", *words).stdout)["args"]
    own = args["pystack"]
    assert shown(own)[-1][0] == "<module>"
    assert args["ustack"][-len(own) :] == own
    assert args["ustack"][-len(own) - 1]["symbol"] == "_start"
