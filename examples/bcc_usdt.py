"""Trace garbage collections of Python processes, with USDT probes in a bcc program.

    sudo python3 examples/bcc_usdt.py [-p PID] [-d SECONDS] [PYTHON]

Requires python3-bpfcc, kernel headers, and a Python with probes, such as Debian's /usr/bin/python3.
The start and the end of a collection run the same C function, which distinguishes them by cookie.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # from the checkout, uninstalled

from usdt.base.errors import TracingError
from usdt.bcc import attach, load

START, DONE = 1, 2

PROGRAM = """
struct event {
    u64 time;
    u64 cookie;
    u32 pid;
    s32 value;
};

BPF_RINGBUF_OUTPUT(events, 16);

int on_gc(struct pt_regs *ctx)
{
    struct event event = {};
    long value;

    if (bpf_usdt_arg(ctx, 0, &value))
        return 0;
    event.time = bpf_ktime_get_ns();
    event.cookie = bpf_usdt_cookie(ctx);
    event.pid = bpf_get_current_pid_tgid() >> 32;
    event.value = value;
    events.ringbuf_output(&event, sizeof(event), 0);
    return 0;
}
"""


def options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Garbage collections of Python, by bcc.")
    parser.add_argument("python", nargs="?", default=str(Path("/usr/bin/python3").resolve()))
    parser.add_argument("-p", "--pid", type=int, default=0, help="trace only this process")
    parser.add_argument("-d", "--duration", type=float, help="stop after SECONDS")
    return parser.parse_args()


def main() -> None:
    """Print one line per collection."""
    wanted = options()
    bpf = load(PROGRAM)
    started: dict[int, tuple[int, int]] = {}

    def show(_context: Any, data: int, _size: int) -> None:
        event = bpf["events"].event(data)
        if event.cookie == START:
            started[event.pid] = event.time, event.value
        elif event.pid in started:
            start, generation = started.pop(event.pid)
            micros = (event.time - start) / 1000
            print(
                f"{event.pid:>8}  generation {generation}  {event.value:>6} objects  "
                f"{micros:>9.1f} us",
                flush=True,
            )

    bpf["events"].open_ring_buffer(show)
    end = None if wanted.duration is None else time.monotonic() + wanted.duration
    with (
        attach(bpf, "on_gc", wanted.python, "python", "gc__start", pid=wanted.pid, cookie=START),
        attach(bpf, "on_gc", wanted.python, "python", "gc__done", pid=wanted.pid, cookie=DONE),
    ):
        print(f"tracing {os.path.basename(wanted.python)}; end with ^C", file=sys.stderr)  # noqa: PTH119
        interrupts: list[int] = []
        # A KeyboardInterrupt that is raised in show(), which C calls, would get lost.
        signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
        while not interrupts and (end is None or time.monotonic() < end):
            bpf.ring_buffer_poll(100)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
    except TracingError as err:
        sys.exit(f"Error: {err}")
