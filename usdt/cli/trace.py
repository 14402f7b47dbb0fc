"""``usdt trace``: print every hit of some probes."""

from __future__ import annotations

from typing import Any

import click

from usdt.cli.front import FRONT
from usdt.engine.cli.options import trace_attach_options, trace_options
from usdt.engine.cli.trace import run_trace

__all__ = ("trace",)

# \b keeps click from filling the paragraph below it.
_HELP = """Print every hit of PROBE: provider:name, PATH:provider:name, or a function,
uprobe:TARGET:FUNCTION; with items.

\b
usdt trace -p 1234 'python:gc__start(arg0)'
usdt trace -p 1234 'postgresql:query__start(str(arg0))'
usdt trace -c './server --port 80' 'myapp:request(str(arg1), arg2 > 100)'
usdt trace /usr/bin/python3.11:python:gc__start
usdt trace -p 1234 'uprobe:libc:getenv(str(arg0), return)'
"""


@click.command("trace", help=_HELP)
@click.argument("probes", metavar="PROBE...", nargs=-1, required=True)
@trace_options
@trace_attach_options
def trace(**options: Any) -> int:
    """Print every hit of some probes."""
    return run_trace(FRONT, options)
