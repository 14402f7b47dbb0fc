"""What goes wrong is one line that says why, with the right exit code and nothing left behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fixtures import Fixture, build, start
from patience import patient
from skips import need_program
from tracing_tools import (
    USDT,
    before_main,
    dropped_by_python,
    leftovers,
    one_error,
    private,
    run_usdt,
    tracebacks,
    tracing,
    until,
    usdt,
)

from usdt.bpf import features
from usdt.bpf._uapi import AttachType
from usdt.bpf.asm.assembler import Assembler
from usdt.bpf.asm.insn import R0
from usdt.bpf.link import UprobeSite, attach_uprobe_multi
from usdt.bpf.program import ProgramSpec
from usdt.probes.probe import read_probes

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_PROCESS = 4194303  # PID_MAX_LIMIT of 64-bit kernels, less one: never given in tests


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Whatever fails leaves no program, map or link without an owner."""
    before = leftovers()
    yield
    until(lambda: leftovers() <= before, "programs, maps and links to go", timeout=patient(100))


@pytest.fixture(scope="module")
def target() -> Iterator[Fixture]:
    """A process that waits, with the probes of args."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    with start(build("default", "args"), "-w") as fixture:
        yield fixture.wait_ready()


# With a duration the command waits that long for libraries: a test that waits for it fails.
_NO_WAIT = ("-d", "1000s")


def trace_error(*words: object, code: int = 1, **options: Any) -> str:
    """The one error of a trace that fails."""
    return one_error(run_usdt("trace", *words, **options), code=code)


# ---------------------------------------------------------------- processes and probes


def test_a_process_that_is_not_there() -> None:
    for words in (("trace", "-p", NO_PROCESS, "a:b"), ("list", "-p", NO_PROCESS)):
        assert one_error(run_usdt(*words)).startswith(f"no process {NO_PROCESS}; list")


def test_a_kernel_thread_has_no_probes() -> None:
    assert "kernel thread" in trace_error("-p", 2, *_NO_WAIT, "a:b")


def test_a_process_without_that_provider_is_given_up_after_a_while(target: Fixture) -> None:
    began = time.monotonic()
    assert "no probe nobody:has_this" in trace_error("-p", target.pid, "nobody:has_this")
    assert time.monotonic() - began > 3


def test_a_process_without_any_probes_says_so() -> None:
    with start("cat") as process:
        message = trace_error("-p", process.pid, "some:thing")
    assert f"process {process.pid} (cat): no USDT probes" in message


@pytest.mark.parametrize(
    ("probe", "nearest"),
    [
        pytest.param("args:cuont3", "args:count3", id="letters in the wrong order"),
        pytest.param("args:variadic13", "args:variadic12", id="a wrong number"),
        pytest.param("args:mixed12x", "args:mixed12", id="a letter too many"),
    ],
)
def test_a_misspelt_probe_is_told_the_nearest_at_once(
    target: Fixture, probe: str, nearest: str
) -> None:
    for words in (("-p", target.pid, probe), (f"{build('default', 'args')}:{probe}",)):
        message = trace_error(*_NO_WAIT, *words)
        assert f"no probe {probe}; nearest is {nearest} " in message
        assert "usdt list" in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("args:count3(arg0", "')'", id="a parenthesis is not closed"),
        pytest.param("args:count3(arg0))", "column 18", id="one too many is closed"),
        pytest.param("args:count3(arg0,,arg1)", "column 18", id="an item is empty"),
        pytest.param("args:count3(arg0 +)", "column 19", id="an operand is missing"),
        pytest.param("args:count3(arg3)", "arg0…arg2; arg3", id="an argument too many"),
        pytest.param("args:count0(arg0)", "arg0", id="an argument of none"),
        pytest.param("args:count3(foo)", "foo", id="an unknown name"),
        pytest.param("args:count3(strr(arg0))", "strr", id="an unknown function"),
        pytest.param('args:count3(arg0 == "x")', "string", id="a number against a string"),
        pytest.param("args:count3(arg0 == 'x)", "column", id="an open character"),
        pytest.param("args:count3(arg0 / 0 0)", "column", id="no operator"),
        pytest.param("args:count3(99999999999999999999)", "column", id="a number beyond 64 bits"),
        pytest.param("args:count3(\x1b[31m)", "column 13", id="an escape sequence"),
        pytest.param("args:", "name", id="no name"),
        pytest.param("", "name", id="nothing"),
        pytest.param("args:count3(" + "(" * 5000 + ")", "column", id="nested deeply"),
        pytest.param("args:count3(" + "arg0+" * 5000 + "1)", "", id="endless"),
    ],
)
def test_items_that_cannot_be_understood_are_pointed_at(
    target: Fixture, text: str, said: str
) -> None:
    done = run_usdt("trace", "-p", target.pid, "-d", 5, text)
    message = one_error(done, code=2)
    shown, caret = done.stderr.splitlines()[-3:-1]
    assert caret.strip() == "^"
    column = int(message.rsplit("column ", 1)[1].split(":")[0])  # a suggestion may follow
    assert len(caret) == min(column, len(shown) + 1) or shown.startswith("…") or "\x1b" in text
    assert said in message
    assert "\x1b" not in message
    assert len(message) < 500


# ---------------------------------------------------------------- privilege


@pytest.fixture
def nobody() -> tuple[str, ...]:
    """Words that run a command without any privilege."""
    ids = ("--reuid=65534", "--regid=65534", "--clear-groups")
    words = (need_program("setpriv", "util-linux"), *ids)
    done = subprocess.run([*words, sys.executable, "-c", ""], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"needs a Python that other users can run, which {sys.executable} is not")
    return words


def test_without_privilege_the_missing_capabilities_are_named(
    target: Fixture, nobody: tuple[str, ...]
) -> None:
    path = build("default", "args")
    for words in (
        ("-p", target.pid, "args:*"),
        (f"{path}:args:*",),
        ("-c", path, "args:*"),
        ("-a", "a:b"),
    ):
        message = trace_error(*words, before=nobody)
        assert "CAP_BPF" in message
        assert "CAP_PERFMON" in message


def test_without_privilege_files_can_be_looked_at(nobody: tuple[str, ...], tmp_path: Path) -> None:
    with _open_folder(build("default", "ints")) as path:
        for words in (("list", path), ("info", path, "ints:i8"), ("check", path), ("features",)):
            done = run_usdt(*words, before=nobody)
            assert done.returncode == 0, (words, done.stderr)
            assert done.stdout
            assert done.stderr == ""


def test_somebody_elses_process_is_not_for_everybody(
    target: Fixture, nobody: tuple[str, ...]
) -> None:
    message = one_error(run_usdt("list", "-p", target.pid, before=nobody))
    assert str(target.pid) in message
    assert "another user" in message
    assert "CAP_SYS_PTRACE" in message


@contextlib.contextmanager
def _open_folder(*files: Path) -> Iterator[Path]:
    # pytest's folders are their owner's alone.
    import tempfile

    with tempfile.TemporaryDirectory(prefix="usdt-open-") as name:
        Path(name).chmod(0o755)
        for file in files:
            shutil.copy(file, name)
        yield Path(name) / files[0].name


# ---------------------------------------------------------------- output


def test_a_full_disk(target: Fixture) -> None:
    with usdt("trace", "-p", target.pid, "-o", "/dev/full", "args:*") as tool:
        tool.wait_tracing()
        target.fire()
        assert tool.wait_all() == 1
        tool.wait_end(code=1)
        assert [line for line in tool.errors if line.startswith("Error: ")] == [
            "Error: write to /dev/full: No space left on device"
        ]


def test_standard_output_on_a_full_disk(target: Fixture) -> None:
    with Path("/dev/full").open("w") as full:
        done = run_usdt("list", "-p", target.pid, stdout=full)
    assert "No space left on device" in one_error(done)


@pytest.mark.parametrize("path", ["/nonexistent/folder/file", "/"])
def test_an_output_that_cannot_be_written(target: Fixture, path: str) -> None:
    assert path in trace_error("-p", target.pid, "-o", path, "args:*")


def test_a_closed_pipe_ends_it_quietly_and_at_once(target: Fixture) -> None:
    script = '"$1" trace --json -p "$2" "args:*" 2>"$4" | head -n 1; echo "${PIPESTATUS[0]}"'
    with _folder_file() as errors:
        shell = subprocess.Popen(
            ["bash", "-c", script, "bash", USDT, str(target.pid), "", str(errors)],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            until(lambda: "tracing" in errors.read_text(), "the trace")
            for _ in range(20):
                target.fire()
                if shell.poll() is not None:
                    break
                time.sleep(0.02)
            assert shell.stdout is not None
            lines = shell.stdout.read().splitlines()
            shell.wait(patient(100))
        finally:
            shell.kill()
            shell.wait()
            assert shell.stdout is not None
            shell.stdout.close()
        assert lines[0].startswith("{")
        assert lines[1:] == ["0"]
        assert [line for line in errors.read_text().splitlines() if "tracing" not in line] == []


def test_a_listing_into_a_closed_pipe_ends_quietly() -> None:
    path = build("default", "many10k")
    script = '"$1" list --json "$2" | head -n 1 | cut -c 1; echo "${PIPESTATUS[0]}"'
    done = subprocess.run(
        ["bash", "-c", script, "bash", USDT, path], capture_output=True, text=True, check=True
    )
    assert done.stdout == "{\n0\n"
    assert done.stderr == ""


@contextlib.contextmanager
def _folder_file() -> Iterator[Path]:
    import tempfile

    with tempfile.NamedTemporaryFile(prefix="usdt-errors-") as file:
        yield Path(file.name)


# ---------------------------------------------------------------- files that are no programs


def _files(folder: Path) -> dict[str, Path]:
    program = build("default", "args").read_bytes()
    made = {"truncated": program[: len(program) // 2], "header": program[:40], "empty": b""}
    made["text"] = b"#!/bin/sh\n"
    arm = bytearray(program)
    arm[18:20] = (183).to_bytes(2, "little")  # e_machine: EM_AARCH64
    made["arm64"] = bytes(arm)
    for name, data in made.items():
        (folder / name).write_bytes(data)
    os.mkfifo(folder / "fifo")
    (folder / "dangling").symlink_to("nowhere")
    paths = {name: folder / name for name in (*made, "fifo", "dangling", "missing")}
    return {**paths, "folder": folder, "null": Path("/dev/null"), "zero": Path("/dev/zero")}


_KINDS = (
    *("truncated", "header", "empty", "text", "fifo", "dangling", "missing", "folder"),
    *("null", "zero", "arm64"),
)


@pytest.mark.parametrize("kind", _KINDS)
def test_a_file_that_is_no_program_for_this_machine(kind: str, tmp_path: Path) -> None:
    path = _files(tmp_path)[kind]
    message = trace_error("-d", 5, f"{path}:args:*", timeout=patient(100))
    assert str(path) in message or path.name in message
    if kind == "arm64":
        assert "aarch64" in message or "arm64" in message
        assert run_usdt("list", path).returncode == 0
        assert run_usdt("check", path).returncode == 1
        return
    for command in ("list", "check"):
        assert str(path) in one_error(run_usdt(command, path, timeout=patient(100)))


# ---------------------------------------------------------------- timing


def test_a_process_that_ends_before_it_is_attached_to() -> None:
    with start(build("default", "args"), "-w") as fixture:
        fixture.wait_ready()
        pid = fixture.pid
        os.kill(pid, signal.SIGKILL)  # a zombie until it is waited for
        until(lambda: ") Z " in Path(f"/proc/{pid}/stat").read_text(), "its end")
        assert str(pid) in trace_error("-p", pid, "args:*")
    assert trace_error("-p", pid, "args:*").startswith(f"no process {pid};")


@pytest.mark.parametrize("milliseconds", [0, 20, 40, 60, 80, 100, 120, 150, 200, 300])
def test_an_interrupt_during_the_start(
    target: Fixture, milliseconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONFAULTHANDLER", "1")
    with usdt("trace", "--json", "-p", target.pid, "args:*") as tool:
        time.sleep(milliseconds / 1000)
        tool.process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            tool.process.wait(patient(100))
        if (code := tool.code) is None:
            tool.process.send_signal(signal.SIGABRT)  # shows where it is
            until(lambda: tool.code is not None, "the end by SIGABRT")
        tool.kill()
        if dropped_by_python(tool.errors):
            return
        # Python itself had not yet come to what is ours.
        if code == -signal.SIGINT or before_main(tool.errors):
            assert not [line for line in tool.errors if "/cli/" in line], tool.errors
        else:
            assert code in (0, 130), tool.errors
            assert not tracebacks(tool.errors), tool.errors


def test_the_end_of_a_process_that_fires_all_the_time(tmp_path: Path) -> None:
    path = build("default", "loop")
    with start(path, "-w", "-q", "-n", 100_000_000) as fixture:
        fixture.wait_ready()
        with tracing("-p", fixture.pid, "-o", tmp_path / "hits", "loop:hit") as tool:
            fixture.send("fire")
            until(lambda: (tmp_path / "hits").stat().st_size > 4096, "hits")
            fixture.kill()
            assert tool.wait_all() == 0, tool.errors
            delivered, _ = tool.closing
            assert delivered > 0


def test_an_interrupt_while_a_process_fires_all_the_time(tmp_path: Path) -> None:
    path = build("default", "loop")
    with start(path, "-w", "-q", "-n", 100_000_000) as fixture:
        fixture.wait_ready()
        with tracing("-p", fixture.pid, "-o", tmp_path / "hits", "loop:hit") as tool:
            fixture.send("fire")
            until(lambda: (tmp_path / "hits").stat().st_size > 4096, "hits")
            tool.process.send_signal(signal.SIGINT)
            assert tool.wait_all() == 0, tool.errors


# ---------------------------------------------------------------- options


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("--buffer", "nonsense"), id="a buffer that is no size"),
        pytest.param(("--buffer", "-1"), id="a negative buffer"),
        pytest.param(("--buffer", ""), id="no size"),
        pytest.param(("--buffer", "1.5M"), id="half a size"),
        pytest.param(("--max-string", "0"), id="strings of no bytes"),
        pytest.param(("--max-string", "65535"), id="strings too long"),
        pytest.param(("-n", "0"), id="no events"),
        pytest.param(("-n", "x"), id="events that are no number"),
        pytest.param(("-d", "0"), id="no seconds"),
        pytest.param(("-d", "-1"), id="negative seconds"),
        pytest.param(("-d", "nan"), id="seconds that are no number"),
        pytest.param(("-c", "true"), id="a process and a command"),
        pytest.param(("-a",), id="a process and all"),
        pytest.param(("--no-such-option",), id="an unknown option"),
    ],
)
def test_options_that_make_no_sense_are_usage_errors(
    target: Fixture, words: tuple[str, ...]
) -> None:
    trace_error("-p", target.pid, *words, "args:*", code=2, timeout=patient(100))


@pytest.mark.parametrize("size", ["0", "1", "4095", "3G", "1000G", "99999999999999999999G"])
def test_a_buffer_of_any_size_works_or_is_refused(target: Fixture, size: str) -> None:
    done = run_usdt("trace", "-p", target.pid, "-d", 0.1, "--buffer", size, "args:count3")
    if done.returncode:
        one_error(done, code=done.returncode)
        assert done.returncode in (1, 2)
    else:
        assert "0 events, 0 lost" in done.stderr
        assert len(size) < 6, "who asked for that much must be told"


@pytest.mark.parametrize(
    ("command", "said", "code"),
    [
        pytest.param("/nonexistent/program", "/nonexistent/program", 1, id="a missing program"),
        pytest.param("no-such-program-on-path", "no-such-program-on-path", 1, id="not on PATH"),
        pytest.param("/", "/", 1, id="a folder"),
        pytest.param("/etc/passwd", "/etc/passwd", 1, id="no permission to execute"),
        pytest.param("", "empty", 2, id="nothing"),
        pytest.param("'", "quot", 2, id="an open quotation"),
    ],
)
def test_a_command_that_cannot_be_started(command: str, said: str, code: int) -> None:
    assert said in trace_error("-c", command, "a:b", code=code, timeout=patient(100))


def test_nobody_to_trace() -> None:
    assert "-p PID" in trace_error("args:count3")


# ---------------------------------------------------------------- other tracers


@contextlib.contextmanager
def _held(path: Path, sites: int) -> Iterator[None]:
    # Places of the guarded probe held by another tracer, one that knows of no semaphore.
    if not features.have_uprobe_multi():
        pytest.skip("needs uprobe_multi (Linux 6.6) to hold a place without its semaphore")
    probe = next(p for p in read_probes(str(path)).probes if p.name == "guarded")
    code = Assembler()
    code.mov(R0, 0)
    code.exit()
    spec = ProgramSpec(code.assemble(), attach_type=AttachType.TRACE_UPROBE_MULTI)
    places = [UprobeSite(site.offset or 0, 0, 0) for site in probe.sites[:sites]]
    with spec.load({}) as program, attach_uprobe_multi(program, str(path), places):
        yield


def test_a_probe_held_with_another_semaphore_is_explained(tmp_path: Path) -> None:
    path = private(build("default", "sema_shared"), tmp_path)
    with start(path, "-w") as fixture, _held(path, 3):
        message = trace_error("-p", fixture.wait_ready().pid, "sema_shared:guarded")
    assert "sema_shared:guarded" in message
    assert "Invalid argument" in message
    assert "another tracer" in message
    assert "semaphore" in message


def test_what_is_not_held_by_others_is_traced_all_the_same(tmp_path: Path) -> None:
    path = private(build("default", "sema_shared"), tmp_path)
    with (
        start(path, "-w") as fixture,
        _held(path, 1),
        tracing("-p", fixture.wait_ready().pid, "sema_shared:*") as tool,
    ):
        assert tool.sites == 4
        assert "another tracer" in tool.wait_error("not attached: ")
        fixture.fire()
        assert [event["args"]["arg1"] for event in tool.wait_events(4)] == [-1, 4, 0, 0]
        tool.stop()
