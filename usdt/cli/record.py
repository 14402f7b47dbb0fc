"""``usdt record``: raw events at full speed, into a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from usdt.base.machine import KERNEL_WORD_SIZE
from usdt.cli.front import FRONT
from usdt.engine.cli.click_group import SIZE
from usdt.engine.cli.options import (
    attach_options,
    stack_kinds,
    stop_options,
    string_option,
    struct_option,
    target_options,
)

if TYPE_CHECKING:
    from usdt.symbolize import Symbolizer

__all__ = ("record",)

# \b keeps click from filling the paragraph below it.
_HELP = """Write every hit of PROBE to a file that usdt report reads.

\b
usdt record -p 1234 'postgresql:query__*' -o queries.usdt
usdt record -c './server' 'myapp:request(str(arg1))' -d 10 -o requests.usdt
usdt report queries.usdt
"""


# A recorder that is kept away from the processor takes nothing meanwhile: at two million records of
# 56 bytes a second 64 MiB last for half a second, 8 MiB for a tenth. 32-bit kernels have addresses
# for 128 MiB in all, and map a ring buffer twice.
_BUFFER = 64 << 20 if KERNEL_WORD_SIZE == 8 else 16 << 20


@click.command("record", help=_HELP)
@click.argument("probes", metavar="PROBE...", nargs=-1, required=True)
@click.option("-o", "--output", required=True, help="The file; - for a pipe on standard output.")
@target_options
@stop_options
@string_option
@struct_option
@stack_kinds
@click.option(
    "--buffer",
    type=SIZE,
    default=_BUFFER,
    help="Ring buffer, default 64M, with 32-bit kernels 16M: a slow disk is no loss.",
)
@attach_options
def record(**options: Any) -> int:
    """Write every hit of some probes to a file."""
    from usdt.engine.cli.record import Binaries, run_record  # noqa: PLC0415 - not for --help

    binaries = Binaries(_build_id, _symbolizer)
    return run_record(FRONT, {**options, "folded": False}, binaries)


def _symbolizer() -> Symbolizer:
    from usdt.symbolize import Symbolizer  # noqa: PLC0415 - only for stacks

    return Symbolizer(track_mappings=True)


def _build_id(path: str) -> str:
    # Of a file that is traced already: "" where it cannot be read again, or has none.
    from usdt.base.errors import ElfError, TargetError  # noqa: PLC0415
    from usdt.elf.file import ElfFile  # noqa: PLC0415

    try:
        with ElfFile(path) as elf:
            return elf.build_id or ""
    except (ElfError, TargetError):
        return ""
