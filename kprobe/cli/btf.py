"""``kprobe btf``: print all types of the kernel or a file: raw, as C, or as JSON."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from kprobe.cli.lines import escaped_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.btf.reader import Btf

__all__ = ("btf",)


@click.command("btf")
@click.option("--base", metavar="FILE", help="BTF that FILE extends: for a module, its kernel's.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["raw", "c", "json"]),
    default="raw",
    help="raw and json are as bpftool prints them; c is a header that compiles.",
)
@click.argument("file", metavar="[FILE]", required=False)
def btf(file: str | None, base: str | None, form: str) -> None:
    """Print the types of the running kernel, or of a file with BTF.

    FILE is raw BTF, an ELF object, or a kernel module (.ko, .ko.gz, .ko.xz).
    """
    from usdt.btf.files import KERNEL  # noqa: PLC0415 - --help must not pay
    from usdt.btf.reader import Btf  # noqa: PLC0415 - --help must not pay

    found = Btf.from_file(file or KERNEL, base=Btf.from_file(base) if base else None)
    sys.stdout.writelines(_texts(found, form))


def _texts(found: Btf, form: str) -> Iterator[str]:
    if form == "c":
        from usdt.btf.c_dump import header  # noqa: PLC0415 - one of three

        yield from map(escaped_lines, header(found))
        return
    from usdt.btf.raw_dump import raw_lines, to_json  # noqa: PLC0415 - one of three

    if form == "raw":
        yield from map(escaped_lines, raw_lines(found))
        return
    start = '{"types":['
    for number in range(found.first, found.end):
        yield start + json.dumps(to_json(found, found.type(number)), separators=(",", ":"))
        start = ","
    yield "]}\n" if start == "," else start + "]}\n"
