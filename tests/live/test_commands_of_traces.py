"""The life of a command that a trace starts: it ends with the trace, and runs as --user says."""

from __future__ import annotations

import os
import pwd
import signal
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fixtures import build
from streams import read_events
from tracing_tools import tracing, until

import kprobe
import usdt

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("ringbuf", "cookies")


def _runs(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


@pytest.mark.parametrize("module", [usdt, kprobe], ids=["usdt", "kprobe"])
@pytest.mark.parametrize("how", ["close", "end", "error"])
def test_the_command_of_attach_ends_with_its_events(how: str, module: object) -> None:
    attach: Callable[..., usdt.Events] = module.attach  # type: ignore[attr-defined]
    with attach("syscall:write(count)", command=["sh", "-c", "echo $$; exec sleep 1000"]) as events:
        pid = next(iter(events)).pid
        assert _runs(pid)
        if how == "close":
            events.close()
        elif how == "error":
            with pytest.raises(ZeroDivisionError), closing(events):
                raise ZeroDivisionError
    assert not _runs(pid)


def test_a_command_that_ignores_sigterm_goes_on_and_that_is_said() -> None:
    script = "trap '' TERM; echo >/dev/null; exec sleep 1000 >&- 2>&-"
    with tracing("-c", f'sh -c "{script}"', "syscall:write(pid)") as tool:
        pid = tool.wait_events(1)[0]["pid"]
        tool.stop()
        line = tool.wait_error("has not ended after SIGTERM")
    assert line == f"the command (process {pid}) has not ended after SIGTERM and goes on"
    assert _runs(pid)
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("user", [(), ("--user", "nobody")], ids=["same user", "another user"])
def test_the_command_of_a_killed_tracer_ends(user: tuple[str, ...]) -> None:
    with tracing("-c", "sh -c 'echo >/dev/null; exec sleep 1000'", *user, "syscall:write") as tool:
        pid = tool.wait_events(1)[0]["pid"]
        tool.kill()
    until(lambda: not _runs(pid), "the command to end")


def test_the_command_runs_as_the_user(tmp_path: Path) -> None:
    program = build("default", "args")
    output = tmp_path / "events"
    words = ("-o", output, "--user", "nobody", "args:count3(uid, gid)")
    with tracing("-c", f"{program} -n 1", *words) as tool:
        tool.finish()
    nobody = pwd.getpwnam("nobody")
    (event,) = read_events(output.read_text())
    assert event["args"] == {"uid": nobody.pw_uid, "gid": nobody.pw_gid}


def test_the_command_of_attach_runs_as_the_user() -> None:
    nobody = pwd.getpwnam("nobody")
    command = [str(build("default", "args")), "-n", "1", "-q"]
    with usdt.attach("args:count3(uid)", command=command, user="nobody") as events:
        assert [event.args["uid"] for event in events] == [nobody.pw_uid]
