"""Pictures of live commands, of recordings and of JSON streams."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fork_server import run
from java_programs import compiled, java
from profile_formats import pprof_samples, speedscope_file
from services import Dialogue
from skips import requires_root
from tracing_tools import usdt

pytestmark = requires_root

_PROBE = "uprobe:libc:malloc"


def _usdt(*words: object, code: int = 0, program: str = "usdt") -> str:
    command = str(Path(sys.executable).with_name(program))
    done = run([command, *map(str, words)], timeout=120)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream of counts by stack."""
    path = tmp_path_factory.mktemp("stream") / "ls.json"
    _usdt("count", "-c", "ls /", "--json", "-o", path, "--by", "comm,ustack", _PROBE)
    return path


def test_counts_by_stack_become_all_pictures(tmp_path: Path) -> None:
    page, scope, profile = (tmp_path / name for name in ("a.html", "a.json", "a.pb.gz"))
    words = ("--flame", page, "--speedscope", scope, "--pprof", profile)
    _usdt("count", "-c", "ls /", *words, _PROBE)
    assert '"malloc"' in page.read_text()
    made = speedscope_file(scope.read_text())
    assert {"ls", "malloc"} <= {frame["name"] for frame in made["shared"]["frames"]}
    samples = pprof_samples(profile.read_bytes())
    assert {sample.frames[0][0] for sample in samples} == {"malloc"}
    assert made["profiles"][0]["endValue"] == sum(sample.values[0] for sample in samples)


def test_spans_weigh_their_duration(tmp_path: Path) -> None:
    scope = tmp_path / "a.json"
    _usdt("spans", "-c", "ls /", "--ustack", "--speedscope", scope, _PROBE)
    hits, duration = speedscope_file(scope.read_text())["profiles"]
    assert (hits["name"], duration["name"]) == ("hits", "duration")
    assert duration["unit"] == "nanoseconds"
    assert duration["endValue"] > hits["endValue"] > 0


# It waits until it is traced: the stacks of hits before have no Python functions.
_WRITES = """
import os; print("ready", flush=True); input()
def sell():
    os.getppid()
def serve():
    for _ in range(50):
        sell()
serve()
"""


def test_functions_of_python_have_their_files_and_lines(tmp_path: Path) -> None:
    program, page, profile = (tmp_path / name for name in ("shop.py", "a.html", "a.pb.gz"))
    program.write_text(_WRITES)
    words = ("--pystack", "--flame", page, "--pprof", profile, "syscall:getppid")
    with Dialogue(sys.executable, program) as shop:
        shop.hear("ready")
        with usdt("count", "-p", shop.pid, *words) as tool:
            tool.wait_tracing()
            shop.say("go")
            tool.finish()
    (sample,) = pprof_samples(profile.read_bytes())
    lines = [(name, line) for name, file, line in sample.frames if file == str(program)]
    assert lines == [("sell", 4), ("serve", 7), ("<module>", 8)]
    assert sample.values == (50,)
    assert '"sell (shop.py:4)"' in page.read_text()


def test_compiled_methods_of_java_have_their_names(tmp_path: Path) -> None:
    profile = tmp_path / "a.pb.gz"
    options = ("-XX:+PreserveFramePointer", "-XX:CompileCommand=dontinline,Stops*::*")
    words = ("--jit-map", "--pprof", profile, "-n", 1, "hotspot:thread__sleep__begin")
    with (
        java(compiled(tmp_path, "Stops"), "Stops", *options, "-XX:CompileCommand=quiet") as running,
        usdt("count", "-p", running.pid, *words) as tool,
    ):
        tool.wait_tracing()
        running.say("4")
        running.hear("stopped")
        tool.finish()
    samples = [one for one in pprof_samples(profile.read_bytes()) if "Stops" in str(one.frames)]
    assert len(samples) == 1
    named = zip(samples[0].frames, samples[0].modules, strict=True)
    methods = [name for (name, _, _), (file, _) in named if file == f"perf-{running.pid}.map"]
    assert sum("Stops.choose" in name for name in methods) >= 2


def test_time_off_the_processor_is_what_a_stack_weighs(tmp_path: Path) -> None:
    scope = tmp_path / "a.json"
    switch = "tracepoint:sched:sched_switch"
    pairs = ("--key", "prev_pid", "--end-key", "next_pid", "--at-start", "--by", "comm,kstack")
    name = f"nap-{os.getpid()}"
    naps = f"""import time
open("/proc/self/comm", "w").write("{name}")
while True: time.sleep(0.01)"""
    with subprocess.Popen([sys.executable, "-c", naps]) as sleeper:
        try:
            probes = (f'{switch}(prev_comm == "{name}")', f'{switch}(next_comm == "{name}")')
            _usdt("latency", *probes, *pairs, "-n", 5, "--speedscope", scope, program="kprobe")
        finally:
            sleeper.kill()
    made = speedscope_file(scope.read_text())
    hits, duration = made["profiles"]
    names = [frame["name"] for frame in made["shared"]["frames"]]
    asleep = [
        weight
        for stack, weight in zip(duration["samples"], duration["weights"], strict=True)
        if any("nanosleep" in names[index] for index in stack)
    ]
    assert hits["endValue"] >= 5
    assert sum(asleep) >= 10_000_000


def test_a_recording_is_drawn(tmp_path: Path) -> None:
    recording, drawn = tmp_path / "ls.usdt", tmp_path / "ls.svg"
    _usdt("record", "-c", "ls /", "--ustack", "-n", 20, "-o", recording, _PROBE)
    _usdt("flame", recording, "-o", drawn)
    text = drawn.read_text()
    assert "hits: 20 (100.00%)" in text
    other = tmp_path / "other.svg"
    _usdt("report", recording, "--flame", other, "uprobe:*:malloc")
    assert other.read_text() == text


def test_merged_streams_are_drawn_and_compared(stream: Path, tmp_path: Path) -> None:
    one, twice, change = (tmp_path / name for name in ("1.svg", "2.svg", "change.svg"))
    _usdt("flame", stream, "-o", one)
    _usdt("merge", stream, stream, "--flame", twice)
    assert one.read_text().count("<g data-x") == twice.read_text().count("<g data-x") > 3
    _usdt("flame", stream, stream, "-o", change)
    assert "+0.00% of all" in change.read_text()


def test_what_cannot_be_drawn_is_one_line(stream: Path, tmp_path: Path) -> None:
    before = stream.read_bytes()
    copy = tmp_path / "copy.svg"
    copy.write_bytes(before)
    assert "would overwrite" in _usdt("flame", copy, "-o", copy, code=1)
    assert copy.read_bytes() == before
    empty = tmp_path / "empty.svg"
    bare = tmp_path / "bare.json"
    bare.write_text('{"time": 1, "pid": 1, "probe": "a:b", "comm": "x", "args": {}}\n')
    assert "no stacks" in _usdt("flame", bare, "-o", empty, code=1)
    assert not empty.exists()
    assert "must end in .svg or .html" in _usdt("flame", bare, "-o", tmp_path / "x.png", code=2)
    assert "exclude" in _usdt("count", "-p", 1, "--flame", "x.svg", "--json", "a:b", code=2)
