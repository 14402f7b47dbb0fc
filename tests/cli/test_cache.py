"""``usdt cache``: what it shows is there, and clear deletes it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import jsonschema
import pytest
from json_schema import SCHEMA
from tracing_tools import run_usdt

from usdt.dwarf.units import cache

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a cache of one's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "usdt-toolkit/dwarf"


def _json(*words: str) -> dict[str, object]:
    done = run_usdt("cache", *words, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, object] = json.loads(done.stdout)
    jsonschema.validate(found, SCHEMA)
    return found


def test_it_shows_and_clears(folder: Path) -> None:
    assert run_usdt("cache").stdout == "nothing is cached\n"
    assert not folder.exists()
    assert cache.store("one", "index", lambda: iter((bytes(1 << 20),))) is not None
    assert cache.store("two", "unwind", lambda: iter((b"x",))) is not None
    shown = run_usdt("cache").stdout
    assert shown.startswith(f"{folder}: 2 files, 1.0 MiB of at most 4 GiB\n  index ")
    kinds = {"index": {"files": 1, "bytes": (1 << 20) + 64}, "unwind": {"files": 1, "bytes": 65}}
    known = {"cache": str(folder), "limit": 4 << 30, "kinds": kinds}
    assert _json() == {**known, "cleared": False}
    assert _json("clear") == {**known, "cleared": True}
    assert not list(folder.iterdir())
    assert _json()["kinds"] == {}


def test_clear_says_what_it_deleted(folder: Path) -> None:
    assert cache.store("one", "index", lambda: iter((bytes(1 << 20),))) is not None
    done = run_usdt("cache", "clear")
    assert done.stdout == f"{folder}: deleted 1 file, 1.0 MiB\n"


def test_a_cache_that_others_can_write_is_none(folder: Path) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    (folder / "x.index").write_bytes(b"theirs")
    assert _json("clear")["cache"] is None
    assert (folder / "x.index").exists()
