"""Headers that programs include: where they are, and what is none."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from program_text import text

from usdt.engine.programs.included.headers import header_reader
from usdt.engine.programs.syntax.parser import parse_program
from usdt.engine.programs.syntax.source import Source

if TYPE_CHECKING:
    from pathlib import Path


def test_a_program_gets_the_constants_of_a_header_beside_it(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/b.h").write_bytes(b"#define LIMIT 42 /* \xff */\n")
    source = Source('#include "a/b.h"\nbegin { LIMIT }', "test.bt")
    program = parse_program(source, read_header=header_reader(str(tmp_path)))
    assert text(program.probes[0].block) == "{ 42 }"


def test_headers_that_are_none_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "folder.h").mkdir()
    os.mkfifo(tmp_path / "pipe.h")
    read = header_reader(str(tmp_path))
    assert [read(path) for path in ("folder.h", "pipe.h", "none.h", "a\0b.h", "")] == [None] * 5


def test_without_a_folder_the_files_of_the_system_are_looked_for(tmp_path: Path) -> None:
    (tmp_path / "only_here.h").write_text("#define A 1\n")
    assert header_reader("")("only_here.h") is None
