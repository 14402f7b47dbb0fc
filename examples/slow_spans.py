"""Show slow calls of a Python service that marks its work with spans of a Provider.

    sudo python3 examples/slow_spans.py [-m MILLISECONDS] [-d SECONDS] PID SPAN

SPAN is ``provider:name``: ``usdt.Provider("shop").span("request")`` makes shop:request. The kernel
compares the durations, so quick calls cost the service almost nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time

import usdt


def options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Show slow spans of a Python service.")
    parser.add_argument("pid", type=int, help="process ID of the service")
    parser.add_argument("span", help="provider:name")
    parser.add_argument(
        "-m",
        "--slower",
        type=float,
        default=10.0,
        help="shortest duration to show, in ms (default 10)",
    )
    parser.add_argument("-d", "--duration", type=float, help="stop after SECONDS")
    return parser.parse_args()


def main() -> None:
    """Print one line per slow call, and averages of all calls at the end."""
    wanted = options()
    # NAME__done(id, nanoseconds, what, error): see usdt.provider.Span
    done = f"{wanted.span}__done"
    least = int(wanted.slower * 1e6)

    def show(event: usdt.Event) -> None:
        took = event.value("arg1", int)
        what, error = event.args["str(arg2)"], event.args["str(arg3)"]
        failed = "" if isinstance(error, usdt.Unreadable) else f"  {error}"  # NULL: no error
        clock = time.strftime("%H:%M:%S")
        print(f"{clock}  {took / 1e6:9.3f} ms  {what}{failed}", flush=True)

    with usdt.Session(pid=wanted.pid) as session:
        everything = session.stats(f"{done}(arg1)", by="str(arg2)")
        session.on(f"{done}(arg1, str(arg2), str(arg3), arg1 >= {least})", show)
        print(f"tracing {wanted.span} of {wanted.pid}; end with ^C", file=sys.stderr)
        with contextlib.suppress(KeyboardInterrupt):
            session.run(wanted.duration)
    for what, value in sorted(everything.items(), key=lambda pair: -pair[1].sum):
        print(f"{value.count:>8} calls  {value.average / 1e6:9.3f} ms on average  {what}")


if __name__ == "__main__":
    try:
        main()
    except usdt.TracingError as err:
        sys.exit(f"Error: {err}")
