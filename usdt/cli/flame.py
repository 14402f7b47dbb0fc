"""``usdt flame``: a flame graph of a file, or the difference of two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from usdt.engine.cli.options import frame_options, symbol_options
from usdt.engine.cli.pictures.options import picture_options, pictures_of

if TYPE_CHECKING:
    from usdt.symbolize import Symbolizer

__all__ = ("flame",)

# \b keeps click from filling the paragraph below it.
_HELP = """Draw a flame graph of the stacks in FILE.

FILE is a recording, a stream that a command with --json has written, or folded stacks; - is
standard input. With BEFORE, boxes are red where AFTER has a larger share, and blue where it has a
smaller one.

\b
usdt flame queries.usdt -o queries.html
usdt flame before.json after.json -o change.svg
usdt flame stacks.folded --speedscope stacks.json
"""


@click.command("flame", help=_HELP)
@click.argument("files", metavar="[BEFORE] FILE", nargs=-1, required=True)
@click.option("-o", "--output", metavar="FILE.svg|.html", help="The same as --flame.")
@picture_options
@frame_options
def flame(files: tuple[str, ...], **values: Any) -> int:
    """Draw a flame graph."""
    if len(files) > 2:
        raise click.UsageError(f"flame takes one file, or BEFORE and AFTER, not {len(files)}")
    output = values.pop("output")
    if output and values["flame"]:
        raise click.UsageError("-o and --flame are the same: give one")
    values["flame"] = output or values["flame"]
    pictures = pictures_of(values)
    if pictures is None:
        raise click.UsageError("no file to write: add -o FILE.svg or -o FILE.html")
    if len(files) == 2 and (pictures.speedscope or pictures.pprof):
        raise click.UsageError("--speedscope and --pprof take one file: a difference is a picture")
    from usdt.engine.cli.pictures.files import PictureOptions, run_pictures  # noqa: PLC0415 - not for --help

    symbols = symbol_options(values)

    def symbolizer() -> Symbolizer:
        from usdt.symbolize import Symbolizer  # noqa: PLC0415 - only for recorded stacks
        from usdt.symbolize.sources.build_id_files import BuildIdFiles  # noqa: PLC0415

        return Symbolizer(sources=BuildIdFiles.of(symbols))

    options = PictureOptions(pictures, symbolizer, lines=values["lines"])
    return run_pictures(files[-1:], options, files[:-1])
