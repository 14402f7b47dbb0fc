"""``usdt cache``: what is kept between runs, most of it of debug information; clearing it."""

from __future__ import annotations

import json
import sys

import click

from usdt.base.errors import TargetError
from usdt.dwarf.units import cache as files

__all__ = ("cache",)

_KINDS = {
    "answers": "where functions, types and variables are that were asked for",
    "archive": "the toolkit as usdt fleet sends it",
    "index": "functions, types and variables of files, by name",
    "positions": "where the kernel's types are, until the next boot",
    "section": "decompressed debug information",
    "symbols": "names of the kernel's functions, until the next boot",
    "unwind": "unwind tables, compiled",
}


@click.command("cache")
@click.argument("action", required=False, type=click.Choice(["clear"]))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def cache(action: str | None, *, as_json: bool) -> None:
    """Show what is kept between runs, most of it of debug information; with clear, delete it.

    It is below $XDG_CACHE_HOME (~/.cache), of limited size, and made anew where it is missing.
    """
    path, kinds = files.contents()
    if action == "clear":
        try:
            files.clear()
        except OSError as err:
            raise TargetError(f"{path}: cannot be cleared: {err}") from err
    if as_json:
        record = {
            "cache": path or None,
            "limit": files.MAX_CACHE,
            "kinds": {one.kind: {"files": one.files, "bytes": one.size} for one in kinds},
            "cleared": action == "clear",
        }
        sys.stdout.write(json.dumps(record) + "\n")
        return
    if not kinds:
        sys.stdout.write("nothing is cached\n")
        return
    count, size = sum(one.files for one in kinds), sum(one.size for one in kinds)
    total = f"{_files(count)}, {_mib(size)}"
    if action == "clear":
        sys.stdout.write(f"{path}: deleted {total}\n")
        return
    sys.stdout.write(f"{path}: {total} of at most {files.MAX_CACHE >> 30} GiB\n")
    for one in kinds:
        what = _KINDS.get(one.kind, "left by a run that was killed" if not one.kind else "")
        row = f"  {one.kind:<9} {_files(one.files):>12} {_mib(one.size):>12}  {what}"
        sys.stdout.write(f"{row.rstrip()}\n")


def _files(count: int) -> str:
    return f"{count} {'file' if count == 1 else 'files'}"


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"
