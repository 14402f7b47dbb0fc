"""Giving up capabilities once everything is attached, and tracing on without them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import as_user
import pytest
from fixtures import Fixture, build, start
from java_programs import compiled
from services import Dialogue
from skips import need_program
from tracing_tools import KPROBE, USDT, Tool, private, until

from usdt.bpf.capabilities import CAPABILITIES
from usdt.bpf.features import have_uprobe_multi
from usdt.bpf.privileges import fd_commands_need_bpf
from usdt.tracefs.mount import tracefs

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.root

UNIT = Path(__file__).parents[2] / "contrib" / "usdt-trace@.service"
SETS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
ADMIN = {"CAP_SYS_ADMIN"}
INSPECT = {"CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH", "CAP_PERFMON", "CAP_CHECKPOINT_RESTORE"}


@pytest.fixture
def target() -> Iterator[Fixture]:
    """A process that waits, with the probes of args."""
    with start(build("default", "args"), "-w") as fixture:
        yield fixture.wait_ready()


def threads(pid: int) -> Iterator[dict[str, int]]:
    """The sets of each thread, and no_new_privs, as /proc shows them."""
    for path in Path(f"/proc/{pid}/task").glob("*/status"):
        lines = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
        yield {name: int(lines[name], 16) for name in (*SETS, "NoNewPrivs")}


def mask(names: set[str]) -> int:
    """The bits of these capabilities."""
    return sum(1 << CAPABILITIES[name] for name in names)


def check(pid: int, kept: set[str]) -> None:
    """Every thread has none but these, and can gain none."""
    seen = list(threads(pid))
    assert max(one["CapPrm"] for one in seen) == mask(kept)
    for one in seen:
        assert one["CapPrm"] in {mask(kept), 0}  # the thread that reads the ring buffer
        assert one["CapEff"] == one["CapBnd"] == one["CapPrm"]
        assert one["CapInh"] == one["CapAmb"] == 0
        assert one["NoNewPrivs"] == 1


def hits_of(tool: Tool, program: Fixture) -> list[dict[str, Any]]:
    """The hits of a program, once there are some; programs of others may have hits as well."""
    return until(lambda: [one for one in tool.events if one.get("pid") == program.pid], "a hit")


def on_all() -> set[str]:
    """What attaching in further files needs on this kernel."""
    return INSPECT | {"CAP_BPF"} | (set() if have_uprobe_multi() else ADMIN)


def on_maps() -> set[str]:
    """What maps that are open need on this kernel."""
    return {"CAP_BPF"} if fd_commands_need_bpf() else set()


def test_a_file_needs_nothing_any_more(tmp_path: Path) -> None:
    path = private(build("default", "args"), tmp_path)
    with Tool("trace", "--json", "--drop", "-v", f"{path}:args:*", "-n", "1") as tool:
        said = tool.wait_error("gave up all")
        check(tool.pid, on_maps())
        assert said == ("gave up all capabilities" if not on_maps() else said)
        with start(path) as fixture:
            (event,) = tool.wait_end()
            assert event["pid"] == fixture.pid


@pytest.mark.parametrize("option", ["-a", "-f"])
def test_what_starts_later_is_traced(option: str, target: Fixture, tmp_path: Path) -> None:
    words = ("-a",) if option == "-a" else ("-f", "-p", target.pid)
    with Tool("trace", "--json", "--drop", "-v", *words, "args:*") as tool:
        line = tool.wait_error("kept for new libraries and processes: ")
        tool.wait_error("gave up all other capabilities")
        check(tool.pid, on_all())
        assert set(line.split(": ")[1].split(", ")) == on_all()
        if option == "-f":
            target.send("fire")
            hits_of(tool, target)
            return
        path = private(build("default", "args"), tmp_path)  # a file of which nobody knows yet
        with start(path, "-w") as later:
            later.wait_ready()
            tool.wait_error("library loaded")
            later.send("fire")
            hits_of(tool, later)


def test_symbols_need_what_was_kept(target: Fixture) -> None:
    words = ("trace", "--drop", "-v", "--stack", "-n", "1", "-p", target.pid, "args:*")
    with Tool(*words) as tool:
        tool.wait_error("kept for kernel symbols: CAP_SYSLOG")
        tool.wait_error("gave up all other capabilities")
        check(tool.pid, on_all() | {"CAP_SYSLOG"})
        target.send("fire")
        tool.finish()
        assert any("main+" in line for line in tool.lines), tool.lines


def test_without_the_option_nothing_is_given_up(target: Fixture) -> None:
    with Tool("trace", "-p", target.pid, "args:*") as tool:
        tool.wait_tracing()
        held = next(threads(os.getpid()))
        assert max(one["CapPrm"] for one in threads(tool.pid)) == held["CapPrm"]
        tool.stop()


@pytest.mark.parametrize("more", ["", "--no-drop"], ids=["by default", "unless told not to"])
def test_a_service_drops(more: str) -> None:
    command = f"SYSTEMD_EXEC_PID=$$ exec {KPROBE} count {more} -v rawtp:sched_switch"
    with Tool("-c", command, command="sh") as tool:
        tool.wait_tracing()
        if more:
            assert max(one["CapPrm"] for one in threads(tool.pid)) > 0
            return
        tool.wait_error("gave up all")
        check(tool.pid, on_maps())


def test_tracefs_needs_what_was_kept(target: Fixture) -> None:
    kept = {"CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_SYS_ADMIN"}
    words = ("trace", "--json", "--via", "tracefs", "--drop", "-v", "-p", target.pid, "args:*")
    with Tool(*words) as tool:
        assert set(tool.wait_error("kept for tracefs: ").split(": ")[1].split(", ")) == kept
        tool.wait_error("gave up all other capabilities")
        check(tool.pid, kept | INSPECT)
        target.send("fire")
        hits_of(tool, target)
        tool.stop()
    defined = Path(tracefs(), "uprobe_events").read_text()
    assert f"usdt_{tool.pid}_" not in defined, "its events are removed at the end"


@pytest.mark.parametrize("probe", ["uprobe:libc:write", "syscall:write"])
def test_a_command_of_another_user_is_ended(probe: str) -> None:
    command = "sh -c 'echo >/dev/null; exec sleep 1000'"
    words = ("trace", "--json", "--drop", "-v", "--user", "nobody", "-c", command, probe)
    with Tool(*words) as tool:
        tool.wait_error("kept for ending the command: CAP_KILL")
        tool.wait_error("gave up all other capabilities")
        check(tool.pid, (on_all() if probe.startswith("uprobe") else on_maps()) | {"CAP_KILL"})
        child = tool.wait_events(1)[0]["pid"]
        assert Path(f"/proc/{child}").stat().st_uid == as_user.NOBODY
        tool.process.send_signal(signal.SIGINT)
        tool.wait_end()
        assert not Path(f"/proc/{child}").exists()


@pytest.fixture
def classes() -> Iterator[Path]:
    """A compiled Java program that other users can read, which they cannot below tmp_path."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield compiled(Path(folder), "Stops")


def test_a_virtual_machine_of_another_user_names_its_methods(classes: Path) -> None:
    options = ("-XX:+PreserveFramePointer", "-XX:CompileCommand=dontinline,Stops*::*")
    machine = (*as_user.words(), need_program("java"), *options, "-cp", classes, "Stops")
    with Dialogue(*machine) as running:
        running.hear("ready")
        probe = "hotspot:thread__sleep__begin"
        words = ("trace", "--json", "--drop", "-v", "--jit-map", "--ustack", "-p", running.pid)
        with Tool(*words, probe) as tool:
            tool.wait_error("kept for --jit-map: CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_KILL")
            tool.wait_error("gave up all other capabilities")
            check(tool.pid, on_all() | {"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_KILL"})
            running.say("7")
            running.hear("stopped")
            stack = tool.wait_events(1)[0]["args"]["ustack"]
            running.say("")
            tool.stop()
    assert any("Stops$Deep.go" in frame.get("symbol", "") for frame in stack), stack


# ---------------------------------------------------------------- the unit of systemd


def unit(key: str) -> str:
    """The value of a setting of the unit."""
    (value,) = (
        line.partition("=")[2] for line in UNIT.read_text().splitlines() if line.startswith(key)
    )
    return value


def test_the_capabilities_of_the_unit_are_enough(target: Fixture) -> None:
    names = unit("AmbientCapabilities").split()
    assert unit("CapabilityBoundingSet").split() == names
    before = as_user.words(*names, *(() if have_uprobe_multi() else ADMIN))
    done = subprocess.run([*before, USDT, "--version"], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"needs a Python that other users can run, which {sys.executable} is not")
    words = ("trace", "--json", "--drop", "--ustack", "-a", "args:*")
    with Tool(*words, before=before) as tool:
        tool.wait_tracing()
        target.send("fire")
        event = hits_of(tool, target)[0]
    symbols = [frame.get("symbol") for frame in event["args"]["ustack"]]
    assert "main" in symbols, symbols


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    analyze = need_program("systemd-analyze", "systemd")
    copy = Path(shutil.copy(UNIT, tmp_path))
    copy.write_text(UNIT.read_text().replace("/usr/bin/usdt", USDT))
    instance = tmp_path / "usdt-trace@test.service"
    copy.rename(tmp_path / UNIT.name)
    instance.symlink_to(UNIT.name)
    done = subprocess.run(
        [analyze, "verify", "--man=no", str(instance)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
