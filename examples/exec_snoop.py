"""Show every program that starts; with -x, failed attempts as well.

    sudo python3 examples/exec_snoop.py [-x] [-n NUMBER] [-d SECONDS] [-- COMMAND ...]

With a command, show only what it starts, and stop when it ends.
"""

from __future__ import annotations

import argparse
import errno
import sys
import time
from pathlib import Path

import kprobe

STARTED = "tracepoint:sched:sched_process_exec(filename)"
TRIED = "syscall:execve(str(filename))"
FAILED = "syscall:execve(return, return < 0)"  # the path is gone by then


def options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Show every program that starts.")
    parser.add_argument("-x", "--failed", action="store_true", help="also show failed attempts")
    parser.add_argument("-n", "--number", type=int, help="stop after NUMBER lines")
    parser.add_argument("-d", "--duration", type=float, help="stop after SECONDS")
    parser.add_argument("command", nargs="*", help="show only what this command starts")
    return parser.parse_args()


def words(pid: int) -> str:
    """Return the command line of a process, or "" if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ").strip()
    except OSError:
        return ""


class Snoop:
    """Calls of execve() in progress, by thread."""

    def __init__(self) -> None:
        self.tried: dict[int, str] = {}

    def line(self, event: kprobe.Event) -> str | None:
        """Return the line for an event, or None."""
        if "str(filename)" in event.args:
            self.tried[event.tid] = str(event.args["str(filename)"])
            return None
        path = self.tried.pop(event.tid, "?")
        if "return" in event.args:
            reason = errno.errorcode.get(-event.value("return", int), "?")
            return f"{event.pid:>8}  {event.comm:15}  {path}  ({reason})"
        return f"{event.pid:>8}  {event.comm:15}  {words(event.pid) or event.args['filename']}"


def main() -> None:
    """Print one line per program."""
    wanted = options()
    left = wanted.number
    end = None if wanted.duration is None else time.monotonic() + wanted.duration
    command = wanted.command or None
    snoop = Snoop()
    probes = (STARTED, TRIED, FAILED) if wanted.failed else (STARTED,)
    with kprobe.attach(*probes, command=command, follow=command is not None) as events:
        print("tracing program starts; end with ^C", file=sys.stderr)
        while left != 0 and not events.ended and (end is None or time.monotonic() < end):
            lines = [line for event in events.poll(0.1) if (line := snoop.line(event))][:left]
            for line in lines:
                print(line, flush=True)
            left = None if left is None else left - len(lines)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
    except kprobe.TracingError as err:
        sys.exit(f"Error: {err}")
