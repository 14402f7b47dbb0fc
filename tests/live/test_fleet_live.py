"""``usdt fleet`` with machines that are shells here: real tracing, exact sums, honest absence."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fleets import (
    EVERY,
    HITS,
    SHELL,
    asked,
    far_processes,
    hits_program,
    own_python,
    run_once,
    tracing_processes,
)
from processes import running
from tracing_tools import USDT, until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.root

PROBE = "threads:hit"


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache of the tests' own: copies of the toolkit stay until they are removed."""
    with pytest.MonkeyPatch.context() as patch:
        cache = tmp_path_factory.mktemp("cache")
        patch.setenv("XDG_CACHE_HOME", str(cache))
        patch.setenv("PATH", own_python())
        # Each of the first machines would compile it, at the same time.
        run_once(cache, ("count", "-c", hits_program(), PROBE))
        yield


def test_counts_of_all_machines_are_added() -> None:
    found = asked("--nodes", "n[1-4]", "--json", "--", "count", "-c", hits_program(), PROBE)
    assert found.status == 0
    assert [(one["probe"], one["count"]) for one in found.objects[:-1]] == [(PROBE, 4 * HITS)]
    assert found.fleet["answered"] == found.fleet["asked"] == 4
    assert (found.fleet["failed"], found.fleet["lost"]) == (0, 0)


def test_machines_can_be_kept_apart() -> None:
    found = asked(
        *("--nodes", "n[1-3]", "--by", "host", "--json", "--"),
        *("count", "-c", hits_program(), PROBE, "--by", "arg0"),
    )
    keys = [(one["key"]["host"], one["key"]["arg0"], one["count"]) for one in found.objects[:-1]]
    assert sorted(keys) == [(f"n{n}", arg, HITS // 2) for n in (1, 2, 3) for arg in (0, 1)]


def test_the_table_is_that_of_one_machine() -> None:
    found = asked("--nodes", "n[1-2]", "--", "count", "-c", hits_program(), PROBE)
    assert found.text == f"   COUNT  PROBE\n     {2 * HITS}  {PROBE}\n"
    assert re.fullmatch(r"toolkit [0-9a-f]{12} \([0-9.]+ MB\) sent to [0-9]", found.messages[-2])
    assert found.messages[-1] == "2 asked, 2 answered, 0 failed"


def test_the_largest_groups_are_those_of_all_machines() -> None:
    words = ("count", "-c", hits_program(), f"{PROBE}", "--by", "arg1", "--top", "3")
    found = asked("--nodes", "n[1-2]", "--json", "--", *words)
    assert [one["count"] for one in found.objects[:-2]] == [4, 4, 4]
    assert found.objects[-2] == {"left_out": {"keys": 97, "count": 4 * 97, "largest": 4}}


def test_results_come_while_machines_run(mark: str) -> None:
    fired = "while true; do /bin/true; sleep 0.05; done"
    with running("sh", "-c", fired), started(mark, 2, "--update", "0.2") as child:
        until(lambda: tracing_processes(mark) == 2, "programs to be attached", every=EVERY)
        for pid in far_processes(mark):  # both die: what they have sent remains
            for _ in range(6):  # the header, then results every 0.2 s
                known = written(pid)
                until(lambda pid=pid, n=known: written(pid) > n, "results", every=0.3)
            os.kill(pid, signal.SIGKILL)
        output, _ = child.communicate(timeout=100)
    lines = [json.loads(line) for line in output.splitlines()]
    assert (child.returncode, lines[-1]["fleet"]["failed"]) == (1, 2)
    assert lines[1]["count"] > 0  # behind the header
    assert lines[-1]["fleet"]["reasons"][0]["reason"] == "the command exited with status 137"


def written(pid: int) -> int:
    """The bytes that a process has written."""
    text = Path(f"/proc/{pid}/io").read_text()
    return int(text.split("wchar:")[1].split()[0])


def test_statistics_and_histograms_are_added() -> None:
    words = ("-c", hits_program(), f"{PROBE}(arg1)")
    found = asked("--nodes", "n[1-3]", "--json", "--", "hist", *words)
    (one,) = found.objects[:-1]
    per_thread = range(HITS // 2)
    assert (one["count"], one["sum"]) == (3 * HITS, 3 * 2 * sum(per_thread))
    assert (one["min"], one["max"]) == (0, HITS // 2 - 1)
    assert sum(bucket["count"] for bucket in one["buckets"]) == 3 * HITS


def test_events_carry_the_machine() -> None:
    words = ("-c", hits_program(), f"{PROBE}(arg0, arg1)", "-n", "5")
    found = asked("--nodes", "n[1-2]", "--json", "--", "trace", *words)
    hosts = [one["host"] for one in found.objects[:-1]]
    assert sorted(hosts) == ["n1"] * 5 + ["n2"] * 5
    text = asked("--nodes", "n1", "--", "trace", *words).text
    line = rf"\d\d:\d\d:\d\d\.\d{{6}}  n1 +\d +\d+(/\d+)? +threads +{PROBE} +arg0=[01]  arg1=0\n"
    assert re.match(line, text), text


def test_the_same_answers_are_shown_once() -> None:
    program = hits_program().split()[0]
    rule = "---------------\n"
    found = asked("--nodes", "n[1-3]", "--", "check", program)
    assert (found.status, found.text) == (
        0,
        f"{rule}n[1-3] (3)\n{rule}{program}: 2 probes, all would attach and decode\n",
    )
    (answer, _) = asked("--nodes", "n[1-2]", "--json", "--", "list", program).objects
    assert (answer["nodes"], answer["count"]) == ("n[1-2]", 2)
    assert [one["name"] for one in answer["answer"]] == ["hit", "main"]


def test_rows_of_heatmaps_are_those_of_all_machines() -> None:
    words = ("heatmap", "-c", hits_program(), f"{PROBE}(arg1)", "-i", "60")
    found = asked("--nodes", "n[1-2]", "--json", "--", *words)
    rows = [one for one in found.objects if "buckets" in one]
    assert sum(row["count"] for row in rows) == 2 * HITS
    assert len(rows) <= 2  # one, if a minute has not begun meanwhile


def test_stacks_of_all_machines_are_added() -> None:
    words = ("count", "-c", hits_program(), PROBE, "--folded")
    found = asked("--nodes", "n[1-2]", "--", *words)
    assert found.status == 0
    assert sum(int(line.rsplit(" ", 1)[1]) for line in found.text.splitlines()) == 2 * HITS
    assert ";run " in found.text


def test_columns_to_sort_by_are_those_of_the_sum() -> None:
    words = ("stats", "-c", hits_program(), f"{PROBE}(arg1)", "--by", "arg0", "--sort", "key")
    found = asked("--nodes", "n[1-2]", "--json", "--", *words)
    assert [one["key"]["arg0"] for one in found.objects[:-1]] == [0, 1]


def test_a_failure_is_grouped_and_the_others_count(tmp_path: Path) -> None:
    shell = tmp_path / "shell"
    shell.write_text('#!/bin/sh\ncase $1 in n[34]) echo "ssh: $1: no route" >&2; exit 255 ;; esac\n'
                     'exec sh -c "$2"\n')  # fmt: skip
    shell.chmod(0o755)
    found = asked(
        *("--nodes", "n[1-5]", "--json", "--", "count", "-c", hits_program(), PROBE),
        via=f"{shell} {{node}}",
    )
    assert found.status == 1
    assert found.objects[0]["count"] == 3 * HITS
    assert found.fleet["reasons"] == [
        {"state": "failed", "reason": "ssh: NODE: no route", "nodes": "n[3-4]", "count": 2}
    ]


def test_a_machine_that_does_not_start_is_late() -> None:
    found = asked(
        *("--nodes", "n[1-2]", "--timeout", "0.3", "--json", "--", "count", "-a", PROBE),
        via="sleep 100 {node} {command}",
    )
    assert found.status == 1
    assert found.fleet["failed"] == 2  # sleep(1) refuses the word


def test_a_silent_machine_is_late() -> None:
    found = asked(
        *("--nodes", "n[1-2]", "--timeout", "300ms", "--json", "--", "count", "-a", PROBE),
        via="sh -c 'sleep 100' {node} {command}",
    )
    assert (found.status, found.fleet["late"]) == (1, 2)
    assert found.fleet["reasons"][0]["reason"] == "no answer within 0.3 s"


def test_an_error_of_the_command_is_said_once() -> None:
    found = asked("--nodes", "n[1-3]", "--", "count", "-c", "true", "nothing:here")
    assert found.status == 1
    assert [line for line in found.messages if line.startswith("failed: n[1-3] (3): ")]


_NUMBERS = itertools.count()


@pytest.fixture
def mark() -> str:
    """A duration that the processes of a test alone have on their command lines."""
    return f"1{os.getpid():07}{next(_NUMBERS):03}.125"


def started(mark: str, nodes: int, *options: str) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [USDT, "fleet", "--nodes", f"n[1-{nodes}]", "--via", SHELL, *options, "--json", "--",
         "kprobe", "count", "syscall:execve", "-d", mark],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until(lambda: len(far_processes(mark)) >= nodes, "all far ends to trace", every=EVERY)
    return child


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_every_far_end_and_shows_what_there_is(
    mark: str, number: signal.Signals
) -> None:
    with started(mark, 3) as child:
        until(lambda: tracing_processes(mark) == 3, "programs to be attached", every=EVERY)
        child.send_signal(number)
        until(lambda: not far_processes(mark), "far ends to end", every=EVERY)
        output, _ = child.communicate(timeout=100)
    assert '"answered": 3' in output
    assert child.returncode == 0


def test_the_death_of_this_end_leaves_nothing_attached(mark: str) -> None:
    with started(mark, 3) as child:
        until(lambda: tracing_processes(mark) == 3, "programs to be attached", every=EVERY)
        child.kill()
        until(lambda: not far_processes(mark), "far ends to end", every=EVERY)


def test_copies_are_removed(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    words = ("--nodes", "n1", "--json", "--", "count", "-c", hits_program(), PROBE)
    asked(*words, environment=environment)
    assert len([*(tmp_path / "usdt-fleet").glob("usdt-*.pyz")]) == 1
    found = asked("--nodes", "n1", "--clean", environment=environment)
    assert [path.name for path in tmp_path.iterdir()] == ["usdt-toolkit"]  # of this end
    assert found.messages == ["copies of the toolkit removed: 1", "1 asked, 1 answered, 0 failed"]
