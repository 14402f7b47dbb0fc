"""``usdt run``: the flags of bpftrace's command, and its words for what is not there."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fork_server import run
from patience import patient
from symbol_programs import compiled

from usdt.bpf.features import have_user_writes
from usdt.engine.programs.iterators import iterator_names

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("ringbuf")]

_COMMAND = str(Path(sys.executable).with_name("usdt"))


def _run(*words: str, code: int = 0) -> tuple[str, str]:
    command = [_COMMAND, "run", *words]
    done = run(command, timeout=60)
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


def test_the_version_is_that_of_the_toolkit() -> None:
    output, _ = _run("--version")
    first, _, rest = output.partition(" ")
    assert first == "usdt"
    assert rest[0].isdecimal()


def test_what_the_kernel_offers() -> None:
    output, _ = _run("--info")
    lines = {*output.splitlines()}
    assert {"  hash: yes", "  ringbuf: yes", "  uprobe: yes"} <= lines
    answers = {True: "yes", False: "no"}
    assert f"  iter: {answers['task' in iterator_names()]}" in lines
    assert f"  probe_write_user: {answers[have_user_writes()]}" in lines


_UNKNOWN = {
    ("-p", "no_process", "x.bt"): "Failed to parse pid: pid 'no_process' is not a valid decimal",
    ("-p", "5000000", "x.bt"): r"Failed to parse pid: pid '5000000' out of valid pid range \[1,419",
    ("-p", "0", "x.bt"): "Failed to parse pid: pid '0' out of valid pid range",
    ("no_such.bt",): "failed to open file 'no_such.bt': No such file or directory",
    ("-l", "no_such.bt"): "WARNING: It appears that 'no_such.bt' is a filename",
}


@pytest.mark.parametrize("words", _UNKNOWN)
def test_what_is_not_there(words: tuple[str, ...]) -> None:
    output, error = _run(*words, code=1)
    assert not output
    assert re.match(f"(Error: )?{_UNKNOWN[words]}", error)


def test_an_unknown_format() -> None:
    _, error = _run("-f", "yaml", "-e", "BEGIN { exit(); }", code=2)
    assert 'Invalid output format "yaml": expected text or json' in error


def test_a_dry_run_attaches_and_runs_nothing(tmp_path: Path) -> None:
    text = '{ printf("hit\\n"); @ = 1; }'
    started = tmp_path / "started"
    words = ("--dry-run", "-c", f"touch {started}")
    assert _run(*words, "-e", f"BEGIN {text} i:ms:1 {text} u:libc:free {text} END {text}") == (
        "",
        "",
    )
    assert not started.exists()
    _, error = _run(*words, "-e", "u:libc:no_such_function { }", code=1)
    assert "no_such_function" in error


def test_headers_are_looked_for_in_more_folders(tmp_path: Path) -> None:
    (tmp_path / "own.h").write_text("#define OWN 42\n")
    text = "#include <own.h>\nBEGIN { print(OWN); exit(); }"
    assert _run("-q", "-I", str(tmp_path), "-e", text) == ("42\n\n\n", "")


@pytest.mark.parametrize(("mode", "early"), [("full", ""), ("line", ""), ("none", "1\n")])
def test_when_output_is_written(tmp_path: Path, mode: str, early: str) -> None:
    path = tmp_path / "output"
    # cat() is of the same process: it shows what the file had before.
    text = f'BEGIN {{ print(1); cat("{path}"); exit(); }}'
    _run("-q", "-B", mode, "-o", str(path), "-e", text)
    assert path.read_text() == f"1\n{early}\n\n"


def test_periods_below_the_kernels_are_its_shortest() -> None:
    assert _run("-q", "-e", "interval:us:1 { print(probe); exit(); }")[0].startswith(
        "interval:us:1\n"
    )


def test_licenses_are_those_of_which_all_functions_may_be_called() -> None:
    text = "config = {{ license = {} }} BEGIN {{ print(1); exit(); }}"
    assert _run("-q", "-e", text.format('"Dual BSD/GPL"'))[0] == "1\n\n\n"
    assert "license is one of GPL" in _run("-e", text.format("Potato"), code=2)[1]


def test_no_command_of_system_starts_after_a_signal(tmp_path: Path) -> None:
    # Each command switches tasks, so that there are always more to run.
    path = tmp_path / "output"
    text = 't:sched:sched_switch { system("echo one"); } END { printf("end\\n"); }'
    command = [_COMMAND, "run", "--unsafe", "-o", str(path), "-e", text]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            until = time.monotonic() + patient(100)
            while "one" not in path.read_text() if path.exists() else True:
                assert time.monotonic() < until
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            _, error = process.communicate(timeout=patient(100))
        finally:
            process.kill()
    assert process.returncode == 0, error
    assert path.read_text().endswith("end\n\n\n")
    assert re.search("commands of system.. that the end of the run came before: [1-9]", error)


_WALK = """
struct s { int a; };
int walk(const struct s *s, int (*f)(int)) { return f(s->a); }
int main(void) { return 0; }
"""


def test_arguments_are_listed(tmp_path: Path) -> None:
    path = compiled(tmp_path, _WALK, "-g")
    assert _run("-lv", f"uprobe:{path}:walk")[0].splitlines() == [
        f"uprobe:{path}:walk",
        "    const struct s* s",
        "    int (*)(int) f",
    ]
    assert _run("-lv", f"uprobe:{path}:_start")[0] == f"uprobe:{path}:_start\n"
    listed = _run("-lv", "t:syscalls:sys_enter_read")[0].splitlines()
    assert listed[0] == "tracepoint:syscalls:sys_enter_read"
    assert {"    unsigned int fd", "    char * buf"} <= {*listed}


@pytest.mark.usefixtures("vmlinux_btf")
def test_types_are_listed() -> None:
    assert {"struct qstr", "struct qspinlock"} <= {*_run("-l", "struct q*")[0].splitlines()}
    defined = _run("-lv", "struct  qstr")[0].splitlines()
    assert (defined[0], defined[-1]) == ("struct qstr {", "};")
    assert "\tconst unsigned char *name;" in defined
    assert "PIDTYPE_PID = 0" in _run("-lv", "enum pid_type")[0]
    _, error = _run("-l", "struct no_such_type", code=1)
    assert error == "Error: the kernel has no type 'struct no_such_type'\n"


def test_cat_shows_the_first_bytes(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_text("0123456789" * 2000)
    text = f'BEGIN {{ cat("{path}"); exit(); }}'
    assert len(_run("-q", "-e", text)[0]) == 10240 + 2
    assert _run("-q", "-e", f"config = {{ max_cat_bytes = 12 }} {text}")[0] == "012345678901\n\n"


def test_addresses_of_the_process_and_of_the_kernel() -> None:
    text = (
        "t:syscalls:sys_enter_openat /pid == cpid/ {"
        " print(str(uptr((uint64)args.filename)) == str(args.filename));"
        " print(((struct task_struct *)kptr((uint64)curtask))->pid == tid); exit(); }"
    )
    assert _run("-q", "-c", "cat /dev/null", "-e", text)[0] == "true\ntrue\n\n\n"


def test_a_pattern_without_a_colon_is_one_of_whole_names() -> None:
    found = _run("-l", "*sched_switch")[0].splitlines()
    assert {"tracepoint:sched:sched_switch", "rawtracepoint:sched_switch"} <= {*found}
    assert all(name.endswith("sched_switch") for name in found)
    _, error = _run("-l", "*no_such_name", code=1)
    assert "no probe matches *no_such_name" in error
