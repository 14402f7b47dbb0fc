"""Builds of a copy of this checkout, so that nothing is written into it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from house import ROOT

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ("EPOCH", "build", "checkout")

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
