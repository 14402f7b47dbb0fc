"""The queries of docs/parquet.md print what the page shows, over files of 1,000 machines."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from house import ROOT

from usdt.engine.output.parquet.stream import ParquetStream

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PAGE = (ROOT / "docs/parquet.md").read_text()
#: A query, and what is shown of its answer, "" if nothing is.
_QUERIES = re.findall(r"```sql\n(.*?)```\n(?:\n```text\n(.*?)```)?", _PAGE, re.DOTALL)
_MACHINES = 1000


def _stream(number: int) -> Iterator[dict[str, Any]]:
    # What a machine has counted.
    start = 1_795_549_000_000_000_000 + number
    clock = {"monotonic": 0, "realtime": start, "error": 0}
    yield {"usdt": 1, "host": f"web{number:03}", "command": "count", "clock": clock}
    for name, factor in (("backup", 1), ("postgres", 40)):
        count = factor * (number % 7) + 1
        yield {"probe": "postgresql:query__start", "key": {"comm": name}, "count": count}
    if number % 250 == 3:
        yield {"lost": number, "unreadable": 0, "probe": "postgresql:query__start"}


def _events() -> Iterator[dict[str, Any]]:
    clock = {"monotonic": 0, "realtime": 0, "error": 0}
    yield {"usdt": 1, "host": "vm", "command": "trace", "clock": clock}
    about = {"pid": 1, "tid": 1, "cpu": 0, "comm": "loop", "probe": "loop:hit"}
    for number in range(100):
        yield {**about, "time": number, "args": {"arg0": number, "arg1": number}}


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """DuckDB, in the folder of the files."""
    duckdb = pytest.importorskip("duckdb", reason="needs duckdb: pip install duckdb")
    folder: Path = tmp_path_factory.mktemp("machines")
    streams = {f"run-{number:03}": _stream(number) for number in range(_MACHINES)}
    for name, stream in ({**streams, "ten": _events()}).items():
        with ParquetStream(str(folder / f"{name}.parquet")) as output:
            output.write([json.dumps(one) for one in stream])
    with duckdb.connect() as found, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield found


@pytest.mark.parametrize(("query", "shown"), _QUERIES, ids=range(len(_QUERIES)))
def test_a_query_of_the_page(connection: Any, query: str, shown: str) -> None:
    found = str(connection.sql(query))
    if "ten.parquet" not in query:  # the page shows another run
        assert found.strip() == shown.strip()


def test_there_are_queries() -> None:
    assert len(_QUERIES) >= 4
