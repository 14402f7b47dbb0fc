"""Programs that import others: what is found, in which order, and errors in what is imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from usdt.base.errors import ProgramError
from usdt.engine.programs.included.imports import with_imports
from usdt.engine.programs.syntax.parser import parse_program
from usdt.engine.programs.syntax.source import Source

if TYPE_CHECKING:
    from pathlib import Path

    from usdt.engine.programs.syntax.program import Program


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with programs that import one another."""
    (tmp_path / "more").mkdir()
    (tmp_path / "first.bt").write_text('import "more/second.bt";\nlet @m = hash(5);\nbegin { }')
    (tmp_path / "more/second.bt").write_text(
        'import "third.bt"; import "../first.bt"; struct two { int a; } begin { print(2); }'
    )
    (tmp_path / "more/third.bt").write_text("macro three() { 3 }")
    (tmp_path / "more/notes.txt").write_text("no program")
    return tmp_path


def _read(folder: Path, text: str) -> tuple[Source, Program]:
    source = Source(text, str(folder / "main.bt"))
    return with_imports(source, parse_program(source), ())


def test_what_is_imported_stands_before_what_imports_it(folder: Path) -> None:
    source, program = _read(folder, 'import "first.bt"; import "first.bt"; end { }')
    assert [one.map.name for one in program.maps] == ["@m"]
    assert [one.name for one in program.macros] == ["three"]
    assert [one.attach_points[0].text for one in program.probes] == ["begin", "begin", "end"]
    assert len(program.definitions) == 1
    places = [str(source.error(one.start, "here")) for one in program.probes]
    assert places == [
        f"{folder}/more/second.bt:1:64: here",
        f"{folder}/first.bt:3:1: here",
        f"{folder}/main.bt:1:39: here",
    ]


def test_a_folder_stands_for_its_programs(folder: Path) -> None:
    _, program = _read(folder, 'import "more";')
    assert [one.name for one in program.macros] == ["three"]
    assert len(program.probes) == 2


def test_bpftraces_own_library_is_there(folder: Path) -> None:
    source, program = _read(folder, 'import "stdlib/base.bt"; import "stdlib"; begin { }')
    assert source.imported == ()
    assert len(program.probes) == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('import "none.bt"; begin { }', "main.bt:1:1: import: {}/none.bt: no such file"),
        ('import "more/notes.txt";', "main.bt:1:1: import: {}/more/notes.txt is no program (.bt)"),
        ('import "stdlib/x.bpf.c";', "main.bt:1:1: import: {}/stdlib/x.bpf.c: no such file"),
        ('import "bad.bt";', "bad.bt:2:10: found '}}': expected a value"),
        ('import "set.bt";', "set.bt:1:1: config stands in the program itself"),
    ],
)
def test_what_cannot_be_imported(folder: Path, text: str, reason: str) -> None:
    (folder / "bad.bt").write_text("begin {\n $a = 1 +}")
    (folder / "set.bt").write_text("config = { max_strlen = 9 }")
    with pytest.raises(ProgramError) as caught:
        _read(folder, text)
    assert f"{folder}/{reason.format(folder)}" in str(caught.value)
