"""Draw a live heatmap of the time between two probes: one line per interval, darker is more.

sudo python3 examples/heatmap.py [-p PID] [-k KEY] [-i SECONDS] [-n LINES] START END

... examples/heatmap.py -p 1234 postgresql:query__start postgresql:query__done
... examples/heatmap.py syscall:fsync 'syscall:fsync(return == 0)'
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections import Counter

import usdt

SHADES = " .:-=+*#%@"
FIRST, LAST = 10, 34  # powers of two of nanoseconds: 1 us to 17 s
NAMES = {10: "1us", 20: "1ms", 30: "1s"}


def options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description="Draw a live heatmap of the time between two probes."
    )
    parser.add_argument("start", help="probe at which time starts")
    parser.add_argument("end", help="probe at which it ends")
    parser.add_argument("-p", "--pid", type=int, help="trace only this process")
    parser.add_argument(
        "-k", "--key", default="tid", help="value that pairs START with END (default tid)"
    )
    parser.add_argument(
        "-i", "--interval", type=float, default=1.0, help="seconds per line (default 1)"
    )
    parser.add_argument("-n", "--lines", type=int, help="stop after LINES lines")
    return parser.parse_args()


def buckets(times: usdt.Aggregate[usdt.Histogram]) -> Counter[int]:
    """Sum the hits of all keys by power of two."""
    found = Counter[int]()
    for histogram in times.snapshot().values():
        for (low, _), count in histogram.items():
            found[min(LAST, max(FIRST, (low or 1).bit_length() - 1))] += count
    return found


def line(counts: Counter[int]) -> str:
    """Return one row: a shade per power of two, and the number of hits."""
    cells = (SHADES[min(len(SHADES) - 1, counts[n].bit_length())] for n in range(FIRST, LAST + 1))
    return f"|{''.join(cells)}| {counts.total()}"


def heading() -> str:
    """Return the axis."""
    text = " " * (LAST - FIRST + 2)
    for power, name in NAMES.items():
        at = power - FIRST + 1
        text = text[:at] + name + text[at + len(name) :]
    return text


def main() -> None:
    """Print one row per interval."""
    wanted = options()
    with usdt.Session(pid=wanted.pid) as session:
        times = session.latency(wanted.start, wanted.end, key=wanted.key, hist=True)
        print(heading(), flush=True)
        before = Counter[int]()
        for number in itertools.count(1):
            session.run(wanted.interval)
            now = buckets(times)
            print(line(now - before), flush=True)
            before = now
            if number == wanted.lines or times.look():
                break


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
    except usdt.TracingError as err:
        sys.exit(f"Error: {err}")
