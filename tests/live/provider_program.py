"""A program with a Provider, for tests to trace: fires when told, says what it fired.

provider_program.py values            one line on stdin: fire everything once
provider_program.py threads N COUNT   N threads fire COUNT times each, after a line on stdin
"""

from __future__ import annotations

import os
import sys
import threading

from usdt import Provider

TWELVE = (int, str, "s32", float, "f32", "u8", "u16", bytes, "s8", "u64", "s16", "s64")
VALUES = (7, "Grüße", -5, 1.5, -2.25, 255, 65535, b"raw", -128, 2**64 - 1, -32768, -1)


def main() -> None:
    """Do what the words say."""
    shop = Provider("shop")
    if sys.argv[1] == "plain":
        order = shop.probe("plain", int, str, "s32")
    else:
        order = shop.probe("order", *TWELVE)
    tick, nothing = shop.probe("tick", "u32", "u64"), shop.probe("nothing")
    shop.load(path=os.environ.get("PROVIDER_PATH"))
    print(os.getpid(), flush=True)
    if sys.argv[1] == "plain":
        for _ in sys.stdin:
            order.fire(-3, "cart", -5)
        return
    sys.stdin.readline()
    if sys.argv[1] != "threads":
        order.fire(*VALUES)
        nothing.fire()
        print(int(order.enabled), int(tick.enabled), flush=True)
    else:
        threads, count = map(int, sys.argv[2:])

        def fire(number: int) -> None:
            for index in range(count):
                tick.fire(number, index)

        running = [threading.Thread(target=fire, args=(number,)) for number in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        print("done", flush=True)
    sys.stdin.readline()
    print(int(order.enabled), int(tick.enabled), flush=True)
    shop.unload()


main()
