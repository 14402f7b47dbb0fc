"""The archive is kept between runs, and packed again when its sources have changed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from usdt.base.frozen import replace
from usdt.cli.fleet.kept_app import kept_app
from usdt.fleet.zipapp import AppSources, build_app

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache's directory, without an archive."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/usdt-toolkit/dwarf"


def test_a_kept_archive_is_not_packed_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = kept_app()
    assert first == build_app()
    assert [one.suffix for one in folder.iterdir()] == [".archive"]
    monkeypatch.setattr(AppSources, "pack", None)
    assert kept_app() == first


def test_a_damaged_archive_is_packed_again(folder: Path) -> None:
    first = kept_app()
    (kept,) = folder.iterdir()
    data = bytearray(kept.read_bytes())
    data[len(data) // 2] ^= 1
    kept.write_bytes(data)
    assert kept_app() == first


def test_without_a_cache_the_archive_is_packed(folder: Path) -> None:
    folder.parent.parent.write_text("no directory")
    assert kept_app() == build_app()


def edited(path: Path) -> None:
    path.write_text("other")


def edited_in_secret(path: Path) -> None:
    about = path.stat()
    path.write_text("three")
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


def touched(path: Path) -> None:
    os.utime(path, ns=(0, 0))


def replaced(path: Path) -> None:
    path.rename(path.with_suffix(".old"))
    path.write_text("first")


@pytest.mark.parametrize("change", [edited, edited_in_secret, touched, replaced])
def test_the_state_tells_that_a_file_has_changed(tmp_path: Path, change: object) -> None:
    path = tmp_path / "one.py"
    path.write_text("first")
    sources = AppSources((("usdt/one.py", str(path)),), {"usdt/commit.txt": b"1"})
    before = sources.state()
    assert sources.state() == before
    assert callable(change)
    change(path)
    assert sources.state() != before


def test_the_state_tells_that_entries_have_changed(tmp_path: Path) -> None:
    path = tmp_path / "one.py"
    path.write_text("first")
    sources = AppSources((("usdt/one.py", str(path)),), {"usdt/commit.txt": b"1"})
    others = [
        replace(sources, texts={"usdt/commit.txt": b"2"}),
        replace(sources, texts={}),
        replace(sources, files=(("usdt/two.py", str(path)),)),
        replace(sources, files=()),
    ]
    states = {one.state() for one in (sources, *others)}
    assert len(states) == 5
