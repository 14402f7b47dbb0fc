"""Programs as Debian ships them: PostgreSQL, Python, a Java virtual machine."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from services import PATIENCE, Cluster, Dialogue, backend, running_cluster
from skips import need_program
from tracing_tools import Tool, run_usdt, tracing, usdt

if TYPE_CHECKING:
    from collections.abc import Iterator


# ---------------------------------------------------------------- PostgreSQL


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A running server, gone with its files at the end."""
    with running_cluster() as made:
        yield made


def test_the_queries_of_a_backend_are_what_psql_sent(cluster: Cluster) -> None:
    queries = ["select 'first';", "select 'second', '€ and \\ and \"quotes\"';", "select 1/0;"]
    with cluster.session() as session:
        pid = backend(session)
        with tracing("-p", pid, "postgresql:query__start(str(arg0))", "postgresql:query-done") as t:
            for query in queries:
                session.say(query)
            session.say("select 'all';")
            session.hear("all")
            events = t.wait_events(2 * len(queries) + 1)
            session.end()
            t.wait_end()
    started = [e["args"]["str(arg0)"] for e in events if e["probe"] == "postgresql:query__start"]
    assert started[: len(queries)] == queries
    assert {event["pid"] for event in events} == {pid}
    # A query that fails is never done.
    done = [event for event in events if event["probe"] == "postgresql:query__done"]
    assert len(done) >= len(queries) - 1


def test_a_long_query_is_shown_as_far_as_asked(cluster: Cluster) -> None:
    query = "select 'long' || length('" + "x" * 20_000 + "');"
    with cluster.session() as session:
        pid = backend(session)
        probe = "postgresql:query__start(str(arg0))"
        for limit in (20, 128, 4096, 65_534):
            with tracing("-p", pid, "--max-string", limit, probe) as tool:
                session.say(query)
                session.hear("long20000")
                shown = tool.wait_events(1)[0]["args"]["str(arg0)"]
                assert shown == query[:limit]
                tool.stop()


def test_the_program_stands_for_all_backends(cluster: Cluster) -> None:
    with cluster.session() as one, cluster.session() as two:
        pids = [backend(session) for session in (one, two)]
        words = [f"{cluster.server}:postgresql:query__start(str(arg0))"]
        with (
            tracing(*words) as file,
            tracing("-a", "postgresql:query__start(str(arg0))") as every,
            cluster.session() as later,
        ):
            pids.append(backend(later))
            for number, session in enumerate((one, two, later)):
                session.say(f"select 'number {number}';")
                session.hear(f"number {number}")
            wanted = {(pid, f"select 'number {n}';") for n, pid in enumerate(pids)}
            for tool in (file, every):
                tool.wait_events(4)
                shown = {(e["pid"], e["args"]["str(arg0)"]) for e in tool.stop()}
                assert wanted <= shown


def test_backends_are_traced_with_their_server(cluster: Cluster) -> None:
    server = int((cluster.folder / "data/postmaster.pid").read_text().split()[0])
    probe = "postgresql:query__start(str(arg0))"
    with (
        cluster.session() as before,
        tracing("-f", "-p", server, probe) as tool,
        cluster.session() as later,
    ):
        backends = [backend(session) for session in (before, later)]
        wanted = {(backends[0], "select 'before';"), (backends[1], "select 'later';")}
        for session, word in ((before, "before"), (later, "later")):
            session.say(f"select '{word}';")
            session.hear(word)
        tool.wait_events(4)
        found = tool.stop()
    assert wanted <= {(event["pid"], event["args"]["str(arg0)"]) for event in found}
    assert server not in {event["pid"] for event in found}


def test_predicates_choose_queries(cluster: Cluster) -> None:
    with cluster.session() as session:
        pid = backend(session)
        words = ("postgresql:query__start(str(arg0), str(arg0) == \"select 'this';\")",)
        with tracing("-p", pid, *words) as tool:
            for query in ("select 'that';", "select 'this';", "select 'this' ;"):
                session.say(query)
            session.say("select 'end';")
            session.hear("end")
            events = tool.stop()
    assert [event["args"] for event in events] == [{"str(arg0)": "select 'this';"}]


def test_every_probe_of_the_server_can_be_attached(cluster: Cluster) -> None:
    with cluster.session() as session:
        pid = backend(session)
        with tracing("-p", pid, "postgresql:*") as tool:
            session.say("create table t as select generate_series(1, 100) as n;")
            session.say("select 'sum ' || sum(n) from t; drop table t;")
            session.hear("sum 5050")
            seen = {event["probe"] for event in tool.stop()}
            session.end()
    assert not [line for line in tool.errors if "not attached" in line]
    wanted = ("query__start", "query__done", "transaction__start", "transaction__commit")
    assert {f"postgresql:{name}" for name in wanted} <= seen


# ---------------------------------------------------------------- Python

_PYTHON = """
import gc, sys
print("ready", flush=True)
for line in sys.stdin:
    def traced(n):
        return n + 1
    sys.setprofile(lambda *event: None)  # 3.11 tells of entries only while it traces itself
    for n in range(3):
        traced(n)
    sys.setprofile(None)
    gc.collect(0); gc.collect(2)
    print("done", flush=True)
"""


def _python_with_probes() -> str:
    for name in ("/usr/bin/python3.11", "/usr/bin/python3"):
        if Path(name).exists() and "gc__start" in run_usdt("list", name).stdout:
            return name
    pytest.skip("needs a Python with probes: apt-get install python3.11 (Debian's)")


def test_python_shows_its_collections_and_calls() -> None:
    with Dialogue(_python_with_probes(), "-c", _PYTHON) as python:
        python.hear("ready")
        words = (
            "python:gc__start(arg0)",
            "python:gc__done(arg0)",
            'python:function__entry(str(arg0), str(arg1), arg2, str(arg1) == "traced")',
            'python:function__return(str(arg1), str(arg1) == "traced")',
        )
        with tracing("-p", python.pid, *words) as tool:
            python.say("go")
            python.hear("done")
            python.end()
            events = tool.wait_end()
    calls = [event for event in events if event["probe"] == "python:function__entry"]
    assert [[*event["args"].values()] for event in calls] == [["<string>", "traced", 5]] * 3
    returns = [event["args"] for event in events if event["probe"] == "python:function__return"]
    assert returns == [{"str(arg1)": "traced"}] * 3
    collections = [e["args"]["arg0"] for e in events if e["probe"] == "python:gc__start"]
    assert collections[:2] == [0, 2]
    assert len([e for e in events if e["probe"] == "python:gc__done"]) == len(collections)


def test_python_started_for_the_trace_shows_what_it_imports(tmp_path: Path) -> None:
    output = tmp_path / "events"
    words = ("-c", f"{_python_with_probes()} -c 'import this_is_no_module'", "-o", output)
    probe = "python:import__find__load__start(str(arg0))"
    with tracing(*words, "--exit-code", probe) as tool:
        assert tool.wait_all() == 1
    assert '"str(arg0)": "this_is_no_module"' in output.read_text()


# ---------------------------------------------------------------- Java

_JAVA = """
import java.io.*;
public class Hello {
    static class Later { static int value = 1; }
    static int greet(int n) { return n + 1; }
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        in.readLine();
        int sum = Later.value;
        for (int i = 0; i < 3; i++) sum += greet(i);
        System.gc();
        System.out.println("done " + sum);
        in.readLine();
    }
}
"""


def test_java_shows_its_classes_collections_and_methods(tmp_path: Path) -> None:
    source = tmp_path / "Hello.java"
    source.write_text(_JAVA)
    java = need_program("java", "openjdk-17-jdk-headless")
    options = ("-XX:+ExtendedDTraceProbes", "-XX:+UseSerialGC", "-Xshare:auto")
    with Dialogue(java, *options, source) as virtual_machine:
        virtual_machine.hear("ready")
        items = 'buf(arg1, arg2), buf(arg3, arg4), arg4 == 5, str(arg3) == "greet*"'
        words = (
            "hotspot:gc__begin",
            "hotspot:gc-end",
            "hotspot:class__loaded(buf(arg0, arg1), arg1)",
            f"hotspot:method__entry({items})",
        )
        with tracing("-p", virtual_machine.pid, *words) as tool:
            virtual_machine.say("go")
            assert virtual_machine.hear("done") == "7"
            virtual_machine.say("end")
            virtual_machine.end()
            events = tool.wait_end()
    by_probe: dict[str, list[list[Any]]] = {}
    for event in events:
        by_probe.setdefault(event["probe"], []).append([*event["args"].values()])
    assert by_probe["hotspot:method__entry"] == [["Hello", "greet"]] * 3
    assert ["Hello$Later", 11] in by_probe["hotspot:class__loaded"]
    assert by_probe["hotspot:gc__begin"] == [[1]]
    assert by_probe["hotspot:gc__end"] == [[]]


def test_a_hundred_java_probes_attach_at_once(tmp_path: Path) -> None:
    source = tmp_path / "Hello.java"
    source.write_text(_JAVA)
    java = need_program("java", "openjdk-17-jdk-headless")
    with Dialogue(java, source) as virtual_machine:
        virtual_machine.hear("ready")
        with usdt("trace", "--json", "-p", virtual_machine.pid, "hotspot*:*") as tool:
            _assert_all_attached(tool)
            virtual_machine.say("go")
            virtual_machine.hear("done")
            assert {"hotspot:gc__begin", "hotspot:class__loaded"} <= {
                event["probe"] for event in tool.stop()
            }


def _assert_all_attached(tool: Tool) -> None:
    tool.wait_tracing()
    assert tool.sites > 400
    assert not [line for line in tool.errors if "not attached" in line]


# ---------------------------------------------------------------- all of them


def test_every_probe_of_the_machine_is_counted(cluster: Cluster, tmp_path: Path) -> None:
    source = tmp_path / "Hello.java"
    source.write_text(_JAVA)
    java = need_program("java", "openjdk-17-jdk-headless")
    with Dialogue(java, source) as virtual_machine, cluster.session() as session:
        virtual_machine.hear("ready")
        backend(session)
        with usdt("count", "--json", "-a", "*:*", "--top", 1000) as tool:
            tool.wait_tracing(timeout=PATIENCE)
            assert tool.sites > 500
            session.say("select 'counted';")
            session.hear("counted")
            virtual_machine.say("go")
            virtual_machine.hear("done")
            tool.process.send_signal(signal.SIGINT)
            tool.finish(timeout=PATIENCE)
        virtual_machine.say("end")
    counts = {record["probe"]: record["count"] for record in tool.records if "count" in record}
    assert counts["postgresql:query__start"] >= 1
    assert counts["hotspot:gc__begin"] >= 1
    assert tool.closing[1] == 0
