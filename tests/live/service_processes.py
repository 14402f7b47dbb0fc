"""Running programs for the examples of docs/services.md and README.md."""

from __future__ import annotations

import contextlib
import subprocess
from typing import TYPE_CHECKING

from java_programs import compiled
from java_programs import java as running_java
from kept_builds import compile_in
from services import PATIENCE, Cluster, Dialogue, busy, running_cluster
from skips import need_program
from tracing_tools import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ("PYTHON", "contended", "java", "postgresql", "python", "server")

PYTHON = "/usr/bin/python3.11"

# A client that sends SQL as psql does, and one that prepares its statement once.
_PSQL = "select 'from psql' \\watch 0.1\n"
_PREPARED = "select count(*) from pg_class where relname = 'orders';\n"
_WRITES = "create table t(n int); insert into t select n from generate_series(1, 9) n \\watch 0.1\n"

_CHANGES = (
    "do $$ begin update stock set remaining = remaining - 1; perform pg_sleep(0.05); end $$ "
    "\\watch 0.01\n"
)

_PYTHON = """import gc, os, time

out = os.open(os.devnull, os.O_WRONLY)

def order(number):
    return number + 1

print("ready", flush=True)
while True:
    order(1)
    sorted([1], key=order)
    gc.collect()
    os.write(out, b"sold")
    time.sleep(0.05)
"""

_JAVA = """public class Shop {
    static byte[] last;
    static byte[] order(int size) { return bytes(size); }
    static byte[] bytes(int size) { return new byte[size]; }
    static class Stock {
        synchronized void take() throws Exception { Thread.sleep(5); }
    }
    public static void main(String[] args) throws Exception {
        Stock stock = new Stock();
        for (int i = 0; i < 2; i++) {
            Thread seller = new Thread("seller-" + i) {
                public void run() {
                    try { while (true) stock.take(); } catch (Exception error) { }
                }
            };
            seller.setDaemon(true);
            seller.start();
        }
        System.out.println("ready");
        while (true) {
            last = order(1000);
            System.gc();
            Thread.sleep(50);
        }
    }
}
"""


@contextlib.contextmanager
def postgresql() -> Iterator[dict[str, int]]:
    """A server with three clients: the processes that serve them, and the server itself."""
    with running_cluster("fsync=on") as cluster, contextlib.ExitStack() as clients:
        script = cluster.folder / "prepared.sql"
        script.write_text(_PREPARED)
        reach = ("-h", cluster.folder, "-U", "postgres")
        words = (cluster.server.with_name("pgbench"), *reach, "-n", "-T", 600, "-R", 20)
        more = ("-M", "prepared", "-f", script, "postgres")
        clients.enter_context(Dialogue(*words, *more, stderr=subprocess.DEVNULL))
        for lines in (_PSQL, _WRITES):
            client = clients.enter_context(cluster.session())
            client.say(lines)
        with cluster.session() as asking:
            yield {
                "PSQL": _serving(asking, "from psql"),
                "WRITER": _serving(asking, "insert into"),
                "DRIVER": _serving(asking, "orders"),
                "SERVER": _server(cluster),
            }


@contextlib.contextmanager
def contended() -> Iterator[None]:
    """A server with clients of pgbench, and two that take turns to change one row."""
    with running_cluster("fsync=on") as cluster, busy(cluster), contextlib.ExitStack() as clients:
        one, two = (clients.enter_context(cluster.session()) for _ in range(2))
        one.say("create table stock(item text, remaining int);")
        one.say("insert into stock values ('apple', 1000);")
        one.say("select 'made';")
        one.hear("made")
        for client in (one, two):
            client.say(_CHANGES)
        yield


def _serving(asking: Dialogue, query: str) -> int:
    # The process that serves the client of a query.
    def look() -> int:
        asking.say(
            "select 'pid ' || coalesce(min(pid), 0) from pg_stat_activity"
            f" where query like '%{query}%' and pid <> pg_backend_pid();"
        )
        return int(asking.hear("pid "))

    return until(look, f"a client that sends {query}", timeout=PATIENCE, every=0.1)


def _server(cluster: Cluster) -> int:
    return int((cluster.folder / "data/postmaster.pid").read_text().split()[0])


@contextlib.contextmanager
def python(folder: Path) -> Iterator[dict[str, int]]:
    """A program of Debian's Python that collects garbage."""
    source = folder / "shop.py"
    source.write_text(_PYTHON)
    with Dialogue(need_program(PYTHON, "python3.11"), source) as running:
        running.hear("ready")
        yield {"PYTHON": running.pid}


@contextlib.contextmanager
def java(folder: Path) -> Iterator[dict[str, int]]:
    """A Java virtual machine that collects garbage, with the probes that need options."""
    # Compiled before: a virtual machine that compiles it keeps the compiler's objects, too, and
    # each collection looks at them.
    classes = compiled(folder, "Shop", _JAVA)
    with running_java(classes, "Shop", "-XX:+UseSerialGC", "-XX:+ExtendedDTraceProbes") as running:
        yield {"JAVA": running.pid}


_SERVER = r"""#include <stdexcept>
#include <cstdlib>
#include <unistd.h>
struct request { const char *path; };
extern "C" __attribute__((noinline)) int handle(request *req) {
    free(malloc(100));
    if (!getenv("HOME")) throw std::runtime_error(req->path);
    return write(STDERR_FILENO, req->path, 1);
}
int main() {
    request one = {"/orders"};
    for (write(STDOUT_FILENO, "ready\n", 6);; usleep(20000)) {
        handle(&one);
        try { throw std::runtime_error("odd"); } catch (std::exception &) {}
    }
}
"""


@contextlib.contextmanager
def server(folder: Path) -> Iterator[dict[str, int]]:
    """A C++ program called server, with debug information, that handles requests and throws."""
    source, program = folder / "server.cpp", folder / "server"
    source.write_text(_SERVER)
    compile_in(folder, [need_program("g++"), "-w", "-g", "-O1", "-o", program, source])
    with Dialogue(program, stderr=subprocess.DEVNULL) as running:
        running.hear("ready")
        yield {"CXX": running.pid}
