"""Tables of files in the cache: used again, and never those of damaged or other files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from kept_builds import compile_in
from skips import need_program

from usdt.base.machine import KERNEL_MACHINE
from usdt.elf.file import ElfFile
from usdt.unwind.compact_files import table_of

pytestmark = pytest.mark.skipif(KERNEL_MACHINE != "x86_64", reason="programs of x86-64")

SOURCE = "int more(int); int main(int n, char **v) { return more(n) + more(n + 1); }"
OTHER = "int more(int n) { char room[999]; room[n] = n; return room[n / 2]; }"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "usdt-toolkit" / "dwarf"


def program(tmp_path: Path, name: str, *options: str) -> Path:
    gcc = need_program("gcc")
    for part, source in (("main", SOURCE), ("more", OTHER)):
        (tmp_path / f"{part}.c").write_text(source)
    made = tmp_path / name
    parts = [str(tmp_path / "main.c"), str(tmp_path / "more.c")]
    compile_in(tmp_path, [gcc, "-w", *options, "-o", made, *parts])
    return made


def table(path: Path) -> tuple[bytes, bool]:
    """The rows of a file, and whether they were in the cache."""
    with ElfFile(str(path)) as elf:
        found = table_of(elf)
        assert found is not None
        return found.rows, found.cached


def test_a_table_is_made_once(folder: Path, tmp_path: Path) -> None:
    path = program(tmp_path, "once", "-O2", "-Wl,--build-id")
    rows, cached = table(path)
    assert not cached
    assert table(path) == (rows, True)
    assert [one.suffix for one in folder.iterdir()] == [".unwind"]
    assert table(Path(shutil.copy(path, tmp_path / "copy"))) == (rows, True)


def test_a_file_without_build_id_is_not_cached(folder: Path, tmp_path: Path) -> None:
    path = program(tmp_path, "without", "-O2", "-Wl,--build-id=none")
    assert not table(path)[1]
    assert not table(path)[1]
    assert not folder.exists()


def test_a_file_with_the_build_id_of_another_has_its_own_table(
    folder: Path, tmp_path: Path
) -> None:
    same = "-Wl,--build-id=0x0123456789abcdef0123456789abcdef01234567"
    first = table(program(tmp_path, "first", "-O2", same))
    second = table(program(tmp_path, "second", "-O0", same))
    assert first[0] != second[0]
    assert not second[1]
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "writable", "link", "folder"])
def test_a_file_of_the_cache_that_is_not_ours_or_damaged_is_not_used(
    folder: Path, tmp_path: Path, damage: str
) -> None:
    path = program(tmp_path, "damaged", "-O2", "-Wl,--build-id")
    rows, _ = table(path)
    (stored,) = folder.iterdir()
    data = stored.read_bytes()
    match damage:
        case "cut":
            stored.write_bytes(data[:-8])
        case "changed":
            stored.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        case "empty":
            stored.write_bytes(b"")
        case "writable":
            stored.chmod(0o666)
        case "link":
            moved = tmp_path / "moved"
            stored.rename(moved)
            stored.symlink_to(moved)
        case _:
            folder.chmod(0o777)
    assert table(path) == (rows, False)
