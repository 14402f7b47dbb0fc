"""Files of a recorded process that are no longer there, found by build ID in other directories."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from skips import need_program
from symbol_programs import TELLER, compiled, running, told

from usdt.symbolize import FileSymbols, Symbolizer
from usdt.symbolize.sources.build_id_files import BuildIdFiles

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Recorded(NamedTuple):
    """A process that has ended, and its program, which was moved away."""

    snapshot: dict[str, Any]
    known: dict[str, int]
    program: Path
    path: Path
    build_id: str


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("recorded")
    path = compiled(folder, TELLER, "-O0", "-g", "-Wl,--build-id")
    with Symbolizer() as symbolizer, running(path) as process:
        known = told(process)
        snapshot = json.loads(json.dumps(symbolizer.snapshot(process.pid)))
    program = path.rename(tmp_path_factory.mktemp("kept") / "any-name")
    with FileSymbols(str(program)) as file:
        build_id = file.build_id
    assert build_id is not None
    return Recorded(snapshot, known, program, path, build_id)


def objcopy(*words: str | Path) -> None:
    subprocess.run([need_program("objcopy", "binutils"), *words], check=True, timeout=60)


def unstripped(recorded: Recorded, folder: Path) -> None:
    (folder / "deep/er").mkdir(parents=True)
    shutil.copy(recorded.program, folder / "deep/er/some.bin")


def debug_file(recorded: Recorded, folder: Path) -> None:
    objcopy("--only-keep-debug", recorded.program, folder / "x.dbg")


def stripped_beside_debug_file(recorded: Recorded, folder: Path) -> None:
    objcopy("--strip-all", recorded.program, folder / "a")
    debug_file(recorded, folder)


def tree(recorded: Recorded, folder: Path, root: str = "") -> None:
    below = folder / root / ".build-id" / recorded.build_id[:2]
    below.mkdir(parents=True)
    objcopy("--only-keep-debug", recorded.program, below / f"{recorded.build_id[2:]}.debug")


def system_tree(recorded: Recorded, folder: Path) -> None:
    tree(recorded, folder, "usr/lib/debug")


def later(recorded: Recorded, *directories: Path) -> Iterator[Symbolizer]:
    with Symbolizer(sources=BuildIdFiles([str(one) for one in directories])) as symbolizer:
        symbolizer.restore(1, recorded.snapshot)
        yield symbolizer


@pytest.mark.parametrize(
    "made", [unstripped, debug_file, stripped_beside_debug_file, tree, system_tree]
)
def test_the_functions_of_a_program_in_another_directory(
    recorded: Recorded, tmp_path: Path, made: Any
) -> None:
    made(recorded, tmp_path)
    (tmp_path / "text").write_text("no ELF file")
    for symbolizer in later(recorded, tmp_path):
        frame = symbolizer.frame(1, recorded.known["hidden"] + 5)
        assert (frame.symbol, frame.offset, frame.module) == ("hidden_function", 5, "teller")
        assert frame.file_id == recorded.build_id
        assert not symbolizer.notices


def test_source_lines_of_a_program_in_another_directory(recorded: Recorded, tmp_path: Path) -> None:
    stripped_beside_debug_file(recorded, tmp_path)
    for symbolizer in later(recorded, tmp_path):
        symbolizer.lines = True
        frame = symbolizer.frame(1, recorded.known["hidden"] + 5)
        assert frame.file.endswith("teller.c")


def test_the_code_of_a_program_whose_debug_file_is_the_system_s(
    recorded: Recorded, tmp_path: Path
) -> None:
    tree(recorded, tmp_path)
    debug = tmp_path / ".build-id" / recorded.build_id[:2] / f"{recorded.build_id[2:]}.debug"
    with FileSymbols(str(debug)) as alone:
        assert alone.frame_table is None
    sources = BuildIdFiles([str(recorded.program.parent)])
    with FileSymbols(str(debug), sources=sources) as file:
        symbol = file.find(0x1000 + (recorded.known["hidden"] & 0xFFF))
        assert symbol is not None
        assert file.frame_table is not None
        assert file.code(symbol.address, 4)


def test_another_build_in_its_place_is_said_and_not_used(
    recorded: Recorded, tmp_path: Path
) -> None:
    other = compiled(tmp_path, TELLER + "int more;", "-O0", "-Wl,--build-id", name="other")
    other.rename(recorded.path)
    try:
        for symbolizer in later(recorded, tmp_path):
            frame = symbolizer.frame(1, recorded.known["main"])
            assert (frame.symbol, frame.file_id) == ("", recorded.build_id)
            assert frame.link_address & 0xFFF == recorded.known["main"] & 0xFFF
            symbolizer.frame(1, recorded.known["hidden"])
            (notice,) = symbolizer.notices
    finally:
        recorded.path.unlink()
    assert notice.startswith(f"{recorded.path}: the recorded functions have no names: ")
    assert recorded.build_id in notice
    assert "--symbols DIR" in notice


def test_a_program_that_is_nowhere_is_said_once(recorded: Recorded, tmp_path: Path) -> None:
    for symbolizer in later(recorded, tmp_path):
        for name in ("main", "hidden", "exported"):
            assert not symbolizer.frame(1, recorded.known[name]).symbol
        (notice,) = symbolizer.notices
    assert "no such file is here" in notice


def test_files_that_no_stack_shows_are_not_looked_for(recorded: Recorded, tmp_path: Path) -> None:
    for symbolizer in later(recorded, tmp_path):
        assert symbolizer.frame(1, 0x10).module == ""
        assert not symbolizer.notices
