"""Cgroups of version 2 for tests: made below the mounted root, and removed with what is in them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tracing_tools import until

from usdt.base.errors import TargetError
from usdt.cgroups.hierarchy import mounted_hierarchy

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("cgroup", "enter", "launch", "mounted")


def mounted() -> Path:
    """Where cgroups of version 2 are mounted; a skip where they are not."""
    try:
        return Path(mounted_hierarchy().mount)
    except TargetError as err:
        pytest.skip(str(err))


@contextlib.contextmanager
def cgroup(name: str = "", parent: Path | None = None) -> Iterator[Path]:
    """A new cgroup; at the end the processes in it and below it are killed."""
    place = (parent or mounted()) / (name or f"usdt-test-{uuid.uuid4().hex[:8]}")
    place.mkdir(parents=True)
    try:
        yield place
    finally:
        _remove(place)


def _remove(place: Path) -> None:
    for folder, _, _ in os.walk(place, topdown=False):
        procs = Path(folder, "cgroup.procs")
        for pid in procs.read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), 9)
        until(lambda procs=procs: not procs.read_text(), f"{folder} to be empty")
        os.rmdir(folder)  # noqa: PTH106


def enter(place: Path, pid: int) -> None:
    """Move a process into a cgroup."""
    (place / "cgroup.procs").write_text(str(pid))


def launch(place: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; it begins in a cgroup."""
    shell = f'echo $$ > "{place}/cgroup.procs" && exec "$@"'
    return subprocess.run(
        ["/bin/sh", "-c", shell, "sh", *map(str, words)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
