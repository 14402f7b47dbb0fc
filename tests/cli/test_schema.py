"""``usdt schema``: it is valid, describes what docs/json.md does, and refuses what is no output."""

from __future__ import annotations

import json
import re

import jsonschema
import pytest
from house import ROOT
from json_schema import SCHEMA
from tracing_tools import run_usdt

_PAGE = (ROOT / "docs/json.md").read_text()
_EVENT = {"time": 1, "pid": 1, "tid": 1, "cpu": 0, "comm": "x", "probe": "p:n", "args": {}}
_CLOCK = {"monotonic": 1, "realtime": 2, "error": 0}


def test_the_command_prints_the_schema() -> None:
    done = run_usdt("schema")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == SCHEMA
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_every_member_of_the_page_is_in_the_schema() -> None:
    known = set(re.findall(r'"([\w.]+)"', json.dumps(SCHEMA)))
    rows = re.findall(r"^\| (`[^|]*) \|", _PAGE, re.MULTILINE)
    members = {name for row in rows for name in re.findall(r"`([\w.]+)`", row)}
    assert members - known == set()
    assert len(members) > 60


@pytest.mark.parametrize(
    "found",
    [
        {**_EVENT, "args": {"arg0": 1, "str(arg1)": "x", "ustack": [{"symbol": None}]}},
        {**_EVENT, "timestamp": "2026-11-24T02:57:45.648470801+00:00", "names": {"a": "B"}},
        {**_EVENT, "duration": 7, "end_probe": "p:m", "end_args": {}},
        {"clock": _CLOCK},
        {"lost": 3, "probe": "p:n"},
        {"probe": "p:n", "count": 3, "key": {"comm": "x"}},
    ],
)
def test_output_is_valid(found: object) -> None:
    jsonschema.validate(found, SCHEMA)


@pytest.mark.parametrize(
    "found",
    [
        {},
        [],
        {**_EVENT, "more": 1},
        {**_EVENT, "time": "1"},
        {**_EVENT, "timestamp": "2026-11-24 02:57:45"},
        {**_EVENT, "args": {"ustack": [{"name": "f"}]}},
        {**_EVENT, "end_args": {}},
        {"clock": {"monotonic": 1}},
        {"probe": "p:n", "count": -1},
        {"probe": "p:n", "count": 1, "buckets": [{"low": 1, "count": 1}]},
    ],
)
def test_what_is_no_output_is_not_valid(found: object) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(found, SCHEMA)
