"""Show the sizes of a command's reads by descriptor, with a program in bpftrace's language.

sudo python3 examples/read_sizes.py -- COMMAND ...
"""

from __future__ import annotations

import argparse
import sys

import usdt

PROGRAM = """
tracepoint:syscalls:sys_exit_read /pid == cpid && args.ret > 0/ { @sizes = hist(args.ret); }
tracepoint:syscalls:sys_enter_read /pid == cpid/ { @reads[args.fd] = count(); }
tracepoint:syscalls:sys_enter_openat /pid == cpid/ { printf("%s", str(args.filename)); }
"""


def main() -> None:
    """Print the files that the command opens, then its reads."""
    parser = argparse.ArgumentParser(description="Show the sizes of a command's reads.")
    parser.add_argument("command", nargs="+")
    with usdt.run(PROGRAM, command=parser.parse_args().command) as program:
        print("tracing; ends with the command", file=sys.stderr)
        for event in program:
            print(f"opens {event.text}", flush=True)
    for descriptor, number in program.maps["@reads"].items():
        print(f"{number:>8} reads of descriptor {descriptor}")
    for low, high, hits in program.maps["@sizes"] or ():
        print(f"{hits:>8} of {low} to {high - 1} bytes")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
    except usdt.TracingError as err:
        sys.exit(f"Error: {err}")
