"""``kprobe btf``: print all types of the kernel or a file: raw, as C, or as JSON."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from usdt.base.text import printable_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.btf.reader import Btf

__all__ = ("btf",)


@click.command("btf")
@click.option("--base", metavar="FILE", help="BTF that FILE extends: for a module, its kernel's.")
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["raw", "c", "json"]),
    default="raw",
    help="raw and json are as bpftool prints them; c is a header that compiles.",
)
@click.argument("file", metavar="[FILE]", required=False)
def btf(file: str | None, base: str | None, output_format: str) -> None:
    """Print the types of the running kernel, or of a file with BTF.

    FILE is raw BTF, an ELF object, or a kernel module (.ko, .ko.gz, .ko.xz).
    """
    from usdt.btf.reader import Btf  # noqa: PLC0415 - --help must not pay

    before = Btf.from_file(base) if base else None
    types = Btf.from_kernel() if file is None else Btf.from_file(file, base=before)
    sys.stdout.writelines(_texts(types, output_format))


def _texts(types: Btf, output_format: str) -> Iterator[str]:
    if output_format == "c":
        from usdt.btf.dump.c_dump import header  # noqa: PLC0415 - only for this format

        yield from map(printable_lines, header(types))
        return
    from usdt.btf.dump.raw_dump import raw_lines, to_json  # noqa: PLC0415 - only for this format

    if output_format == "raw":
        yield from map(printable_lines, raw_lines(types))
        return
    start = '{"types":['
    for number in range(types.first, types.end):
        yield start + json.dumps(to_json(types, types.type(number)), separators=(",", ":"))
        start = ","
    yield "]}\n" if start == "," else start + "]}\n"
