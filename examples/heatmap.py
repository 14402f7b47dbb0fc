"""A live heatmap of the time between two probes: a line for every interval, darker is more.

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
    """What was asked for."""
    parser = argparse.ArgumentParser(description="A live heatmap of times between two probes.")
    parser.add_argument("start", help="probe where time begins")
    parser.add_argument("end", help="probe where it ends")
    parser.add_argument("-p", "--pid", type=int, help="only this process")
    parser.add_argument("-k", "--key", default="tid", help="what both have in common; tid")
    parser.add_argument("-i", "--interval", type=float, default=1.0, help="seconds; 1")
    parser.add_argument("-n", "--lines", type=int, help="stop after so many lines")
    return parser.parse_args()


def buckets(times: usdt.Aggregate) -> Counter[int]:
    """Hits by power of two, of all keys together."""
    found = Counter[int]()
    for histogram in times.snapshot().values():
        for (low, _), count in histogram.items():
            found[min(LAST, max(FIRST, (low or 1).bit_length() - 1))] += count
    return found


def line(counts: Counter[int]) -> str:
    """One row: a shade for each power of two, and how many hits there were."""
    cells = (SHADES[min(len(SHADES) - 1, counts[n].bit_length())] for n in range(FIRST, LAST + 1))
    return f"|{''.join(cells)}| {counts.total()}"


def heading() -> str:
    """The axis."""
    text = " " * (LAST - FIRST + 2)
    for power, name in NAMES.items():
        at = power - FIRST + 1
        text = text[:at] + name + text[at + len(name) :]
    return text


def main() -> None:
    """Print a row for each interval."""
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
