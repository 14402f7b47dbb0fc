"""Debug information without a directory for the cache: temporary files, else memory."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

import pytest
from debug_programs import compiled

from usdt.dwarf.info import DebugInfo
from usdt.dwarf.units import cache, sections
from usdt.elf.file import ElfFile


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that cannot be made, and small sections in files as large ones are."""
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    monkeypatch.setattr(sections, "_MIN_CACHED", 0)


def _functions(program: str, folder: Path) -> tuple[list[tuple[str, int]], int]:
    # The functions, and the number of files in a folder that are open meanwhile.
    with ElfFile(program) as elf, DebugInfo.of(elf) as info:
        found = sorted(info.functions())
        opened = 0
        for one in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):  # the directory's own is closed
                opened += str(one.readlink()).startswith(f"{folder}/")
        return found, opened


def test_sections_are_decompressed_into_unnamed_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plain").mkdir()
    expected, _ = _functions(compiled(tmp_path / "plain", "gcc"), tmp_path)
    program = compiled(tmp_path, "gcc", "-gz")
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    found, opened = _functions(program, folder)
    assert found == expected
    assert opened
    assert not [*folder.iterdir()]
    for name in ("/dev/null", str(tmp_path / "absent"), ""):
        monkeypatch.setenv("TMPDIR", name)
        assert _functions(program, folder) == (expected, 0)
    monkeypatch.setattr(cache, "_TEMPORARY", ())
    assert not [*cache.drafts()]
    assert _functions(program, folder) == (expected, 0)  # in memory


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small tmpfs")
def test_a_full_disk_is_left_for_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mount, folder = tmp_path / "full", tmp_path / "temporary"
    folder.mkdir()
    mount.mkdir()
    (tmp_path / "plain").mkdir()
    expected, _ = _functions(compiled(tmp_path / "plain", "gcc"), tmp_path)
    program = compiled(tmp_path, "gcc", "-gz")
    monkeypatch.setattr(sections, "_PIECE", 200)
    monkeypatch.setenv("XDG_CACHE_HOME", str(mount))
    monkeypatch.setenv("TMPDIR", str(folder))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "none", mount], check=True)
    try:
        found, opened = _functions(program, folder)
    finally:
        subprocess.run(["umount", "-l", mount], check=True)
    assert found == expected
    assert opened
