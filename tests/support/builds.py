"""Builds of a copy of this checkout, so that nothing is written into it."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from house import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

__all__ = ("EPOCH", "build", "checkout", "distributions")

EPOCH = (
    "1700000000"  #: seconds since 1970: the time of the only commit of a copy, and of its builds
)

_IGNORED = (".git", ".venv", ".hypothesis", "out", "cross", "build", "dist", "*.egg-info")
_IGNORED += ("__pycache__", ".*_cache")
_GIT = ("git", "-c", "user.name=Somebody", "-c", "user.email=somebody@example.org")


def checkout(folder: Path) -> Path:
    """A copy of this checkout, with what is not committed, in a repository of one empty commit."""
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*_IGNORED), symlinks=True)
    dates = {"GIT_AUTHOR_DATE": EPOCH, "GIT_COMMITTER_DATE": EPOCH}
    for words in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "One commit")):
        subprocess.run([*_GIT, "-C", folder, *words], check=True, env=os.environ | dates)
    return folder


def build(source: Path, to: Path, *what: str) -> None:
    """Build what words of ``python -m build`` say, with the tools of this environment."""
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", to, *what, source],
        env=os.environ | {"SOURCE_DATE_EPOCH": EPOCH},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def distributions(folders: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A checkout, and a folder with its source distribution and the wheel made of that.

    The workers of a test run share them: whoever asks first builds them, and others wait.
    """
    base = folders.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # that of the run
    source, found = base / "distributions-of" / "one", base / "distributions"
    with (base / "distributions.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.exists():
            shutil.rmtree(source, ignore_errors=True)  # of a build that failed
            partial = base / "distributions.partial"
            shutil.rmtree(partial, ignore_errors=True)
            build(checkout(source), partial)
            partial.rename(found)
    return source, found
