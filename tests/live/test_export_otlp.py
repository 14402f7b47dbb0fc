"""``usdt export`` with a stand-in for a collector of OpenTelemetry."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

from collector import collecting, metrics_of, spans_of
from exporting import exporting, metric
from fixtures import build, start

if TYPE_CHECKING:
    from pathlib import Path


def test_histograms_are_exponential(tmp_path: Path) -> None:
    threads = shutil.copy(build("default", "threads"), tmp_path / "threads")
    probe = f"{threads}:threads:hit"
    with collecting() as server:
        config = (
            f'[otlp]\nendpoint = "{server.url}"\ninterval = 3600\n'
            + metric("hits", "counter", probe, by='{ thread = "arg0" }')
            + metric("round_number", "histogram", f"{probe}(arg1)")
            + metric("pause_seconds", "histogram", probe, end=f'"{probe}"')
        )
        with (
            exporting(tmp_path / "c.toml", config),
            start(threads, "-w", "-t", 8, "-n", 100) as program,
        ):
            program.fire()
            hits = [hit for hit in program.finish() if hit["probe"] == "threads:hit"]
    found = metrics_of(server.taken[-1][1])
    assert {
        one.attributes[0].value.string_value: one.as_int for one in found["hits"].sum.data_points
    } == {str(n): len(hits) // 8 for n in range(8)}
    rounds = [hit["args"][1] for hit in hits]
    (point,) = found["round_number"].exponential_histogram.data_points
    assert (point.count, point.sum, point.scale) == (len(rounds), sum(rounds), 0)
    assert point.zero_count == rounds.count(0)
    counts = [sum(2**k < one <= 2 ** (k + 1) for one in rounds) for k in range(-1, 7)]
    assert point.positive.offset == -1
    assert list(point.positive.bucket_counts) == counts
    pauses = found["pause_seconds"]
    assert pauses.unit == "s"
    (point,) = pauses.exponential_histogram.data_points
    assert point.count == len(hits) - 8 == sum(point.positive.bucket_counts)


def test_calls_are_traces(tmp_path: Path) -> None:
    threads = shutil.copy(build("default", "threads"), tmp_path / "threads")
    with collecting() as server:
        config = f"""
[otlp]
endpoint = "{server.url}"
interval = 3600

[[span]]
name = "rounds"
probe = "uprobe:{threads}:fire(arg0)"
"""
        with exporting(tmp_path / "c.toml", config), start(threads, "-w", "-n", 100) as program:
            began = time.time_ns()
            program.fire()
            ended = time.time_ns()
    sent = [span for path, body in server.taken if path == "/v1/traces" for span in spans_of(body)]
    assert sorted(span.attributes[4].value.int_value for span in sent) == [*range(100)]
    assert {span.name for span in sent} == {"uprobe:threads:fire"}
    assert all(len(span.trace_id) == 16 and len(span.span_id) == 8 for span in sent)
    apart = 10**7  # between two readings of clocks
    assert all(
        began - apart < span.start_time_unix_nano < span.end_time_unix_nano < ended + apart
        for span in sent
    )
