"""Probes of a program, of system calls and of the kernel's events in one ordered stream."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from services import Cluster, backend, running_cluster
from tracing_tools import tracing

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.usefixtures("ringbuf", "cookies")

_PROBES = (
    "postgresql:query__start(str(arg0))",
    "postgresql:query__done",
    "syscall:fsync(fd, return)",
    "tracepoint:block:block_rq_issue(bytes, rwbs)",
)
_START, _DONE, _SYNC, _ISSUE = (probe.partition("(")[0] for probe in _PROBES)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A running server whose commits are synced."""
    if not os.major(Path("/tmp").stat().st_dev):
        pytest.skip("needs /tmp on a block device")
    with running_cluster("fsync=on", "wal_sync_method=fsync") as made:
        with made.session() as session:
            session.say("create table t (n int);")
            session.say("select 'there';")
            session.hear("there")
            session.end()
        yield made


def test_a_query_its_fsync_and_its_block_io_come_in_their_order(cluster: Cluster) -> None:
    with cluster.session() as session:
        pid = backend(session)
        with tracing("-p", pid, *_PROBES) as tool:
            for number in range(5):
                session.say(f"insert into t values ({number});")
            session.say("select 'all';")
            session.hear("all")
            events = tool.wait_events(5 * 4)
            events = tool.stop()
    assert {event["pid"] for event in events} == {pid}
    times = [event["time"] for event in events]
    assert times == sorted(times)
    queries = [event for event in events if event["probe"] == _START]
    assert [q["args"]["str(arg0)"] for q in queries[:5]] == [
        f"insert into t values ({number});" for number in range(5)
    ]
    # Within a query: what it writes is issued before its fsync() returns, and then it is done. It
    # may read, too.
    for query, following in pairwise(queries[:6]):
        own = [e for e in events if query["time"] <= e["time"] < following["time"]]
        read = [e for e in own if e["probe"] == _ISSUE and e["args"]["rwbs"].startswith("R")]
        names = [event["probe"] for event in own if event not in read]
        assert names.index(_START) < names.index(_ISSUE) < names.index(_SYNC) < names.index(_DONE)
        writes = [e for e in own if e["probe"] == _ISSUE and e not in read]
        assert all(write["args"]["rwbs"].startswith(("W", "F")) for write in writes), writes
        assert all(e["args"]["return"] == 0 for e in own if e["probe"] == _SYNC)
