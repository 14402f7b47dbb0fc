"""Log the queries of a running PostgreSQL without changing its configuration.

    sudo python3 examples/postgresql_queries.py [-m MILLISECONDS] [-d SECONDS] POSTMASTER

POSTMASTER is the process ID of the server. Present and future backends are followed. A query is
shown when it is done, with its duration. A query that failed is shown when the next one begins.
These are the queries of the simple protocol, which psql uses. Drivers that prepare statements use
another one: docs/services.md tells which probes see those.
"""

from __future__ import annotations

import argparse
import sys
import time

import usdt

START = "postgresql:query__start(str(arg0))"
DONE = "postgresql:query__done"


def options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Log the queries of a PostgreSQL server.")
    parser.add_argument("server", type=int, help="process ID of the server")
    parser.add_argument(
        "-m", "--slower", type=float, default=0.0, help="show only queries of at least this many ms"
    )
    parser.add_argument("-d", "--duration", type=float, help="stop after SECONDS")
    return parser.parse_args()


class Log:
    """Queries in progress, by backend."""

    def __init__(self, slower: float) -> None:
        self.slower = slower
        self.open: dict[int, tuple[int, str]] = {}

    def take(self, event: usdt.Event) -> None:
        """Note the start of a query, or print a query that has ended."""
        begun = self.open.pop(event.pid, None)
        if event.probe == "postgresql:query__start":
            if begun:
                print(f"{event.pid:>8}    failed     {begun[1]}", flush=True)
            self.open[event.pid] = event.time, " ".join(str(event.args["str(arg0)"]).split())
        elif begun:
            took = (event.time - begun[0]) / 1e6
            if took >= self.slower:
                print(f"{event.pid:>8} {took:9.3f} ms  {begun[1]}", flush=True)


def main() -> None:
    """Print one line per query."""
    wanted = options()
    log = Log(wanted.slower)
    end = None if wanted.duration is None else time.monotonic() + wanted.duration
    with usdt.attach(START, DONE, pid=wanted.server, follow=True, max_string=4096) as events:
        print(f"tracing queries of {wanted.server}; end with ^C", file=sys.stderr)
        while not events.ended and (end is None or time.monotonic() < end):
            for event in events.poll(0.1):
                log.take(event)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
    except usdt.TracingError as err:
        sys.exit(f"Error: {err}")
