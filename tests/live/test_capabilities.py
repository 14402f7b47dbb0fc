"""Tracing as a user without root, with exactly the capabilities that docs/privileges.md names."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import as_user
import pytest
from fixtures import Fixture, build, start
from python_programs import running
from skips import need_program
from tracing_tools import KPROBE, Tool, one_error, run_usdt, until

from usdt.bpf import features
from usdt.bpf.capabilities import uprobe_event_hint
from usdt.bpf.link import takes_uprobe_events
from usdt.bpf.privileges import set_aside
from usdt.tracefs.mount import MOUNT_POINT

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.root

TRACING = ("CAP_BPF", "CAP_PERFMON")
OTHERS = (*TRACING, "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH")


@pytest.fixture(scope="module", autouse=True)
def can_be_run() -> None:
    """Other users must be able to run the Python of the tests."""
    done = subprocess.run(
        [*as_user.words(), sys.executable, "-c", ""], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip(f"needs a Python that other users can run, which {sys.executable} is not")


@pytest.fixture
def target() -> Iterator[Fixture]:
    """A process of root that waits, with the probes of args."""
    with start(build("default", "args"), "-w") as fixture:
        yield fixture.wait_ready()


def for_uprobes() -> tuple[str, ...]:
    """The capabilities that attach uprobes by the best method of this kernel."""
    if features.have_uprobe_multi():
        return TRACING
    with set_aside("CAP_SYS_ADMIN"):
        return TRACING if takes_uprobe_events() else ("CAP_BPF", "CAP_SYS_ADMIN")


def features_of(*capabilities: str) -> dict[str, dict[str, list[str]]]:
    """What the command says about privileges with these capabilities."""
    done = run_usdt("features", "--json", before=as_user.words(*capabilities))
    found: dict[str, dict[str, list[str]]] = json.loads(done.stdout)["privileges"]
    return found


def test_probes_of_a_command_need_what_is_documented() -> None:
    words = ("count", "--json", "-c", build("default", "args"), "args:*")
    done = run_usdt(*words, before=as_user.words(*for_uprobes()))
    assert done.returncode == 0, done.stderr
    assert sum(json.loads(line).get("count", 0) for line in done.stdout.splitlines()) > 0


@pytest.mark.parametrize("option", [(), ("-f",), ("--ustack",)], ids=["plain", "-f", "--ustack"])
def test_a_process_of_another_user(target: Fixture, option: tuple[str, ...]) -> None:
    before = as_user.words(*{*for_uprobes(), *OTHERS})
    words = ("trace", "--json", "-n", "1", *option, "-p", target.pid, "args:*")
    with Tool(*words, before=before) as tool:
        tool.wait_tracing()
        target.send("fire")
        (event,) = tool.wait_end()
    assert event["pid"] == target.pid
    if option == ("--ustack",):
        assert any(
            "main" in frame["symbol"] for frame in event["args"]["ustack"] if frame.get("symbol")
        )


def test_python_stacks_say_which_capability_is_missing() -> None:
    program = "import os, time\nprint(1, flush=True)\nwhile True: os.getppid(); time.sleep(.01)"
    python = need_program("/usr/bin/python3.11", "python3.11")
    with running(python, "-c", program) as (pid, _):
        before = as_user.words(*for_uprobes(), "CAP_SYS_PTRACE")
        words = ("trace", "--json", "-n", "1", "-p", pid, "--pystack", "syscall:getppid")
        done = run_usdt(*words, before=before)
    assert done.returncode == 0, done.stderr
    (event,) = map(json.loads, done.stdout.splitlines())
    assert event["args"]["pystack"] == {
        "error": "no frames: its memory cannot be read: needs CAP_SYS_PTRACE, and "
        "CAP_DAC_READ_SEARCH for processes of other users"
    }


def test_all_processes(target: Fixture) -> None:
    before = as_user.words(*{*for_uprobes(), *OTHERS})
    with Tool("trace", "--json", "-a", "args:*", before=before) as tool:
        tool.wait_tracing()
        target.send("fire")
        until(lambda: target.pid in {one.get("pid") for one in tool.events}, "a hit of it")


def test_a_recording(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    for folder in as_user.own_parents(tmp_path):
        folder.chmod(0o755)
    path = tmp_path / "recording"
    words = ("record", "-o", path, "-c", build("default", "args"), "args:*")
    done = run_usdt(*words, before=as_user.words(*for_uprobes()))
    assert done.returncode == 0, done.stderr
    assert path.stat().st_uid == as_user.NOBODY
    assert "args:" in run_usdt("report", path).stdout


def test_perf_events_say_which_capability_is_missing() -> None:
    with set_aside("CAP_SYS_ADMIN"):
        if takes_uprobe_events():
            pytest.skip("this kernel lets CAP_PERFMON open uprobe events: before CVE-2025-38466")
        assert "CAP_SYS_ADMIN, which this process lacks" in uprobe_event_hint()
    words = ("count", "--via", "perf-event", "-c", build("default", "args"), "args:*")
    error = one_error(run_usdt(*words, before=as_user.words(*TRACING)))
    assert "uprobes by perf events need CAP_SYS_ADMIN, which this process lacks" in error
    assert features_of(*TRACING)["uprobe_events"]["lacks"] == ["CAP_SYS_ADMIN"]
    assert run_usdt(*words, before=as_user.words("CAP_BPF", "CAP_SYS_ADMIN")).returncode == 0


def test_events_of_tracefs_say_which_capability_is_missing() -> None:
    words = ("count", "--via", "uprobe_events", "-c", build("default", "args"), "args:*")
    error = one_error(run_usdt(*words, before=as_user.words("CAP_BPF", "CAP_SYS_ADMIN")))
    assert "/uprobe_events: Permission denied (this process lacks CAP_DAC_OVERRIDE" in error
    before = as_user.words("CAP_BPF", "CAP_SYS_ADMIN", "CAP_DAC_OVERRIDE")
    assert run_usdt(*words, before=before).returncode == 0


@pytest.mark.parametrize("without", [(), ("CAP_SYS_ADMIN",)])
def test_whether_programs_may_write_into_processes(without: tuple[str, ...]) -> None:
    features.have_user_writes.cache_clear()
    try:
        with set_aside(*without):
            assert features.expects_user_writes() == features.have_user_writes()
    finally:
        features.have_user_writes.cache_clear()


@pytest.mark.parametrize("probe", ["rawtp:sched_switch", "syscall:openat"])
def test_probes_of_the_kernel(probe: str) -> None:
    if not features.have_vmlinux_btf():
        pytest.skip("needs vmlinux BTF")
    with Tool("count", "-d", "0.2", probe, before=as_user.words(*TRACING), command=KPROBE) as tool:
        tool.finish()


def mounted_tracefs(*capabilities: str) -> tuple[str, ...]:
    """The words that run a command with these capabilities, where tracefs is mounted as usual."""
    forget = f"while umount {MOUNT_POINT} 2>/dev/null; do :; done"
    shell = f'{forget}; mount -t tracefs none {MOUNT_POINT} && chmod 700 {MOUNT_POINT} && exec "$@"'
    unshare = need_program("unshare", "util-linux")
    return (unshare, "-m", "/bin/sh", "-c", shell, "sh", *as_user.words(*capabilities))


def test_tracepoints_need_tracefs() -> None:
    if not Path(MOUNT_POINT).is_dir():
        pytest.skip("needs tracefs")
    words = (KPROBE, "count", "-d", "0.2", "tracepoint:sched:sched_switch")
    before = mounted_tracefs(*TRACING)
    refused = subprocess.run([*before, *words], capture_output=True, text=True, check=False)
    assert "lacks CAP_DAC_READ_SEARCH" in one_error(refused)
    before = mounted_tracefs(*TRACING, "CAP_DAC_READ_SEARCH")
    with Tool(*words[1:], before=before, command=KPROBE) as tool:
        tool.finish()


def test_tracefs_says_which_capability_is_missing() -> None:
    trace = ("trace", "--via", "tracefs", "-c", build("default", "args"), "args:*")
    if not Path(MOUNT_POINT).is_dir():
        pytest.skip("needs tracefs")
    error = one_error(run_usdt(*trace, before=mounted_tracefs(*TRACING)))
    assert "this process lacks CAP_DAC_READ_SEARCH" in error
    error = one_error(run_usdt(*trace, before=mounted_tracefs("CAP_DAC_READ_SEARCH")))
    assert "cannot be made: Permission denied; this process lacks CAP_DAC_OVERRIDE" in error
    done = run_usdt(*trace, before=mounted_tracefs("CAP_DAC_OVERRIDE"))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("capability", "lacks"),
    [("CAP_DAC_READ_SEARCH", ["CAP_DAC_OVERRIDE"]), ("CAP_DAC_OVERRIDE", [])],
)
def test_what_tracefs_needs_that_is_mounted(capability: str, lacks: list[str]) -> None:
    if not Path(MOUNT_POINT).is_dir():
        pytest.skip("needs tracefs")
    done = run_usdt("features", "--json", before=mounted_tracefs(capability))
    found = json.loads(done.stdout)["privileges"]
    assert found["tracefs"]["lacks"] == lacks
    assert found["tracepoints"]["lacks"] == [*TRACING]


def test_tracefs_that_is_not_mounted() -> None:
    shell = f'while umount {MOUNT_POINT} 2>/dev/null; do :; done; exec "$@"'
    before = (need_program("unshare", "util-linux"), "-m", "/bin/sh", "-c", shell, "sh")
    shown = run_usdt("features", "--json", before=(*before, *as_user.words(*TRACING))).stdout
    found = json.loads(shown)["privileges"]
    assert found["tracefs"]["lacks"] == ["CAP_SYS_ADMIN", "CAP_DAC_OVERRIDE"]
    assert found["tracepoints"]["lacks"] == ["CAP_SYS_ADMIN", "CAP_DAC_READ_SEARCH"]


def test_a_probe_of_the_kernel_reads_no_files_of_a_process(target: Fixture) -> None:
    if not features.have_vmlinux_btf():
        pytest.skip("needs vmlinux BTF")
    words = ("trace", "--json", "-n", "1", "-p", target.pid, "syscall:write")
    with Tool(*words, before=as_user.words(*TRACING)) as tool:
        tool.wait_tracing()
        target.send("fire")
        (event,) = tool.wait_end()
    assert event["pid"] == target.pid


def test_names_of_kernel_functions_need_syslog() -> None:
    if not features.have_vmlinux_btf():
        pytest.skip("needs vmlinux BTF")
    words = ("trace", "--kstack", "-n", "1", "rawtp:sched_switch")
    with Tool(*words, before=as_user.words(*TRACING), command=KPROBE) as tool:
        assert "CAP_SYSLOG" in tool.wait_error("needs CAP_SYSLOG")
    named = as_user.words(*TRACING, "CAP_SYSLOG")
    with Tool(*words, before=named, command=KPROBE) as tool:
        tool.finish()
        assert any("schedule" in line for line in tool.lines), tool.lines
