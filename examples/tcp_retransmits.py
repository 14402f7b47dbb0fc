"""Show TCP retransmits as they happen: from where, to where, and in which state.

    sudo python3 examples/tcp_retransmits.py [-p PORT] [-n NUMBER] [-d SECONDS]

The tracepoint's fields have names, so nothing here depends on the kernel version.
"""

from __future__ import annotations

import argparse
import sys
import time
from ipaddress import ip_address
from typing import Any

import kprobe

STATES = (
    *("?", "ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2", "TIME_WAIT"),
    *("CLOSE", "CLOSE_WAIT", "LAST_ACK", "LISTEN", "CLOSING", "NEW_SYN_RECV"),
)
IPV6 = 10  # AF_INET6


def options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Show TCP retransmits as they happen.")
    parser.add_argument("-p", "--port", type=int, help="show only this port, local or remote")
    parser.add_argument("-n", "--number", type=int, help="stop after NUMBER lines")
    parser.add_argument("-d", "--duration", type=float, help="stop after SECONDS")
    return parser.parse_args()


def probe(port: int | None) -> str:
    """Return the probe, with the port as a predicate that the kernel evaluates."""
    fields = "family, saddr, sport, daddr, dport, saddr_v6, daddr_v6, state"
    chosen = f", sport == {port} || dport == {port}" if port else ""
    return f"tracepoint:tcp:tcp_retransmit_skb({fields}{chosen})"


def place(args: dict[str, Any], side: str) -> str:
    """Return address and port of the source (``s``) or destination (``d``)."""
    words = args[f"{side}addr_v6" if args["family"] == IPV6 else f"{side}addr"]
    address = ip_address(bytes(words))
    port = args[f"{side}port"]
    return f"[{address}]:{port}" if args["family"] == IPV6 else f"{address}:{port}"


def main() -> None:
    """Print one line per retransmit."""
    wanted = options()
    left = wanted.number
    end = None if wanted.duration is None else time.monotonic() + wanted.duration
    with kprobe.attach(probe(wanted.port)) as events:
        print("tracing TCP retransmits; end with ^C", file=sys.stderr)
        while left != 0 and (end is None or time.monotonic() < end):
            for event in events.poll(0.1)[:left]:
                args = event.args
                state = STATES[event.value("state", int)]
                print(f"{place(args, 's'):>24} -> {place(args, 'd'):24} {state}", flush=True)
                left = None if left is None else left - 1


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
    except kprobe.TracingError as err:
        sys.exit(f"Error: {err}")
