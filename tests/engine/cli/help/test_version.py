"""What ``--version`` says: the commit if it is known, and which extras are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from house import ROOT

from usdt.base.version import VERSION


def _version(folder: Path, *environment: Path) -> list[str]:
    # Of the package in a folder, with what the folders of the environment have.
    path = ":".join(map(str, (folder, *environment)))
    done = subprocess.run(
        [sys.executable, "-B", "-S", "-m", "usdt", "--version"],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert not done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages without a checkout around them."""
    folder = tmp_path_factory.mktemp("copy")
    for name in ("usdt", "kprobe"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    click = Path(sysconfig.get_path("purelib"), "click")
    shutil.copytree(click, folder / "click", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def _installed(folder: Path, name: str, *requires: str) -> None:
    # What an installer leaves of a distribution.
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0"]
    (info / "METADATA").write_text("\n".join([*lines, *requires, ""]))


def test_an_unknown_commit_and_unknown_extras_are_left_out(copy: Path) -> None:
    assert _version(copy) == [f"usdt {VERSION}"]


def test_the_commit_of_a_build_is_shown(copy: Path, tmp_path: Path) -> None:
    shutil.copytree(copy, tmp_path, dirs_exist_ok=True)
    (tmp_path / "usdt" / "commit.txt").write_text("0123456789ab\n")
    assert _version(tmp_path) == [f"usdt {VERSION} (commit 0123456789ab)"]


def test_extras_that_lack_a_package_say_how_to_install_them(copy: Path, tmp_path: Path) -> None:
    _installed(
        tmp_path,
        "usdt-toolkit",
        'Requires-Dist: one>=1; extra == "near"',
        'Requires-Dist: one; extra == "far"',
        'Requires-Dist: two>=2,<3; extra == "far"',
        'Requires-Dist: tests; extra == "dev"',
        "Requires-Dist: click>=8.1",
    )
    lines = _version(copy, tmp_path)[1:]
    assert lines == ["extras: none", "not installed: pip install 'usdt-toolkit[far,near]'"]
    _installed(tmp_path, "one")
    lines = _version(copy, tmp_path)[1:]
    assert lines == ["extras: near", "not installed: pip install 'usdt-toolkit[far]'"]
    _installed(tmp_path, "two")
    assert _version(copy, tmp_path)[1:] == ["extras: far, near"]
