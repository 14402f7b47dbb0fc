"""Recorded spans, as every format shows them."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any

import pytest
from span_programs import span_program
from tracing_tools import one_error, run_usdt

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("ringbuf")


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spans")
    program = span_program(folder)
    probes = ("span:begin(str(arg0), arg1)", "span:end(arg0, duration / 1000)")
    file = folder / "spans.usdt"
    done = run_usdt("record", "--spans", "-o", file, "-c", f"{program} nest 2 1000000", *probes)
    assert "3 events, 0 lost" in done.stderr
    return file


def report(recording: Path, *words: str) -> str:
    done = run_usdt("report", recording, *words)
    assert "3 events, 0 lost" in done.stderr
    return done.stdout


def spans(recording: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in report(recording, "--json").splitlines()]


def test_json_and_text(recording: Path) -> None:
    found = spans(recording)
    assert [span["args"] for span in found] == [{"str(arg0)": "nest", "arg1": n} for n in range(3)]
    assert all(span["end_args"]["duration/1000"] == span["duration"] // 1000 for span in found)
    lines = report(recording).splitlines()
    assert ['str(arg0)="nest"' in line and "span:begin" in line for line in lines] == [True] * 3


def test_tables_have_columns_for_both_ends(recording: Path) -> None:
    rows = list(csv.DictReader(report(recording, "--csv").splitlines()))
    for row, span in zip(rows, spans(recording), strict=True):
        assert int(row["duration"]) == span["duration"]
        assert (row["arg1"], row["end arg0"]) == (str(span["args"]["arg1"]),) * 2
        assert row["end_probe"] == "span:end"


def test_perfetto_has_slices_with_arguments(recording: Path) -> None:
    found = json.loads(report(recording, "--format", "chrome"))["traceEvents"]
    slices = [event for event in found if event["ph"] == "X"]
    for one, span in zip(slices, spans(recording), strict=True):
        assert (one["tid"], one["name"]) == (span["tid"], "span:begin")
        assert one["args"] == {"start": span["args"], "end": span["end_args"]}
        assert round(one["dur"] * 1000) == span["duration"]


def test_opentelemetry_parses_them(recording: Path) -> None:
    json_format = pytest.importorskip(
        "google.protobuf.json_format", reason="no opentelemetry-proto"
    )
    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

    (line,) = report(recording, "--format", "otlp").splitlines()
    data = json_format.Parse(line, TracesData())
    (resource,) = data.resource_spans
    about = {item.key: item.value for item in resource.resource.attributes}
    assert about["service.name"].string_value == "spans"
    found = {one.name + str(one.attributes[-2].value.int_value): one for one in made(resource)}
    outer, middle, inner = (found[f"span:begin{number}"] for number in (2, 1, 0))
    assert (middle.parent_span_id, inner.parent_span_id) == (outer.span_id, middle.span_id)
    assert len({one.trace_id for one in found.values()}) == 1
    for span in spans(recording):
        one = found[f"span:begin{span['args']['arg1']}"]
        assert one.end_time_unix_nano - one.start_time_unix_nano == span["duration"]
        values = {item.key: item.value for item in one.attributes}
        assert values["start.str(arg0)"].string_value == "nest"


def made(resource: Any) -> list[Any]:
    (scope,) = resource.scope_spans
    assert scope.scope.name == "usdt-toolkit"
    return list(scope.spans)


def test_three_probes_are_no_spans(recording: Path) -> None:
    words = ("-p", "1", "a:b", "a:c", "a:d")
    done = run_usdt("record", "--spans", "-o", recording.parent / "x", *words)
    assert "--spans takes START [END], not 3 probes" in one_error(done, code=2)
