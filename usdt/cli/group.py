"""The table of the ``usdt`` command: name of each command, its module, and its line of help."""

from __future__ import annotations

import click

from usdt.engine.cli.click_group import MORE_HELP, LazyGroup, version_option
from usdt.engine.cli.commands import tracing_commands

__all__ = ("usdt",)

_PROBES = "A probe is provider:name, PATH:provider:name, or uprobe:TARGET:FUNCTION."

_EXAMPLES = {
    "trace": """
usdt trace -p 1234 'python:gc__start(arg0)'
usdt trace -p 1234 'postgresql:query__start(str(arg0))'
usdt trace -c './server --port 80' 'myapp:request(str(arg1), arg2 > 100)'
usdt trace /usr/bin/python3.11:python:gc__start
usdt trace -p 1234 'uprobe:libc:getenv(str(arg0), return)'
""",
    "spans": """
usdt spans -p 1234 'uprobe:libc:getaddrinfo(str(arg0), return)' --slower 10ms
usdt spans -p 1234 'postgresql:query__start(str(arg0))' postgresql:query__done --slower 10ms
usdt spans -p 1234 'uprobe:./server:handle_*' --tree
""",
    "count": """
usdt count -p 1234 'postgresql:*'
usdt count -a '*:*' -d 10 --top 20
usdt count -p 1234 'postgresql:query__start' --by 'str(arg0)' --interval 1
usdt count -a uprobe:libc:malloc --by comm
""",
    "hist": """
usdt hist -p 1234 'myapp:request(arg2)'
usdt hist -p 1234 'myapp:request(arg2, arg1 == 7)' --linear 0:1000:50 --by comm
""",
    "stats": """
usdt stats -p 1234 'myapp:request(arg2)' --by 'str(arg1)'
""",
    "latency": """
usdt latency -p 1234 python:gc__start python:gc__done
usdt latency -p 1234 myapp:begin myapp:done --key arg0 --unit us --by comm
""",
    "heatmap": """
usdt heatmap -p 1234 python:gc__start python:gc__done
usdt heatmap -p 1234 'myapp:request(arg2)' -i 0.5 -d 60 -o request.svg
""",
}

_TRACING = tracing_commands("usdt", _PROBES, _EXAMPLES)
_COMMANDS = {
    "list": (
        "usdt.cli.files.listing:list_probes",
        "List probes of files, libraries and processes.",
    ),
    "info": ("usdt.cli.files.info:info", "Show call sites, and the location of each argument."),
    "check": ("usdt.cli.files.check:check", "Check that probes would attach and decode."),
    "trace": _TRACING["trace"],
    "record": ("usdt.cli.record:record", "Write every hit to a file, at full speed."),
    "report": ("usdt.cli.report:report", "Decode a recording."),
    **_TRACING,
    "run": ("usdt.engine.cli.programs.command:run", "Run a program in bpftrace's language."),
    "top": ("usdt.cli.top:top", "Show rates and latencies of probes, live."),
    "merge": ("usdt.cli.merge:merge", "Add up the results of several machines or runs."),
    "flame": ("usdt.cli.flame:flame", "Draw a flame graph of a file, or of two."),
    "fleet": (
        "usdt.cli.fleet.command:fleet",
        "Run a command on many machines, and add up its results.",
    ),
    "export": ("usdt.cli.export:export", "Export probes as metrics for Prometheus."),
    "events": (
        "usdt.cli.files.events:events",
        "Show probes as definitions for uprobe_events of tracefs.",
    ),
    "attach": ("usdt.cli.attach:attach", "Attach a pinned BPF program to a probe."),
    "decode": ("usdt.cli.files.decode:decode", "Decode argument specs, for any CPU."),
    "features": ("usdt.cli.features:features", "Show what this kernel supports."),
    "cache": ("usdt.cli.cache:cache", "Show what is kept between runs, or clear it."),
    "schema": ("usdt.cli.schema:schema", "Print the JSON Schema of what --json prints."),
    "examples": ("usdt.cli.examples:examples", "Show example programs that use the Python API."),
}


# \b keeps click from filling the paragraph below it.
_HELP = """Trace USDT probes and functions of running programs.

\b
usdt list /usr/bin/python3.11
usdt trace -p PID 'python:gc__start(arg0)'
usdt trace -p PID 'postgresql:query__start(str(arg0))'
"""


@click.group(cls=LazyGroup, commands_at=_COMMANDS, help=_HELP, epilog=MORE_HELP)
@version_option
def usdt() -> None:
    """Trace USDT probes and functions of running programs."""
