"""Java virtual machines: their options, their perf maps, and stacks beside jstack."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from java_programs import compiled, java, thread_dump
from services import Dialogue
from skips import need_program, requires_root
from tracing_tools import run_usdt, tracing, until, usdt

from usdt import attach
from usdt.base.errors import TargetError
from usdt.procfs.maps import read_maps
from usdt.runtimes.hotspot import find_hotspot
from usdt.runtimes.jit_maps import JavaProcess
from usdt.runtimes.jvm_attach import run_jcmd
from usdt.symbolize import Symbolizer

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [requires_root, pytest.mark.usefixtures("ringbuf", "cookies")]

_FRAME_POINTERS = ("-XX:+PreserveFramePointer", "-XX:CompileCommand=quiet")
_NOT_INLINED = "-XX:CompileCommand=dontinline,Stops*::*"
_COMPILED_FIRST = "-Xbatch"  # a method waits for its compiler, however busy the machine is
_SLEEP = "hotspot:thread__sleep__begin"


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("java"), "Stops")


@pytest.fixture(scope="module")
def plain(classes: Path) -> Iterator[Dialogue]:
    """A virtual machine without options."""
    with java(classes, "Stops") as running:
        yield running


def stop(running: Dialogue, depth: int) -> None:
    running.say(str(depth))
    running.hear("stopped")


# ------------------------------------------------------------ options


def test_options_are_those_that_jcmd_shows(plain: Dialogue) -> None:
    done = subprocess.run(
        [need_program("jcmd"), str(plain.pid), "VM.flags", "-all"],
        check=True,
        capture_output=True,
        text=True,
    )
    shown = re.findall(r"^ +bool (\w+) += (true|false) ", done.stdout, re.MULTILINE)
    assert len(shown) > 200
    machine = find_hotspot(plain.pid)
    assert machine is not None
    assert machine.options(name for name, _ in shown) == {n: v == "true" for n, v in shown}


def test_a_process_without_libjvm_is_no_virtual_machine() -> None:
    assert find_hotspot(os.getpid()) is None


# ------------------------------------------------------------ stacks


def test_java_frames_are_those_of_jstack(classes: Path) -> None:
    compared = 0
    with (
        java(classes, "Stops", *_FRAME_POINTERS, _NOT_INLINED) as running,
        tracing("-p", running.pid, "--ustack", "--jit-map", _SLEEP) as tool,
    ):
        for number, depth in enumerate((0, 1, 4, 7, 12, 20)):
            stop(running, depth)
            wanted = from_stop(thread_dump(running.pid, "main"))
            event = tool.wait_events(number + 1)[number]
            running.say("")
            compared += compare(event["args"]["ustack"], wanted)
        tool.stop()
    assert compared > 100


def test_the_python_interface_has_the_names_of_java_methods(classes: Path) -> None:
    with java(classes, "Stops", *_FRAME_POINTERS, _NOT_INLINED) as running:
        attached = attach(f"{_SLEEP}(ustack)", pid=running.pid, jit_map=True)
        with attached as events:
            stop(running, 4)
            stack = next(iter(events)).args["ustack"]
        wanted = from_stop(thread_dump(running.pid, "main"))
    compare([{"symbol": frame.symbol, "module": frame.module} for frame in stack], wanted)


def from_stop(methods: list[str]) -> list[str]:
    return methods[methods.index("Stops.stop") :]


def compare(stack: list[dict[str, Any]], wanted: list[str]) -> int:
    # Frames of interpreted methods are named as such. Below main() are those of libjvm.
    java_frames = [one["symbol"] for one in stack if one["module"].startswith("perf-")]
    shown = [_method(name) for name in java_frames]
    wanted = ["java.lang.Thread.sleep", *wanted]
    assert len(shown) == len(wanted) + 1, (shown, wanted)  # and the stub that calls main()
    for found, method in zip(shown, wanted, strict=False):
        assert found in {method, "Interpreter"}, (shown, wanted)
    assert shown[-1].startswith("StubRoutines")
    assert stack[-1]["symbol"] in {"start_thread", "clone3", "__clone3"}, stack[-1]
    return sum(found == method for found, method in zip(shown, wanted, strict=False))


def _method(name: str) -> str:
    # A method has its result before its name, and parameters behind it.
    return name.partition("(")[0].split()[-1]


def test_without_frame_pointers_the_option_is_suggested(plain: Dialogue) -> None:
    with usdt("trace", "-n", 1, "--ustack", "--jit-map", "-p", plain.pid, _SLEEP) as tool:
        tool.wait_tracing()
        stop(plain, 5)
        tool.finish()
    plain.say("")
    (hint,) = [line for line in tool.errors if "PreserveFramePointer" in line]
    assert hint.startswith(f"process {plain.pid}: ")


@pytest.mark.parametrize("unwind", ["auto", "fp"])
def test_stacks_in_aggregations_are_named(unwind: str, classes: Path) -> None:
    options = (*_FRAME_POINTERS, _NOT_INLINED, _COMPILED_FIRST)
    with java(classes, "Stops", *options) as running:
        more = ("--unwind", unwind, "--jit-map", "-p", running.pid)
        words = ("count", "-n", 3, "--folded", *more, _SLEEP)
        with usdt(*words) as tool:
            tool.wait_tracing()
            for _ in range(3):
                stop(running, 3)
                running.say("")
            tool.finish()
    assert any(";int Stops.choose(int, boolean);" in line for line in tool.lines), tool.lines
    assert not any("[incomplete]" in line for line in tool.lines), tool.lines


def test_a_recording_has_the_names_of_methods_compiled_while_it_was_made(
    classes: Path, tmp_path: Path
) -> None:
    file = tmp_path / "java.usdt"
    options = (*_FRAME_POINTERS, _NOT_INLINED, _COMPILED_FIRST)
    with Dialogue(need_program("java"), *options, "-cp", classes, "Stops") as running:
        words = ("record", "-o", file, "-n", 1, "--ustack", "--jit-map", "-p", running.pid, _SLEEP)
        with usdt(*words) as tool:
            tool.wait_error("tracing")
            running.hear("ready")
            stop(running, 7)
            tool.finish()
        running.say("")
    assert "int Stops$Deep.go(int, boolean)" in run_usdt("report", file).stdout


def test_the_last_request_does_not_wait_for_its_time(plain: Dialogue) -> None:
    process = JavaProcess(plain.pid)
    assert process.request_map()
    assert not process.request_map(missing=True)
    assert process.request_map(now=True)


def test_names_that_came_late_are_told_to_those_that_keep_stacks(
    plain: Dialogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("usdt.runtimes.jit_maps._SHORTEST", 0.2)
    monkeypatch.setattr("usdt.runtimes.jit_maps._SHARE", 0)
    with Symbolizer(jit_map=True) as symbolizer:
        assert symbolizer.observe(plain.pid)
        unnamed = max(
            one.end - 16 for one in read_maps(plain.pid) if one.executable and not one.path
        )
        time.sleep(0.25)
        assert symbolizer.frame(plain.pid, unnamed).symbol == ""  # it is asked for this address
        assert symbolizer.observe(plain.pid)


_COMPILED_CODE = """
import mmap, sys
kind, allowed = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_EXEC
code = mmap.mmap(-1, 4096, flags=kind, prot=allowed)
print("ready", flush=True)
sys.stdin.read()
"""


def test_compiled_code_of_other_programs_has_a_hint() -> None:
    with Dialogue(sys.executable, "-c", _COMPILED_CODE) as program:
        program.hear("ready")
        (code,) = (one for one in read_maps(program.pid) if one.executable and not one.path)
        with Symbolizer(jit_map=True) as symbolizer:
            for _ in range(2):
                assert symbolizer.frame(program.pid, code.start + 8).module == "[anon]"
            (notice,) = symbolizer.notices
    assert f"process {program.pid} has compiled code and is no Java virtual machine" in notice


# ------------------------------------------------------------ processes that cannot be asked


def test_a_virtual_machine_that_hangs_does_not_hang_the_tracer(
    plain: Dialogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.kill(plain.pid, signal.SIGSTOP)
    try:
        until(lambda: _has_stopped(plain.pid), "all threads of the virtual machine stopped")
        process = JavaProcess(plain.pid)
        monkeypatch.setattr("usdt.runtimes.jit_maps._TIMEOUT", 0.3)
        began = time.monotonic()
        assert not process.request_map()
        assert not process.request_map(missing=True)  # it is not asked twice
        assert time.monotonic() - began < 100
    finally:
        os.kill(plain.pid, signal.SIGCONT)
    (notice,) = process.notices
    assert re.fullmatch(
        rf"--jit-map: process {plain.pid} \(java\): Compiler\.perfmap: "
        r"(it is stopped|no answer within 0\.3 s)",
        notice,
    )


def _has_stopped(pid: int) -> bool:
    states = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(state.rpartition(") ")[2].startswith("T") for state in states)


_MAPS_LIBJVM = """
import ctypes, sys, time
ctypes.CDLL(sys.argv[1])
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_program_that_only_maps_libjvm_is_not_killed(plain: Dialogue) -> None:
    machine = find_hotspot(plain.pid)
    assert machine is not None
    library = Path(machine.open_path).readlink()
    with Dialogue(sys.executable, "-c", _MAPS_LIBJVM, library) as program:
        program.hear("ready")
        other = find_hotspot(program.pid)
        assert other is not None
        assert not JavaProcess(program.pid).request_map()
        with pytest.raises(TargetError, match="does not handle SIGQUIT"):
            run_jcmd(other, "Compiler.perfmap", timeout=100)
        assert program.process.poll() is None
        program.end()
        assert program.process.returncode == 0


def test_commands_that_fail_are_refused(plain: Dialogue) -> None:
    machine = find_hotspot(plain.pid)
    assert machine is not None
    with pytest.raises(TargetError, match=r"refused: .*Unknown diagnostic command"):
        run_jcmd(machine, "No.such", timeout=100)


@pytest.mark.parametrize("options", [("-XX:+DisableAttachMechanism",), ("-Xrs",)])
def test_a_virtual_machine_that_may_not_be_asked_lives_on(
    classes: Path, options: tuple[str, ...]
) -> None:
    with java(classes, "Stops", *options) as running:
        process = JavaProcess(running.pid)
        assert not process.request_map(missing=True)
        assert not process.request_map(missing=True)
        (notice,) = process.notices
        assert options[0] in notice
        stop(running, 1)
        running.say("")
        running.end()
        assert running.process.returncode == 0


def test_files_of_others_in_tmp_are_not_used(classes: Path, tmp_path: Path) -> None:
    with java(classes, "Stops") as running:
        link = Path(f"/tmp/perf-{running.pid}.map")
        target = tmp_path / "target"
        target.write_text("mine")
        link.symlink_to(target)
        try:
            process = JavaProcess(running.pid)
            assert not process.request_map()
            assert "is not its own file" in process.notices[0]
            assert target.read_text() == "mine"
        finally:
            link.unlink()
        place = Path(f"/tmp/.java_pid{running.pid}")
        with socket.socket(socket.AF_UNIX) as foreign:
            foreign.bind(str(place))
            foreign.listen()
            os.chown(place, 12345, 12345)
            try:
                process = JavaProcess(running.pid)
                assert not process.request_map()
                assert "is not its socket (uid 12345)" in process.notices[0]
            finally:
                place.unlink()


def test_a_virtual_machine_of_another_user_in_namespaces_of_its_own(classes: Path) -> None:
    for program, package in (("unshare", "util-linux"), ("setpriv", "util-linux")):
        need_program(program, package)
    classes.chmod(0o755)
    become = "setpriv --reuid=65534 --regid=65534 --clear-groups"
    script = (
        f"mount --bind {classes} /mnt; mount -t tmpfs -o mode=1777 t /tmp; mount -t proc p /proc;"
        f" exec {become} {need_program('java')} {' '.join(_FRAME_POINTERS)} -cp /mnt Stops"
    )
    words = ("unshare", "--pid", "--mount", "--fork", "--kill-child", "sh", "-c", script)
    with Dialogue(*words) as container:
        container.hear("ready")
        (pid,) = Path(f"/proc/{container.pid}/task/{container.pid}/children").read_text().split()
        with tracing("-p", pid, "--ustack", "--jit-map", _SLEEP) as tool:
            stop(container, 4)
            (event,) = tool.wait_events(1)
            tool.stop()
        container.say("")
    frames = [(one["symbol"], one["module"]) for one in event["args"]["ustack"]]
    assert ("int Stops.choose(int, boolean)", "perf-1.map") in frames, frames
