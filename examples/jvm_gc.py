"""Show the garbage collection pauses of a Java virtual machine, and their sum.

    sudo python3 examples/jvm_gc.py [-d SECONDS] PID

Every HotSpot that a distribution ships has these probes; the virtual machine needs no option.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time

import usdt


def options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="GC pauses of a Java virtual machine.")
    parser.add_argument("pid", type=int, help="process ID of the virtual machine")
    parser.add_argument("-d", "--duration", type=float, help="stop after SECONDS")
    return parser.parse_args()


def main() -> None:
    """Print one line per pause, and their sum at the end."""
    wanted = options()
    began: dict[int, usdt.Event] = {}
    pauses: list[float] = []
    with usdt.Session(pid=wanted.pid) as session:

        def begin(event: usdt.Event) -> None:
            began[event.pid] = event

        def end(event: usdt.Event) -> None:
            start = began.pop(event.pid, None)
            if start is None:
                return  # it began before we came
            pauses.append((event.time - start.time) / 1e6)
            kind = "full" if start.args["arg0"] else "young"
            clock = time.strftime("%H:%M:%S")
            print(f"{clock}  {kind:5}  {pauses[-1]:9.3f} ms  {event.comm}", flush=True)

        # Attach both probes in one stream, so that starts and ends arrive in order.
        session.on("hotspot:gc__*(arg0)", lambda e: (end if "end" in e.probe else begin)(e))
        print(f"tracing collections of {wanted.pid}; end with ^C", file=sys.stderr)
        with contextlib.suppress(KeyboardInterrupt):
            session.run(wanted.duration)
    if pauses:
        print(f"{len(pauses)} pauses, {sum(pauses):.3f} ms in total, {max(pauses):.3f} ms at most")


if __name__ == "__main__":
    try:
        main()
    except usdt.TracingError as err:
        sys.exit(f"Error: {err}")
