"""``usdt heatmap``: every row is an interval's histogram; the picture holds the same numbers."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

from aggregating import aggregating, stopped
from fixtures import Fixture, build, start
from tracing_tools import one_error, run_usdt, until

if TYPE_CHECKING:
    from pathlib import Path

_PAIR = ("threads:hit(arg1 % 2 == 0)", "threads:hit(arg1 % 2 == 1)")


def threads(*words: object) -> Fixture:
    return start(build("default", "threads"), "-w", "-t", 2, *words)


def test_rows_add_up_to_all_hits() -> None:
    with threads("-n", 50, "-s", 5000) as program:
        program.wait_ready()
        with aggregating("heatmap", "-p", program.pid, "threads:hit(arg1)", "-i", 0.05) as tool:
            program.fire()
            found = stopped(tool)
    assert len(found.results) >= 3
    assert sum(r["count"] for r in found.results) == 100
    for row in found.results:
        assert row["count"] == sum(bucket["count"] for bucket in row["buckets"])
    assert [r["time"] for r in found.results] == sorted({r["time"] for r in found.results})


def test_rows_of_times_between_two_probes_as_text() -> None:
    with threads("-n", 20, "-s", 5000) as program:
        program.wait_ready()
        done = run_usdt(
            *("heatmap", "-c", f"{program.process.args[0]} -t 2 -n 20 -s 5000 -q"),
            *(*_PAIR, "-i", 0.05, "--unit", "us"),
        )
    assert done.returncode == 0
    rows = re.findall(r"^\d\d:\d\d:\d\d\.\d{3} \|(.*)\| (\d+)$", done.stdout, re.MULTILINE)
    assert sum(int(count) for _, count in rows) == 20
    assert all(any(cells.strip()) for cells, count in rows if int(count))
    assert "us; count" in done.stdout  # the head
    assert re.search(r"columns \[\d+K?, \d+K?\) to .* us; hits: ", done.stdout)  # the legend
    assert "20 events, 0 lost" in done.stderr


def test_a_picture_is_one_file_with_every_count(tmp_path: Path) -> None:
    picture = tmp_path / "hits.svg"
    command = f"{build('default', 'threads')} -t 2 -n 30 -s 5000 -q"
    words = ("threads:hit(arg1)", "-i", 0.05, "-o", picture)
    done = run_usdt("heatmap", "-c", command, *words)
    assert done.returncode == 0, done.stderr
    text = picture.read_text()
    root = ET.fromstring(text)
    titles = [title.text or "" for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert titles[0] == "threads:hit(arg1)"
    assert sum(int(title.rpartition(" ")[2]) for title in titles[1:]) == 60
    assert "href" not in text
    assert "script" not in text
    assert not done.stdout


def test_a_picture_of_a_run_that_fails_is_not_written(tmp_path: Path) -> None:
    picture = tmp_path / "hits.svg"
    picture.write_text("earlier")
    with threads() as program:
        program.wait_ready()
        done = run_usdt("heatmap", "-p", program.pid, "threads:hitt(arg0)", "-o", picture)
    assert "no probe threads:hitt" in one_error(done)
    assert picture.read_text() == "earlier"


def test_a_picture_is_no_json(tmp_path: Path) -> None:
    picture = tmp_path / "hits.SVG"
    done = run_usdt("heatmap", "-a", "threads:hit(arg0)", "--json", "-o", picture)
    assert "is a picture: leave out --json" in one_error(done, code=2)
    assert not picture.exists()


def test_so_many_rows() -> None:
    with threads("-n", 100, "-s", 10_000) as program:
        program.wait_ready()
        words = ("threads:hit(arg1)", "-i", 0.05, "-n", 3)
        with aggregating("heatmap", "-p", program.pid, *words) as tool:
            program.send("fire")
            until(lambda: tool.code is not None, "three rows")
            rows = [record for record in tool.records if "count" in record]
    assert len(rows) in (3, 4)  # and what came between the last one and the end


def test_three_probes_are_refused() -> None:
    done = run_usdt("heatmap", "-a", "a:b", "a:c", "a:d")
    assert done.returncode == 2
    assert "not 3 probes" in done.stderr
