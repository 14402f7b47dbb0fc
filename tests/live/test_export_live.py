"""``usdt export``: metrics of running programs, read as Prometheus reads them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
import urllib.error
from pathlib import Path

import pytest
from cgroups import cgroup, enter
from exporting import OPEN, exporting
from fixtures import build, start
from tracing_tools import until

import usdt


def metric(name: str, kind: str, probe: str, *more: str) -> str:
    """A metric's table."""
    lines = [f'name = "{name}"', 'help = "h"', f'type = "{kind}"', f'probe = "{probe}"', *more]
    return "\n".join(["[[metric]]", *lines, ""])


@pytest.fixture
def threads(tmp_path: Path) -> Path:
    """A copy of the program whose eight threads pass hit(index, round, tid) a hundred times."""
    return Path(shutil.copy(build("default", "threads"), tmp_path / "threads"))


def test_counts_and_histograms_of_a_file(threads: Path, tmp_path: Path) -> None:
    probe = f"{threads}:threads:hit"
    text = (
        metric("hits", "counter", probe, 'by = {thread = "arg0"}')
        + metric("rounds", "counter", f"{probe}(arg1)")
        + metric("round_number", "histogram", f"{probe}(arg1)", "range = [0, 128]")
        + metric("some_rounds", "histogram", f"{probe}(arg1)", "buckets = [3, 9.5, 70]")
    )
    some_bounds = ("3", "9.5", "70", "+Inf")
    with exporting(tmp_path / "c.toml", text) as exporter:
        with start(threads, "-w", "-t", 8, "-n", 100) as program:
            program.fire()
        for accept in (OPEN, "text/plain;version=0.0.4"):
            found = exporter.samples(accept)
            for index in range(8):
                assert found["hits_total", frozenset({("thread", str(index))})] == 100
            assert found["rounds_total", frozenset()] == 8 * sum(range(100))
            buckets = {
                dict(labels)["le"]: value
                for (name, labels), value in found.items()
                if name == "round_number_bucket"
            }
            edges = [0, 1, 2, 4, 8, 16, 32, 64, 128]
            assert {float(le): count for le, count in buckets.items()} == {
                **{float(edge): 8.0 * min(100, edge + 1) for edge in edges},
                float("inf"): 800.0,
            }
            assert found["round_number_sum", frozenset()] == 8 * sum(range(100))
            assert found["round_number_count", frozenset()] == 800
            some = [found["some_rounds_bucket", frozenset({("le", le)})] for le in some_bounds]
            assert some == [8 * 4, 8 * 10, 8 * 71, 800]
            assert found["usdt_up", frozenset({("metric", "hits"), ("probe", probe)})] == 1


def test_a_duration_is_in_seconds(threads: Path, tmp_path: Path) -> None:
    ends = f"{threads}:threads:hit"
    text = metric("round_seconds", "histogram", ends, f'end = "{ends}"')
    with exporting(tmp_path / "c.toml", text) as exporter:
        with start(threads, "-w", "-t", 1, "-n", 100) as program:
            program.fire()
        assert exporter.value("round_seconds_count") == 99
        total = exporter.value("round_seconds_sum")
        assert total is not None
        assert 0 < total < 20
        assert exporter.value("round_seconds_bucket", le="9.5367431640625e-07") is not None
        assert "# UNIT round_seconds seconds" in exporter.get()[1]


def test_labels_beyond_the_limit_are_one(threads: Path, tmp_path: Path) -> None:
    probe = f"{threads}:threads:hit"
    text = metric("hits", "counter", probe, 'by = {round = "arg1"}', "max_series = 10")
    with exporting(tmp_path / "c.toml", text) as exporter:
        with start(threads, "-w", "-t", 8, "-n", 100) as program:
            program.fire()
        found = {
            dict(labels)["round"]: v
            for (n, labels), v in exporter.samples().items()
            if n == "hits_total"
        }
        assert len(found) == 11
        assert sum(found.values()) == 800
        assert found["other"] == 720
        assert exporter.value("usdt_label_overflow_total", metric="hits") == 720


def test_programs_by_name_start_and_end(threads: Path, tmp_path: Path) -> None:
    name = f"t{os.getpid()}"
    threads = threads.rename(tmp_path / name)
    text = metric("hits", "counter", "threads:hit", f'program = "{name}"')
    up = {"metric": "hits", "probe": "threads:hit"}
    with exporting(tmp_path / "c.toml", text) as exporter:
        exporter.tool.wait_error("not attached, tried again later")
        assert exporter.value("usdt_up", **up) == 0
        for expected in (800, 1600):
            with start(threads, "-w", "-t", 8, "-n", 100) as program:
                program.wait_ready()
                exporter.wait(1, "usdt_up", **up)
                program.fire()
                assert exporter.value("hits_total") == expected
            exporter.wait(0, "usdt_up", **up)
            assert exporter.value("hits_total") == expected


def test_an_updated_program_is_found(threads: Path, tmp_path: Path) -> None:
    text = metric("hits", "counter", f"{threads}:threads:hit")
    with exporting(tmp_path / "c.toml", text) as exporter:
        with start(threads, "-w", "-t", 8, "-n", 100) as old:
            old.wait_ready()
            shutil.copy(build("default", "threads"), tmp_path / "new")
            (tmp_path / "new").rename(threads)
            with start(threads, "-w", "-t", 8, "-n", 100) as new:
                new.wait_ready()
                exporter.tool.wait_error("now tracing 2 sites")
                new.fire()
            old.fire()
        assert exporter.value("hits_total") == 1600


def test_a_reload_keeps_what_has_not_changed(threads: Path, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    same = metric("hits", "counter", f"{threads}:threads:hit")
    gone = metric("mains", "counter", f"{threads}:threads:main")
    fresh = metric("more", "counter", f"{threads}:threads:main")
    with (
        exporting(config, same + gone) as exporter,
        start(threads, "-w", "-t", 8, "-n", 100) as one,
    ):
        one.fire()
        assert exporter.value("mains_total") == 100
        config.write_text(same + fresh)
        exporter.tool.process.send_signal(signal.SIGHUP)
        exporter.tool.wait_error("read again")
        assert exporter.value("hits_total") == 800
        one.fire()
        assert exporter.value("hits_total") == 1600
        assert exporter.value("more_total") == 100
        assert exporter.value("mains_total") is None
        config.write_text("[[metric]]\n")
        exporter.tool.process.send_signal(signal.SIGHUP)
        exporter.tool.wait_error("the metrics stay as they are")
        assert exporter.value("hits_total") == 1600


def test_the_exporter_says_what_it_costs(threads: Path, tmp_path: Path) -> None:
    text = metric("h", "counter", f"{threads}:threads:hit")
    with exporting(tmp_path / "c.toml", text) as one:
        for accept in (OPEN, "text/plain;version=0.0.4"):
            found = one.samples(accept)
            assert found["usdt_build_info", frozenset({("version", usdt.__version__)})] == 1
            own = {name: v for (name, _), v in found.items() if name.startswith("process_")}
            files = len([*Path(f"/proc/{one.tool.pid}/fd").iterdir()])
            assert 0 < own["process_cpu_seconds_total"] < 100
            assert 5 << 20 < own["process_resident_memory_bytes"] < 200 << 20
            assert abs(own["process_open_fds"] - files) < 8
            assert 0 <= time.time() - own["process_start_time_seconds"] < 300


def test_only_two_paths_are_served(threads: Path, tmp_path: Path) -> None:
    with exporting(tmp_path / "c.toml", metric("h", "counter", f"{threads}:threads:hit")) as one:
        assert one.get(path="/-/healthy")[1] == "ok\n"
        with pytest.raises(urllib.error.HTTPError) as caught:
            one.get(path="/etc/passwd")
        assert caught.value.code == 404
        caught.value.close()


def test_a_metric_that_cannot_be_attached_leaves_the_others(threads: Path, tmp_path: Path) -> None:
    text = (
        metric("hits", "counter", f"{threads}:threads:hit")
        + metric("none", "counter", f"{threads}:threads:none")
        + metric("calls", "counter", "syscall:getppid")
    )
    with exporting(tmp_path / "c.toml", text) as exporter:
        assert "none: not attached, tried again later: " in exporter.tool.wait_error("none: ")
        with start(threads, "-w", "-t", 8, "-n", 100) as program:
            program.fire()
        os.getppid()
        found = exporter.samples()
        ups = {dict(labels)["metric"]: v for (n, labels), v in found.items() if n == "usdt_up"}
        assert ups == {"hits": 1, "none": 0, "calls": 1}
        assert found["hits_total", frozenset()] == 800
        assert found["none_total", frozenset()] == 0
        assert found["calls_total", frozenset()] >= 1


def sessions(pid: int) -> int:
    """How many sessions a process has: each waits by one epoll(7)."""
    found = 0
    for one in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile: an answer's connection
            found += str(one.readlink()) == "anon_inode:[eventpoll]"
    return found


def test_what_can_be_attached_is_one_session(threads: Path, tmp_path: Path) -> None:
    probes = [f"{threads}:threads:{('hit', 'main')[number % 2]}" for number in range(12)]
    for number in (2, 3, 9):
        probes[number] = f"{threads}:threads:none{number}"
    text = "".join(metric(f"m{number}", "counter", one) for number, one in enumerate(probes))
    with exporting(tmp_path / "c.toml", text) as exporter:
        found = exporter.samples()
        ups = {dict(labels)["metric"]: v for (n, labels), v in found.items() if n == "usdt_up"}
        assert [number for number in range(12) if not ups[f"m{number}"]] == [2, 3, 9]
        assert sessions(exporter.tool.pid) == 1
        with start(threads, "-w", "-t", 8, "-n", 100) as program:
            program.fire()
        assert exporter.value("usdt_sites", metric="m0", probe=probes[0]) == 1
        assert exporter.value("m0_total") == exporter.value("m10_total") == 800
        assert exporter.value("m1_total") == exporter.value("m11_total") == 100


def test_a_program_that_does_not_run_is_one_message(threads: Path, tmp_path: Path) -> None:
    name = f"t{os.getpid()}x"
    threads = threads.rename(tmp_path / name)
    text = "".join(
        metric(f"m{number}", "counter", f"threads:{probe}", f'program = "{name}"')
        for number, probe in enumerate(("hit", "main"))
    )
    with exporting(tmp_path / "c.toml", text) as exporter:
        said = exporter.tool.wait_error(f"{name}: no process of this name")
        assert said.startswith("m0, m1: not attached")
        with start(threads, "-w", "-t", 8, "-n", 100) as program:
            program.wait_ready()
            exporter.wait(1, "usdt_up", metric="m1", probe="threads:main")
            program.fire()
            assert exporter.value("m0_total") == 800
            assert exporter.value("usdt_processes", metric="m0") == 1
            assert sessions(exporter.tool.pid) == 1
        assert sum("not attached" in line for line in exporter.tool.errors) == 1


def test_several_probes_have_a_label(threads: Path, tmp_path: Path) -> None:
    text = metric("hits", "counter", f"{threads}:threads:*")
    with exporting(tmp_path / "c.toml", text) as exporter:
        with start(threads, "-w", "-t", 8, "-n", 100) as program:
            program.fire()
        assert exporter.value("hits_total", probe="threads:hit") == 800
        assert exporter.value("hits_total", probe="threads:main") == 100


def test_text_of_a_traced_process_is_a_label(tmp_path: Path) -> None:
    strings = shutil.copy(build("default", "strings"), tmp_path / "strings")
    text = metric("calls", "counter", f"{strings}:strings:two", 'by = { first = "str(arg0)" }')
    with exporting(tmp_path / "c.toml", text) as exporter:
        with start(strings, "-w", "-n", 3) as program:
            program.fire()
            hits = [hit for hit in program.finish() if hit["probe"] == "strings:two"]
        found = [v for (name, _), v in exporter.samples().items() if name == "calls_total"]
        lost = [v for (name, _), v in exporter.samples().items() if name == "usdt_lost_total"]
        assert sum(found) + sum(lost) == len(hits) > 0


def test_a_cgroup_is_a_target(threads: Path, tmp_path: Path) -> None:
    with (
        start(threads, "-w", "-t", 8, "-n", 100) as one,
        start(threads, "-w", "-t", 8, "-n", 100) as other,
        cgroup() as place,
    ):
        one.wait_ready()
        other.wait_ready()
        enter(place, one.pid)
        text = metric("hits", "counter", "threads:hit", f'cgroup = "{place}"')
        with exporting(tmp_path / "c.toml", text) as exporter:
            exporter.wait(1, "usdt_up", metric="hits", probe="threads:hit")
            one.fire()
            other.fire()
            assert exporter.value("hits_total") == 800


def test_a_program_that_starts_later_is_found_among_all(threads: Path, tmp_path: Path) -> None:
    text = metric("hits", "counter", "threads:hit", "all = true", 'by = { pid = "pid" }')
    with (
        exporting(tmp_path / "c.toml", text) as exporter,
        start(threads, "-w", "-t", 8, "-n", 100) as program,
    ):
        program.wait_ready()

        def counted() -> float | None:  # other tests may run such a program, too
            program.fire()
            return exporter.value("hits_total", pid=str(program.pid))

        found = until(counted, "its hits", every=0.2)
        assert found % 100 == 0
