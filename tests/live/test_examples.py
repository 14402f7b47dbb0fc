"""The programs of examples/, run as their first lines say, on real programs."""

from __future__ import annotations

import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from array import array
from typing import TYPE_CHECKING

import pytest
from example_lines import check_lines
from house import ROOT
from patience import patient
from services import Dialogue, backend, running_cluster
from skips import need_program
from tracing_tools import Tool, until

from usdt.engine.runtime.attach.attach_points import syscall_registers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EXAMPLES = ROOT / "examples"

pytestmark = pytest.mark.usefixtures("ringbuf")


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkout, where it is not installed."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.fixture
def syscalls() -> None:
    """A CPU on which system calls are found by number."""
    syscall_registers()


def example(name: str, *words: object) -> Tool:
    """Start one; return it once it watches."""
    tool = Tool(EXAMPLES / f"{name}.py", *words, command=sys.executable)
    try:
        tool.wait_error("tracing", timeout=patient(100))
    except BaseException:
        tool.kill()
        raise
    return tool


def wait_line(tool: Tool, pattern: str) -> re.Match[str]:
    """Wait for a line that it prints."""
    look = re.compile(pattern)

    def found() -> re.Match[str] | None:
        assert tool.code is None or tool.lines, tool.errors
        return next((m for line in list(tool.lines) if (m := look.search(line))), None)

    return until(found, f"{pattern} of {tool}: {tool.lines} {tool.errors}")


def needed(name: str, package: str) -> str:
    """A program; where machines have been set up for it, its absence is a failure."""
    try:
        return need_program(name, package)
    except pytest.skip.Exception as err:
        if os.environ.get("CI", "") == "true":
            pytest.fail(f"CI is set: {err}")
        raise


def test_queries_of_postgresql() -> None:
    needed("psql", "postgresql")
    with running_cluster() as cluster, cluster.session() as before:
        backend(before)
        server = (cluster.folder / "data/postmaster.pid").read_text().split()[0]
        with (
            example("postgresql_queries", "-m", 0, server) as tool,
            cluster.session() as later,
        ):
            for session, word in ((before, "before"), (later, "later")):
                session.say("select 1/0;")
                session.say(f"select '{word}',\n pg_sleep(0.05);")
                session.hear(word)
                took = wait_line(tool, rf"^ *\d+ +([\d.]+) ms  select '{word}', pg_sleep")
                assert 50 <= float(took[1]) < 60_000
            wait_line(tool, r"^ *\d+ +failed +select 1/0;$")
            check_lines("postgresql_queries", tool.lines)


_JAVA = """
import java.io.*;
public class Waste {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        while (in.readLine() != null) {
            System.gc();
            for (int i = 0; i < 400; i++) { byte[] waste = new byte[1 << 16]; }
            System.out.println("done");
        }
    }
}
"""


def test_pauses_of_a_java_virtual_machine(tmp_path: Path) -> None:
    source = tmp_path / "Waste.java"
    source.write_text(_JAVA)
    java = needed("java", "default-jdk-headless")
    options = ("-XX:+UseSerialGC", "-Xmn8m", "-Xmx64m")
    with Dialogue(java, *options, source) as machine:
        machine.hear("ready")
        with example("jvm_gc", machine.pid) as tool:
            machine.say("go")
            machine.hear("done")
            wait_line(tool, r"^\d\d:\d\d:\d\d  full  +[\d.]+ ms  \w")
            wait_line(tool, r"^\d\d:\d\d:\d\d  young +[\d.]+ ms  \w")
            machine.end()
            tool.finish()
    (count,) = (int(m[1]) for line in tool.lines if (m := re.match(r"(\d+) pauses, ", line)))
    assert count == len(tool.lines) - 1
    check_lines("jvm_gc", tool.lines)


_SERVICE = """
import sys, time
from usdt import Provider
shop = Provider("shop")
span = shop.span("request")
@span
def quick(): pass
@span
def slow():
    time.sleep(0.03)
    raise KeyError("no")
shop.load()
print("ready", flush=True)
for _ in sys.stdin:
    for _ in range(5): quick()
    try: slow()
    except KeyError: pass
    print("done", flush=True)
"""


def test_slow_spans_of_a_service(providers: None) -> None:
    with Dialogue(sys.executable, "-c", _SERVICE) as service:
        service.hear("ready")
        with example("slow_spans", "-m", 20, service.pid, "shop:request") as tool:
            service.say("go")
            service.hear("done")
            took = wait_line(tool, r"^\d\d:\d\d:\d\d +([\d.]+) ms  __main__.slow  KeyError$")
            assert 30 <= float(took[1]) < 60_000
            service.end()
            tool.finish()
    check_lines("slow_spans", tool.lines)
    slow, quick = tool.lines[1:]
    assert re.search(r"^ +1 calls +[\d.]+ ms on average  __main__.slow$", slow)
    assert re.search(r"^ +5 calls +[\d.]+ ms on average  __main__.quick$", quick)


_MALLOC = """
#include <stdio.h>
#include <stdlib.h>
void *volatile keep;
__attribute__((noinline)) void large(void) { keep = malloc(100000); free(keep); }
__attribute__((noinline)) void small(void) { keep = malloc(10); free(keep); }
int main(void)
{
    puts("ready"); fflush(stdout);
    while (getchar() != EOF) {
        for (int i = 0; i < 30; i++) { large(); small(); small(); }
        puts("done"); fflush(stdout);
    }
}
"""


def test_callers_of_malloc(tmp_path: Path) -> None:
    program = tmp_path / "callers"
    compiler = needed("gcc", "gcc")
    words = (compiler, "-x", "c", "-O1", "-o", program, "-")
    subprocess.run(words, input=_MALLOC, text=True, check=True)
    with Dialogue(program) as running:
        running.hear("ready")
        with example("malloc_callers", "-d", 100, running.pid) as tool:
            running.say("")
            running.hear("done")
            tool.process.send_signal(signal.SIGINT)
            tool.finish()
    check_lines("malloc_callers", tool.lines)
    large, small = tool.lines[1:3]
    assert re.search(r"^ +3,000,000 +30  large \[callers\]$", large)
    assert re.search(r"^ +600 +60  small \[callers\]$", small)


def test_programs_that_are_started(syscalls: None) -> None:
    words = ("sh", "-c", "/bin/true; env nothing-of-that-name; :")
    with example("exec_snoop", "-x", "--", *words) as tool:
        tool.finish()
    shown = "\n".join(tool.lines)
    assert re.search(r"^ *\d+  true +/bin/true$", shown, re.MULTILINE), shown
    failed = r"^ *\d+  env +/\S*/nothing-of-that-name  \(ENOENT\)$"
    assert re.search(failed, shown, re.MULTILINE), shown
    check_lines("exec_snoop", tool.lines)


@pytest.fixture
def deaf() -> Iterator[tuple[socket.socket, int]]:
    """A connected socket whose other side drops all that comes; and that side's port."""
    # struct sock_filter: BPF_RET | BPF_K, nothing of the packet; struct sock_fprog
    drop = array("B", struct.pack("=HBBI", 0x06, 0, 0, 0))
    filters = struct.pack("HP", 1, drop.buffer_info()[0])
    so_attach_filter = 26
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            accepted, _ = server.accept()
            with accepted:
                accepted.setsockopt(socket.SOL_SOCKET, so_attach_filter, filters)
                yield client, port


def test_retransmits_of_tcp(deaf: tuple[socket.socket, int]) -> None:
    client, port = deaf
    ours = client.getsockname()[1]
    with example("tcp_retransmits", "-p", port, "-n", 2) as tool:
        client.send(b"hello?")
        tool.finish()
    assert len(tool.lines) == 2
    check_lines("tcp_retransmits", tool.lines)
    for line in tool.lines:
        assert line.split() == [f"127.0.0.1:{ours}", "->", f"127.0.0.1:{port}", "ESTABLISHED"]


def test_a_heatmap_of_system_calls(syscalls: None) -> None:
    stop = threading.Event()

    def sleep() -> None:
        while not stop.wait(0.01):  # futex() or its like: ten milliseconds each
            time.sleep(0.004)

    thread = threading.Thread(target=sleep)
    thread.start()
    start, end = "syscall:clock_nanosleep", "syscall:clock_nanosleep(return == 0)"
    try:
        words = ["-p", str(os.getpid()), "-i", str(patient(0.5)), "-n", "2", start, end]
        done = subprocess.run(
            [sys.executable, EXAMPLES / "heatmap.py", *words],
            capture_output=True,
            text=True,
            timeout=patient(100),
            check=False,
        )
    finally:
        stop.set()
        thread.join()
    assert not done.returncode, done.stderr
    check_lines("heatmap", done.stdout.splitlines())
    axis, *rows = done.stdout.splitlines()
    assert axis.split() == ["1us", "1ms", "1s"]
    assert len(rows) == 2
    for row in rows:
        cells, total = re.fullmatch(r"\|(.*)\| (\d+)", row).groups()  # type: ignore[union-attr]
        assert int(total) > 5, done.stdout
        # 4 ms is behind the mark of 2^20 ns, and that is where most are.
        darkest = max(range(len(cells)), key=lambda n: " .:-=+*#%@".index(cells[n]))
        assert axis.index("1ms") < 1 + darkest < axis.index("1s"), done.stdout


def test_the_test_of_a_probe(providers: None) -> None:
    words = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, EXAMPLES / "test_shop.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        capture_output=True,
        text=True,
        timeout=patient(100),
        check=False,
    )
    assert not done.returncode, done.stdout + done.stderr
    check_lines("test_shop", done.stdout.splitlines())


def test_what_is_wrong_is_one_line() -> None:
    for name, words in (
        ("jvm_gc", ("999999999",)),
        ("slow_spans", (os.getpid(), "nothing here")),
        ("heatmap", ("nothing:here", "nothing:there", "-n", "1")),
    ):
        done = subprocess.run(
            [sys.executable, EXAMPLES / f"{name}.py", *map(str, words)],
            capture_output=True,
            text=True,
            timeout=patient(100),
            check=False,
        )
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert done.stderr.splitlines()[-1].startswith("Error: ")


def test_reads_of_a_command() -> None:
    with example("read_sizes", "--", "/bin/grep", "-q", ".", "/etc/hostname") as tool:
        wait_line(tool, r"^ *\d+ of \d+ to \d+ bytes$")
        assert "opens /etc/hostname" in tool.lines
        check_lines("read_sizes", tool.lines)
