"""Probes under the names that bpftrace gives them, and what is said of names without a kind."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from function_programs import calls, needs_libc
from streams import read_events
from tracing_tools import KPROBE, one_error, run_usdt

pytestmark = pytest.mark.usefixtures("ringbuf")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return calls(tmp_path_factory.mktemp("names"))


def shown(program: Path, probe: str) -> list[dict[str, object]]:
    done = run_usdt("trace", "--json", "-o", f"{program}.json", "-c", f"{program} level", probe)
    assert done.returncode == 0, done.stderr
    events = read_events(Path(f"{program}.json").read_text())
    assert len(events) == 10
    assert {event["event"] for event in events} == {"return"}
    return [event["args"] for event in events]


def test_return_probes_and_retval(program: Path) -> None:
    expected = [{"return": n} for n in range(1, 11)]
    assert shown(program, f"ur:{program}:level") == expected
    assert shown(program, f"uretprobe:{program}:level(retval)") == [
        {"retval": n} for n in range(1, 11)
    ]
    both = shown(program, f"ur:{program}:level(arg0)")
    assert both == [{"arg0": n, "return": n + 1} for n in range(10)]


def test_returns_are_counted(program: Path) -> None:
    probe = f"ur:{program}:level"
    done = run_usdt("count", "--json", "-c", f"{program} level", "--by", "retval", probe)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert {row["key"]["retval"]: row["count"] for row in rows} == dict.fromkeys(range(1, 11), 1)
    done = run_usdt("stats", "--json", "-c", f"{program} level", f"{probe}(arg0)")
    (row,) = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    assert (row["count"], row["min"], row["max"]) == (10, 0, 9)


def test_latency_takes_no_return_alone(program: Path) -> None:
    done = run_usdt("latency", "-c", str(program), f"ur:{program}:level")
    assert done.returncode == 2
    assert f"ur:{program}:level is a return: latency takes START END, or a function" in done.stderr


def test_a_tracepoint_has_no_retval() -> None:
    done = run_usdt("trace", "-a", "-d", "1", "t:sched:sched_switch(retval)")
    assert "it has no return value" in one_error(done, code=2)


@needs_libc
def test_functions_without_their_kind_are_named() -> None:
    hint = "; malloc is a function: uprobe:lib"
    for probe in ("malloc", "libc:malloc"):
        assert one_error(run_usdt("trace", "-c", "/bin/true", probe)).endswith(f"{hint}c:malloc")
        assert hint in one_error(run_usdt("trace", "-a", "-d", "1", probe))
    assert one_error(run_usdt("trace", "libc:malloc")).endswith(f"{hint}c:malloc")


def test_system_calls_without_their_kind_are_named() -> None:
    done = subprocess.run(
        [KPROBE, "trace", "-c", "/bin/true", "openat"], capture_output=True, text=True, check=False
    )
    assert one_error(done).endswith("; there is syscall:openat")
