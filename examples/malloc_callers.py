"""Who asks malloc() for how much: bytes and calls by caller, summed up in the kernel.

    sudo python3 examples/malloc_callers.py [-d SECONDS] [-n NUMBER] PID

Stacks are the keys of one aggregation, so a million calls cost no more than the kernel's additions.
They are taken where malloc() returns (its ``return`` is asked for): there the innermost frame is
the caller, whether or not anything was compiled with frame pointers.
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
    """What was asked for."""
    parser = argparse.ArgumentParser(description="Bytes asked of malloc() by caller.")
    parser.add_argument("pid", type=int, help="process ID of the program")
    parser.add_argument("-d", "--duration", type=float, default=10.0, help="seconds; 10")
    parser.add_argument("-n", "--number", type=int, default=10, help="how many callers; 10")
    return parser.parse_args()


def caller(stack: tuple[str, ...]) -> str:
    """The innermost frame, without the offset of the call in it."""
    return re.sub(r"\+0x[0-9a-f]+", "", stack[0])


def main() -> None:
    """Print the callers that asked for most."""
    wanted = options()
    with usdt.Session(pid=wanted.pid) as session:
        by_stack = session.stats(MALLOC, by="ustack", max_keys=1 << 16)
        print(f"watching malloc of {wanted.pid}; end with ^C", file=sys.stderr)
        with contextlib.suppress(KeyboardInterrupt):
            session.run(wanted.duration)
        # While the process lives: its mappings give the names.
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
