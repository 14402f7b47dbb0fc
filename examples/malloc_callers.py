"""Sum the bytes and calls of malloc() by caller, in the kernel.

    sudo python3 examples/malloc_callers.py [-d SECONDS] [-n NUMBER] PID

Stacks are the keys of one aggregation, so a million calls cost a million additions in the kernel.
The program reads the stack when malloc() returns (hence ``return``). There the innermost frame is
the caller, with or without frame pointers.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
from collections import Counter

import usdt

MALLOC = "uprobe:libc:malloc(arg0, return != 0)"


def options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Sum the bytes requested from malloc() by caller.")
    parser.add_argument("pid", type=int, help="process ID of the program")
    parser.add_argument(
        "-d", "--duration", type=float, default=10.0, help="seconds to trace (default 10)"
    )
    parser.add_argument(
        "-n", "--number", type=int, default=10, help="number of callers to show (default 10)"
    )
    return parser.parse_args()


def caller(stack: tuple[str, ...]) -> str:
    """Return the innermost frame without its offset."""
    return re.sub(r"\+0x[0-9a-f]+", "", stack[0])


def main() -> None:
    """Print the callers that requested most."""
    wanted = options()
    with usdt.Session(pid=wanted.pid) as session:
        by_stack = session.stats(MALLOC, by="ustack", max_keys=1 << 16)
        print(f"tracing malloc() of {wanted.pid}; end with ^C", file=sys.stderr)
        with contextlib.suppress(KeyboardInterrupt):
            session.run(wanted.duration)
        # Read the result while the process lives: its mappings name the frames.
        sizes, calls = Counter[str](), Counter[str]()
        for stack, value in by_stack.items():
            sizes[caller(stack)] += value.sum
            calls[caller(stack)] += value.count
    print(f"{'BYTES':>14} {'CALLS':>10}  CALLER")
    for name, size in sizes.most_common(wanted.number):
        print(f"{size:>14,} {calls[name]:>10,}  {name}")


if __name__ == "__main__":
    try:
        main()
    except usdt.TracingError as err:
        sys.exit(f"Error: {err}")
