"""A small service that ``make demo`` traces: it takes orders, prices them, and makes garbage.

It contains no tracing code: the probes belong to the interpreter. It runs under any Python 3.
"""

from __future__ import annotations

import gc
import itertools
import os
import sys
import time

CUSTOMERS = ("ada", "grace", "linus", "barbara")
PRICES = {"tea": 250, "coffee": 320, "cake": 480}


class Order:
    """An order and its item refer to each other, so only the garbage collector frees them."""

    def __init__(self, customer: str, item: str) -> None:
        self.customer = customer
        self.line = {"order": self, "item": item}


def price_of(item: str) -> int:
    """Return the price in cents."""
    return PRICES[item]


def charge(order: Order, cents: int) -> None:
    """Take the money. ``sys.addaudithook`` and the audit probe see the event."""
    sys.audit("demo.charge", order.customer, cents)


def handle_order(customer: str, item: str) -> None:
    """Price one order and charge for it."""
    order = Order(customer, item)
    charge(order, price_of(item))


def main() -> None:
    """Take five orders a second, until killed or until the parent process ends."""
    parent = os.getppid()
    orders = zip(itertools.cycle(CUSTOMERS), itertools.cycle(PRICES))
    for number, (customer, item) in enumerate(orders):
        handle_order(customer, item)
        if number % 5 == 4:
            gc.collect(number // 5 % 3)
        if os.getppid() != parent:
            break
        time.sleep(0.2)


if __name__ == "__main__":
    main()
