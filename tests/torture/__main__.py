"""Disturb tracers and their targets at random moments: ``python -m torture [SCENARIO…]``."""

from __future__ import annotations

import argparse
import collections
import random
import signal
import sys
import time
import traceback

from scenarios import SCENARIOS


def main() -> int:
    """Run scenarios until the time is over, or so many times; return 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="torture", description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=", ".join(SCENARIOS))
    parser.add_argument("--seconds", type=float, default=60, help="time for all together")
    parser.add_argument("--times", type=int, help="run each so many times, however long that takes")
    parser.add_argument("--seed", type=int, default=0, help="seed of the choices")
    options = parser.parse_args()
    # Background jobs and nohup ignore these; tracers would inherit it.
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    names = options.scenarios or [*SCENARIOS]
    done: collections.Counter[str] = collections.Counter()
    failures = 0
    end = time.monotonic() + options.seconds
    most = options.times and options.times * len(names)
    while time.monotonic() < end if most is None else done.total() < most:
        name = names[done.total() % len(names)]
        number = done[name]
        done[name] += 1
        try:
            SCENARIOS[name](random.Random(f"{name} {options.seed} {number}"))
        except Exception:  # noqa: BLE001 - whatever breaks is reported, and the next one runs
            failures += 1
            print(f"{name}, seed {options.seed}, number {number}:", file=sys.stderr)
            traceback.print_exc()
    for name in names:
        print(f"{name}: {done[name]} times")
    print(f"{done.total()} disturbances, {failures} broken promises")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
