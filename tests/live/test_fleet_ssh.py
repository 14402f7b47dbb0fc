"""``usdt fleet`` with six real sshd: the user's own ssh, exact sums, deaths, and ^C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fleets import EVERY, HITS, asked, far_processes, hits_program, tracing_processes
from ssh_machines import SshMachines
from tracing_tools import USDT, until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.root

PROBE = "threads:hit"


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshMachines]:
    with SshMachines(tmp_path_factory.mktemp("ssh")) as made:
        yield made


def fleet(machines: SshMachines, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [USDT, "fleet", "--nodes", machines.few, "--json", "--", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=machines.environment,
    )


def test_six_machines_receive_the_toolkit_once_and_are_added(machines: SshMachines) -> None:
    words = ("--json", "--", "count", "-c", hits_program(), PROBE)
    for nodes, number, copies in ((machines.nodes, 6, 6), (machines.few, 4, 0)):
        found = asked("--nodes", nodes, *words, via="ssh", environment=machines.environment)
        assert found.objects[0]["count"] == number * HITS
        assert (found.status, found.fleet["answered"], found.fleet["lost"]) == (0, number, 0)
        assert found.messages[-2].endswith(f" sent to {copies}")
    kept = [*machines.folder.glob("[0-9]*/usdt-fleet/usdt-*.pyz")]
    assert len(kept) == 6


def test_an_interrupt_ends_all_far_ends(machines: SshMachines) -> None:
    mark = f"2{os.getpid():07}6.125"
    with fleet(machines, "kprobe", "count", "syscall:getpid", "-d", mark) as child:
        until(lambda: tracing_processes(mark) == 4, "all machines to trace", every=EVERY)
        child.send_signal(signal.SIGINT)
        until(lambda: not far_processes(mark), "all far ends to end", every=EVERY)
        output, _ = child.communicate(timeout=100)
    assert json.loads(output.splitlines()[-1])["fleet"]["answered"] == 4


def test_a_machine_that_dies_keeps_what_it_had_sent(machines: SshMachines) -> None:
    mark = f"2{os.getpid():07}7.125"
    with fleet(machines, "kprobe", "trace", "syscall:getppid", "-d", mark) as child:
        until(lambda: tracing_processes(mark) == 4, "all machines to trace", every=EVERY)
        for _ in range(20):
            os.getppid()
        assert child.stdout is not None
        seen = [json.loads(child.stdout.readline()) for _ in range(4)]
        victim = far_processes(mark)[0]
        os.kill(session_server(victim), signal.SIGKILL)
        until(lambda: len(far_processes(mark)) == 3, "the far end to end", every=EVERY)
        child.send_signal(signal.SIGINT)
        rest = child.stdout.read()
    lines = [*seen, *map(json.loads, rest.splitlines())]
    closing = lines[-1]["fleet"]
    # Those that have not ended 2 s after ^C are late: on a busy machine.
    ended = closing["answered"] + closing["late"]
    assert (ended, closing["failed"], child.returncode) == (3, 1, 1)
    (reason,) = [one for one in closing["reasons"] if one["state"] == "failed"]
    dead = reason["nodes"]
    assert [one for one in lines if one.get("host") == dead]


# It takes the time of --silence, twice: first here, then at the far end, or the other way round.
def test_a_machine_whose_link_is_cut_is_lost_and_ends_itself(machines: SshMachines) -> None:
    if not machines.apart:
        pytest.skip("needs network namespaces (CLONE_NEWNET) to cut a link")
    mark = f"2{os.getpid():07}8.125"
    words = ("--update", "0.5", "--silence", "5", "--json", "--")
    with subprocess.Popen(
        [USDT, "fleet", "--nodes", ",".join(machines.addresses[-2:]), *words,
         "kprobe", "count", "syscall:getppid", "-d", mark],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=machines.environment,
    ) as child:  # fmt: skip
        until(lambda: tracing_processes(mark) == 2, "both machines to trace", every=EVERY)
        for _ in range(50):
            os.getppid()
        for pid in far_processes(mark):
            for _ in range(4):  # results every half second: the first may be of the time before
                known = written(pid)
                until(lambda pid=pid, n=known: written(pid) > n, "results", every=0.1)
        machines.cut(machines.addresses[-1])
        until(lambda: len(far_processes(mark)) == 1, "the far end to end", every=EVERY)
        assert tracing_processes(mark) == 1
        until(lambda: connections(child.pid) == 1, "this end to give it up", every=EVERY)
        child.send_signal(signal.SIGINT)
        output, _ = child.communicate(timeout=100)
    lines = [json.loads(line) for line in output.splitlines()]
    closing = lines[-1]["fleet"]
    assert (closing["answered"], closing["failed"]) == (1, 1)
    assert closing["reasons"][0]["nodes"] == machines.addresses[-1]
    assert closing["reasons"][0]["reason"] == ("the connection was lost: nothing was heard for 5 s")
    assert lines[1]["count"] >= 2 * 50  # both machines are this one: each has seen all


def written(pid: int) -> int:
    """The bytes that a process has written."""
    text = Path(f"/proc/{pid}/io").read_text()
    return int(text.split("wchar:")[1].split()[0])


def connections(pid: int) -> int:
    """The number of ssh that a process has started."""
    return len(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


def session_server(pid: int) -> int:
    """The sshd that serves the connection of a far end's process."""
    while (name := (status := process(pid))[0]) != "sshd":
        assert pid > 1, name
        pid = int(status[1])
    return pid


def process(pid: int) -> tuple[str, str]:
    text = Path(f"/proc/{pid}/stat").read_text()
    name, rest = text[text.index("(") + 1 :].rsplit(")", 1)
    return name, rest.split()[1]


def test_clush_is_a_transport_too(machines: SshMachines) -> None:
    path = f"{Path(USDT).parent}:{machines.environment['PATH']}"
    found = asked(
        *("--nodes", machines.few, "--json", "--", "count", "-c", hits_program(), PROBE),
        via="clush",
        environment={**machines.environment, "PATH": path},
    )
    assert found.fleet["reasons"] == []
    assert (found.status, found.objects[0]["count"]) == (0, 4 * HITS)


def test_machines_that_are_down_are_grouped(machines: SshMachines) -> None:
    down = machines.addresses[2:4]
    for address in down:
        machines.stop(address)
    found = asked(
        *("--nodes", machines.few, "--json", "--", "count", "-c", hits_program(), PROBE),
        via="ssh",
        environment=machines.environment,
    )
    assert (found.status, found.objects[0]["count"]) == (1, 2 * HITS)
    (reason,) = found.fleet["reasons"]
    assert (reason["state"], reason["count"]) == ("failed", 2)
    assert reason["reason"] == "ssh: connect to host NODE port 2222: Connection refused"
