"""``usdt run``: what patterns find, what the probe is called, and what counts behind exit()."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from fixtures import build
from fork_server import run as run_command
from tracing_tools import KPROBE, USDT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("ringbuf")]


def run(text: str, *words: str) -> list[str]:
    """Run a program; return the lines that it prints, without empty ones."""
    command = [USDT, "run", "-e", text, *words]
    done = run_command(command, timeout=60)
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if line]


def test_timers_that_begin_together_all_fire() -> None:
    # They are of three groups, beside timers of all CPUs and a counter that counts no time.
    timers = " ".join(f"interval:ms:{50 + at} {{ @seen[{at}] = 1; }}" for at in range(300))
    others = "profile:hz:50 { @hits = count(); } software:cpu-migrations:1 { @moves = count(); }"
    shown = run(f"{timers} {others} interval:ms:2000 {{ @all = len(@seen); exit(); }}")
    assert "@all: 300" in shown
    assert any(line.startswith("@hits: ") for line in shown)


# Attach points → the value of ``probe`` at a hit.
_NAMES = {
    "BEGIN": "begin",
    "i:ms:10": "interval:ms:10",
    "interval:10000000": "interval:us:10000",
    "interval:us:1_0000": "interval:us:10000",
    "profile:hz:1e2": "profile:hz:100",
    "p:hz:99": "profile:hz:99",
    "t:sched:sched_swit*": "tracepoint:sched:sched_switch",
    "rt:sched_swit*": "rawtracepoint:sched_switch",
    "u:libc:malloc": "uprobe:LIBC:malloc",
    "ur:libc:mallo*": "uretprobe:LIBC:malloc",
    "u:libc:malloc+4": "uprobe:LIBC:malloc+4",
}


@pytest.mark.parametrize("written", _NAMES)
def test_probe_is_the_whole_name(written: str) -> None:
    # Samples are of the command alone, which must have time for one.
    busy = f"{sys.executable} -S -c 'for i in range(3_000_000): str(i)'"
    lines = run(f"{written} {{ print(probe); exit(); }}", "-c", busy)
    # Another CPU may have printed it as well before this one came to exit().
    assert {re.sub(r":/.*/libc[^:]*:", ":LIBC:", line) for line in lines[1:]} == {_NAMES[written]}


def test_probe_of_a_file_is_as_its_path_is_written() -> None:
    path = build("default", "loop")
    words = ("-c", f"{path} -q -n 1")
    assert f"usdt:{path}:loop:hit" in run(f"usdt:{path}:loop:* {{ print(probe); }}", *words)
    assert f"uprobe:{path}:main" in run(f"uprobe:{path}:main {{ print(probe); }}", *words)


def test_probe_at_a_source_line(tmp_path: Path) -> None:
    source = (
        "int twice(int n)\n{\n    return 2 * n;\n}\n"
        "int main(void)\n{\n    return twice(2) - 4;\n}\n"
    )
    (tmp_path / "lines.c").write_text(source)
    subprocess.run(("gcc", "-g", "-O0", "-o", "lines", "lines.c"), cwd=tmp_path, check=True)
    path = tmp_path / "lines"
    text = f"uprobe:{path}@lines.c:3 {{ print(probe); print(func); }}"
    assert run(text, "-c", str(path))[1:] == [f"uprobe:{path}@lines.c:3", "twice"]
    assert run(text.replace("@", ":"), "-c", str(path))[1:] == [f"uprobe:{path}:lines.c:3", "twice"]


def test_a_file_that_a_relative_pattern_finds_has_a_relative_path() -> None:
    path = build("default", "loop")
    command = [USDT, "run", "-l", f"usdt:./{path.name[:-1]}*:loop:hit"]
    done = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=True)
    assert f"usdt:./{path.name}:loop:hit" in done.stdout.splitlines()


def test_an_empty_part_of_a_usdt_probe_is_any() -> None:
    path = build("default", "loop")
    words = ("-c", f"{path} -q -n 1")
    name = f"usdt:{path}:loop:hit"
    assert name in run(f"usdt:{path}::hit {{ print(probe); }}", *words)
    assert name in run("usdt:::hit { print(probe); }", *words)
    assert name in run(f"usdt:{str(path)[:-1]}*:: {{ print(probe); }}", *words)


def test_the_module_of_a_raw_tracepoint_is_passed_over() -> None:
    lines = run("rawtracepoint:vmlinux:sched_switch { print(probetype); exit(); }")
    assert {*lines[1:]} == {"rawtracepoint"}


def test_probes_of_the_tracer_are_special() -> None:
    text = "BEGIN { print(probetype); } interval:ms:1 { print(probetype); exit(); }"
    lines = run(f"{text} END {{ print(probetype); }}")
    assert list(dict.fromkeys(lines[1:])) == ["special", "interval"]
    assert lines[-1] == "special"


def test_each_probe_that_a_pattern_finds_is_counted() -> None:
    listed = run_command([KPROBE, "list", "tracepoint:sched:sched_s*"], timeout=60)
    found = re.findall(r"^tracepoint:sched:sched_s", listed.stdout, re.MULTILINE)
    assert len(found) > 3
    lines = run("tracepoint:sched:sched_s* { } BEGIN { exit(); } END { }")
    assert lines == [f"Attached {len(found) + 2} probes"]


def test_sites_of_one_probe_are_one() -> None:
    path = build("default", "loop")
    assert run(f"usdt:{path}:loop:hit {{ }} BEGIN {{ exit(); }}")[0] == "Attached 2 probes"


def test_only_end_prints_behind_exit() -> None:
    path = build("default", "loop")
    text = f'usdt:{path}:loop:hit {{ printf("hit\\n"); exit(); }} END {{ printf("end\\n"); }}'
    lines = run(text, "-c", f"{path} -q -n 1000")
    assert [line for line in lines if line in ("hit", "end")] == ["hit", "end"]


# Words behind ``usdt run -l`` → names that are listed, and one that is not.
_LISTED = {
    ("software:cpu*",): ({"software:cpu-clock:", "software:cpu:"}, "software:dummy:"),
    ("*ware:cp*",): ({"hardware:cpu-cycles:", "software:cpu:"}, "interval:s:"),
    ("interval",): ({f"interval:{unit}:" for unit in ("hz", "us", "ms", "s")}, "profile:s:"),
    ("t:raw_syscalls:*",): (
        {f"tracepoint:raw_syscalls:sys_{end}" for end in ("enter", "exit")},
        "",
    ),
    ("rt:sched_swit*",): ({"rawtracepoint:sched_switch"}, "rawtracepoint:sched_waking"),
    ("-e", "i:ms:5 { } hardware:cache-misses:9,t:sched:sched_switch { } BEGIN { }"): (
        {"interval:ms:", "hardware:cache-misses:", "tracepoint:sched:sched_switch"},
        "begin",
    ),
}


def _list(*words: str, code: int = 0) -> set[str]:
    command = [USDT, "run", "-l", *words]
    done = run_command(command, timeout=60)
    assert done.returncode == code, done.stderr
    return {*(done.stderr if code else done.stdout).splitlines()}


@pytest.mark.parametrize("words", _LISTED)
def test_listed_probes(words: tuple[str, ...]) -> None:
    names, other = _LISTED[words]
    found = _list(*words)
    assert names <= found
    assert other not in found


def test_listed_probes_of_files(tmp_path: Path) -> None:
    path = build("default", "loop")
    assert _list(f"usdt:{path}:*") == {f"usdt:{path}:loop:hit"}
    assert f"uprobe:{path}:main" in _list(f"*:{path}:m*n")
    script = tmp_path / "script.bt"
    script.write_text(f"ur:{path}:main {{ }}")
    assert _list(str(script)) == {f"uretprobe:{path}:main"}
    assert _list("nosuch:x", code=1) == {"Error: no probe matches nosuch:x"}
    with subprocess.Popen([path, "-w"], stdout=subprocess.PIPE, stdin=subprocess.PIPE) as process:
        try:
            process.stdout.readline()  # type: ignore[union-attr]
            assert f"uprobe:{path}:main" in _list("-p", str(process.pid), "uprobe:*:main")
        finally:
            process.kill()


def test_all_probes_of_the_kernel_are_listed() -> None:
    kinds = {name.partition(":")[0] for name in _list()}
    assert {"tracepoint", "rawtracepoint", "software", "hardware", "kprobe", "interval"} <= kinds


def test_warnings_are_left_out() -> None:
    text = "let @unused = hash(3); BEGIN { $z = 0; print(6 / $z); exit(); }"
    for options, warnings in ((), 2), (("--no-warnings",), 0):
        command = [USDT, "run", *options, "-e", text]
        done = run_command(command, timeout=60)
        assert "\n1\n" in done.stdout
        assert done.stderr.count("WARNING") == warnings


def test_the_exec_of_the_command_is_seen() -> None:
    text = 't:syscalls:sys_enter_execve /pid == cpid/ { join(args.argv, "|"); exit(); }'
    assert "true|a b" in run(text, "-c", "true 'a b' ")


def test_a_pid_is_that_of_the_own_pid_namespace() -> None:
    begin = 'BEGIN { printf("%d %d\\n", pid, tid); }'
    text = begin + " t:syscalls:sys_enter_execve /cpid == pid/ { exit(); }"
    unshare = ("unshare", "--fork", "--pid", "--mount-proc")
    command = [*unshare, USDT, "run", "-q", "-e", text, "-c", "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["1", "1"]


@pytest.mark.parametrize("kind", ["profile:hz:199", "software:cpu-clock:1000000"])
def test_samples_are_those_of_the_command(kind: str) -> None:
    text = f"{kind} {{ @of[pid == cpid] = count(); if (len(@of) > 1 || @n++ > 9) {{ exit(); }} }}"
    lines = run(text, "-c", f"{sys.executable} -S -c 'while True: pass'")
    assert [line.partition(":")[0] for line in lines if line.startswith("@of")] == ["@of[true]"]


def test_a_signal_to_the_tracer_is_a_probe() -> None:
    probe = "self:signal:SIGUSR1"
    text = f"{probe} {{ print((1, probe)); }} {probe} {{ print((2, pid)); exit(); }}"
    with subprocess.Popen([USDT, "run", "-e", text], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        run.stdout.readline()  # "Attached 2 probes": the signal is handled
        run.send_signal(signal.SIGUSR1)
        lines = run.communicate(timeout=60)[0].split("\n")
    assert [line for line in lines if line] == [f"(1, {probe})", f"(2, {run.pid})"]


@pytest.mark.parametrize("probe", ["kprobe:nosuch_function", "rawtracepoint:nosuch:sys_exit"])
def test_what_the_kernel_does_not_have_is_passed_over_if_told(probe: str) -> None:
    rest = f"{probe} {{ exit(); }} i:ms:1 {{ exit(); }}"
    assert run(f"config = {{ missing_probes = ignore }} {rest}") == ["Attached 1 probe"]
    done = run_command([USDT, "run", "-e", rest], timeout=60)
    assert done.returncode == 1
    assert "nosuch" in done.stderr


def test_any_file_is_one_of_any_process() -> None:
    path = build("default", "loop")
    command = [path, "-q", "-n", "1000000000"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        text = f"usdt:*:loop:hit /pid == {process.pid}/ {{ print(probe); exit(); }}"
        lines = run(text)
        process.kill()
    assert f"usdt:{path}:loop:hit" in lines
