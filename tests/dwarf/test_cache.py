"""Where the cache of debug information is: nobody can lead it elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from as_user import own_parents
from house import ROOT
from skips import requires_root

if TYPE_CHECKING:
    from pathlib import Path

_NOBODY = 65534


def _stores(tmp_path: Path, environment: dict[str, str], *, user: int = 0) -> bool:
    # Whether a process of a user, with an environment of its own, stores and loads.
    code = """
import os, sys
from usdt.base import files
from usdt.dwarf.units import cache
files._ROOT_CACHE = sys.argv[1]
os.setgroups([])
os.setresgid(*[int(sys.argv[2])] * 3)
os.setresuid(*[int(sys.argv[2])] * 3)
made = cache.store("key", "x", lambda: iter((b"data",)))
print(made is not None and bytes(cache.load("key", "x")) == b"data")
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "var"), str(user)],
        env={"PYTHONPATH": str(ROOT)} | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout == "True\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory that every user can reach, and the home of a user in it."""
    for folder in (tmp_path, *own_parents(tmp_path)):
        folder.chmod(0o755)
    (tmp_path / "home").mkdir(mode=0o755)
    return tmp_path / "home"


@requires_root
@pytest.mark.parametrize("component", ["home", ".cache", "usdt-toolkit", "dwarf"])
def test_root_follows_no_link_to_its_cache(tmp_path: Path, home: Path, component: str) -> None:
    assert _stores(tmp_path, {"HOME": str(home)})
    path = home / ".cache/usdt-toolkit/dwarf"
    while path.name != component:
        path = path.parent
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    before = {*tmp_path.rglob("*")}
    assert not _stores(tmp_path, {"HOME": str(home)})
    assert {*tmp_path.rglob("*")} == before


@requires_root
def test_root_in_the_home_of_a_user_has_a_cache_of_its_own(tmp_path: Path, home: Path) -> None:
    os.chown(home, _NOBODY, _NOBODY)
    assert _stores(tmp_path, {"HOME": str(home)})
    assert not list(home.iterdir())
    assert len(list((tmp_path / "var/usdt-toolkit/dwarf").iterdir())) == 1


@requires_root
@pytest.mark.parametrize(
    ("component", "stored"), [(".cache", True), ("usdt-toolkit", False), ("dwarf", False)]
)
def test_a_user_may_put_a_link_above_the_cache_only(
    tmp_path: Path, home: Path, component: str, *, stored: bool
) -> None:
    os.chown(home, _NOBODY, _NOBODY)
    assert _stores(tmp_path, {"HOME": str(home)}, user=_NOBODY)
    path = home / ".cache/usdt-toolkit/dwarf"
    while path.name != component:
        path = path.parent
    path.rename(home / "elsewhere")
    path.symlink_to(home / "elsewhere")
    assert _stores(tmp_path, {"HOME": str(home)}, user=_NOBODY) is stored
