"""The table of the ``kprobe`` command: name of each command, its module, and its line of help."""

from __future__ import annotations

import click

from usdt.engine.cli.click_group import MORE_HELP, LazyGroup, version_option
from usdt.engine.cli.commands import tracing_commands

__all__ = ("kprobe",)


_PROBES = "A probe is FUNCTION, tracepoint:CATEGORY:EVENT, rawtp:EVENT, or syscall:NAME."

_EXAMPLES = {
    "trace": """
kprobe trace inet_bind
kprobe trace 'ip_send_skb(skb->len, return)'
kprobe trace 'do_sys_openat2(return < 0, dfd, filename, return)'
kprobe trace 'tracepoint:sched:sched_process_exec(filename)'
kprobe trace 'syscall:openat(filename, flags, return)' -p 1234
kprobe trace 'syscall:open*(return < 0)'
kprobe trace 'rawtp:netif_receive_skb(skb->dev->name == "lo", skb->len)'
""",
    "spans": """
kprobe spans 'syscall:openat(filename, return)' --slower 1ms
kprobe spans 'rawtp:block_rq_issue' rawtp:block_rq_complete --key rq --slowest 10
""",
    "count": """
kprobe count 'syscall:*' -c 'ls -l'
kprobe count 'tracepoint:sched:*' -d 5 --top 10
kprobe count tracepoint:skb:kfree_skb --by 'location,reason' -i 1
""",
    "hist": """
kprobe hist 'syscall:write(count)' --by comm
kprobe hist 'tracepoint:block:block_rq_issue(bytes)' -d 10
""",
    "stats": """
kprobe stats 'syscall:read(return, return >= 0)' --by comm
kprobe stats 'tracepoint:net:net_dev_queue(len)' --by name
""",
    "latency": """
kprobe latency vfs_fsync_range --unit us --by comm
kprobe latency syscall:fsync 'syscall:fsync(return)'
kprobe latency rawtp:block_rq_issue rawtp:block_rq_complete --key rq --unit us
""",
    "heatmap": """
kprobe heatmap rawtp:block_rq_issue rawtp:block_rq_complete --key rq --unit us
kprobe heatmap 'syscall:write(count)' -i 0.5 -d 60 -o writes.svg
""",
}

_COMMANDS = {
    **tracing_commands("kprobe", _PROBES, _EXAMPLES),
    "run": ("usdt.engine.cli.programs.command:run", "Run a program in bpftrace's language."),
    "top": ("kprobe.cli.top:top", "Show rates and latencies of probes, live."),
    "list": ("kprobe.cli.listing:list_functions", "List functions, tracepoints and system calls."),
    "info": ("kprobe.cli.info:info", "Show C prototypes, fields of tracepoints, and types."),
    "dump": ("kprobe.cli.dump:dump", "Show typed data as text."),
    "btf": ("kprobe.cli.btf:btf", "Print all types: raw as bpftool does, as C, or as JSON."),
    "event": ("kprobe.cli.event:event", "Define and watch events of the kernel's event tracer."),
}


class _Group(LazyGroup):
    # ``kprobe 'PROBE(ITEM, …)'`` means ``kprobe trace 'PROBE(ITEM, …)'``.
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and set(":(") & set(args[0]):
            args = ["trace", *args]
        return super().resolve_command(ctx, args)


# \b keeps click from filling the paragraph below it.
_HELP = """Trace kernel functions, tracepoints and system calls by name and type.

\b
kprobe trace 'syscall:*(return)' -c 'cat /etc/hostname'
kprobe count 'tracepoint:sched:*' -d 5
kprobe 'do_sys_openat2(filename, return)'     # kprobe trace, in short
"""


@click.group(cls=_Group, commands_at=_COMMANDS, help=_HELP, epilog=MORE_HELP)
@version_option
def kprobe() -> None:
    """Trace kernel functions, tracepoints and system calls by name and type."""
