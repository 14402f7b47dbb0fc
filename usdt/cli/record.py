"""``usdt record``: write raw events to a file, at full speed."""

from __future__ import annotations

from typing import Any

import click

from usdt.base.machine import KERNEL_WORD_SIZE
from usdt.engine.cli.aggregate_options import span_options
from usdt.engine.cli.click_group import SIZE
from usdt.engine.cli.completion.values import complete_probes
from usdt.engine.cli.options import (
    attach_options,
    backlog_option,
    jit_map_option,
    stack_kinds,
    stop_options,
    string_option,
    struct_option,
    unwind_options,
)
from usdt.engine.cli.target_options import target_options

__all__ = ("record",)

# \b keeps click from filling the paragraph below it.
_HELP = """Write every hit of PROBE to a file, which usdt report decodes.

\b
usdt record -p 1234 'postgresql:query__*' -o queries.usdt
usdt record -p 1234 --spans 'postgresql:query__start(str(arg0))' postgresql:query__done -o slow.usdt
usdt record -c './server' 'myapp:request(str(arg1))' -d 10 -o requests.usdt
usdt report queries.usdt
"""


# While the recorder waits for a CPU or a slow disk, records fill the buffer: at two million records
# of 56 bytes per second, 64 MiB last for half a second, and 8 MiB for a tenth of one. 32-bit
# kernels have 128 MiB of address space for such mappings, and map a ring buffer twice.
_BUFFER = 64 << 20 if KERNEL_WORD_SIZE == 8 else 16 << 20


@click.command("record", help=_HELP)
@click.argument(
    "probes", metavar="PROBE...", nargs=-1, required=True, shell_complete=complete_probes
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    required=True,
    help="Write the recording to FILE; - is a pipe on standard output.",
)
@click.option(
    "--spans",
    is_flag=True,
    help="Record spans, as usdt spans shows them: PROBE is a function, or START END.",
)
@span_options
@target_options
@stop_options()
@string_option
@struct_option
@stack_kinds
@jit_map_option
@unwind_options
@click.option(
    "--buffer",
    type=SIZE,
    default=_BUFFER,
    help="Size of the ring buffer, default 64M (16M on 32-bit kernels).",
)
@backlog_option
@attach_options()
def record(**values: Any) -> int:
    """Write every hit of some probes to a file."""
    from usdt.engine.cli.record import run_record  # noqa: PLC0415 - not for --help

    return run_record("usdt", values, _build_id)


def _build_id(path: str) -> str:
    # "" if the traced file has no build ID or can no longer be read.
    from usdt.base.errors import ElfError, TargetError  # noqa: PLC0415
    from usdt.elf.file import ElfFile  # noqa: PLC0415

    try:
        with ElfFile(path) as elf:
            return elf.build_id or ""
    except (ElfError, TargetError):
        return ""
