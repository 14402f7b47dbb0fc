"""Fixtures are those of another checkout with the same sources, else made anew."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from house import ROOT

if TYPE_CHECKING:
    from pathlib import Path

# What make does, as far as it matters here: make what is older than its source, and say so.
_MAKE = """
mkdir -p cross/arm out/O2 out/dwarf
for made in cross/arm/a out/O2/a; do [ $made -nt a.c ] || { cp a.c $made; echo made; }; done
[ -e out/dwarf/a ] || { cp a.c out/dwarf/a; echo typed; }
"""
_ALL = "made\nmade\ntyped\n"


def _made(folder: Path, source: str, cache: Path, make: str = _MAKE) -> str:
    # What is told in a checkout, which is new unless it is there.
    (folder / "tools").mkdir(parents=True, exist_ok=True)
    (folder / "testbins/dwarf").mkdir(parents=True, exist_ok=True)
    for name in ("fixtures.sh", "cross.sh"):
        shutil.copy(ROOT / "tools" / name, folder / "tools")
    (folder / "testbins/a.c").write_text(source)
    done = subprocess.run(
        [folder / "tools/fixtures.sh", "sh", "-c", make],
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_checkouts_share_them_while_sources_are_the_same(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert _made(tmp_path / "one", "1", cache) == _ALL
    assert _made(tmp_path / "two", "1", cache) == "typed\n"
    for name in ("cross/arm/a", "out/O2/a"):
        assert (tmp_path / "two/testbins" / name).read_text() == "1"
    assert _made(tmp_path / "three", "2", cache) == _ALL
    assert _made(tmp_path / "one", "2", cache) == "made\n" * 2, "what is there stays, and is mended"
    assert (tmp_path / "one/testbins/cross/arm/a").read_text() == "2"
    assert len([*(cache / "usdt-toolkit/testbins").iterdir()]) == 2


def test_what_failed_is_not_kept(tmp_path: Path) -> None:
    assert _made(tmp_path / "one", "1", tmp_path / "cache", f"{_MAKE} false") == _ALL
    assert _made(tmp_path / "two", "1", tmp_path / "cache") == _ALL


@pytest.mark.parametrize("cache", ["/dev/null", "/proc/none"])
def test_each_makes_its_own_where_nothing_can_be_kept(tmp_path: Path, cache: str) -> None:
    for name in ("one", "two"):
        assert _made(tmp_path / name, "1", tmp_path / cache) == _ALL
