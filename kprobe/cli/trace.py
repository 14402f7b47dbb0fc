"""``kprobe trace``: print every hit of some probes."""

from __future__ import annotations

from typing import Any

import click

from kprobe.cli.front import FRONT
from usdt.engine.cli.options import attach_options, trace_options
from usdt.engine.cli.trace import run_trace

__all__ = ("trace",)

# \b keeps click from filling the paragraph below it.
_HELP = """Print every hit of PROBE, with items: of every process unless -p or -c says whose.

\b
kprobe trace 'ip_send_skb(skb->len, return)'
kprobe trace 'do_sys_openat2(return < 0, dfd, filename, return)'
kprobe trace 'tracepoint:sched:sched_process_exec(filename)'
kprobe trace 'syscall:openat(filename, flags, return)' -p 1234
kprobe trace 'syscall:open*(return < 0)'
kprobe trace 'rawtp:netif_receive_skb(skb->dev->name == "lo", skb->len)'
"""


@click.command("trace", help=_HELP)
@click.argument("probes", metavar="PROBE...", nargs=-1, required=True)
@trace_options
@attach_options
def trace(**options: Any) -> int:
    """Print every hit of some probes."""
    return run_trace(FRONT, options)
