"""Parquet files: a JSON stream, or rows that a formatter makes, as typed columns.

kinds      types of columns: of a compiled item, of a JSON value
columns    which columns a file has, and their names
formatter  records → rows, compiled as for JSON
arrays     values → Arrow arrays; the only module that imports pyarrow
tables     rows or JSON objects → one batch of columns
stream     an output file that takes a JSON stream, or rows, and writes row groups
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from usdt.engine.output.formatters.formatter import Formatter
    from usdt.engine.output.output_file import OutputFile

__all__ = ("is_parquet", "share_columns")


def is_parquet(path: str | None) -> bool:
    """Return whether the name of an output file asks for Parquet."""
    return path is not None and path.lower().endswith(".parquet")


def share_columns(output: OutputFile, form: Formatter) -> None:
    """Let a Parquet file have the columns of the rows that a formatter makes."""
    if is_parquet(output.name):
        from usdt.engine.output.parquet.formatter import RowFormatter  # noqa: PLC0415 - few runs
        from usdt.engine.output.parquet.stream import ParquetStream  # noqa: PLC0415

        if isinstance(output, ParquetStream) and isinstance(form, RowFormatter):
            output.columns = form.columns
            output.add_command_columns()
