"""Block I/O for tests: a file on a block device, or where there is none, a loop device by its name.

A guest of tests/vm has no disk: what it has in memory becomes a disk by the module loop.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("on_block_device",)

_CONTROL = Path("/dev/loop-control")
_GET_FREE, _SET_FD, _CLEAR_FD = 0x4C82, 0x4C00, 0x4C01  # include/uapi/linux/loop.h
_SIZE = 64 << 20


@contextlib.contextmanager
def on_block_device(path: Path) -> Iterator[None]:
    """What is written to ``path``, and synced, reaches a block device."""
    if os.major(path.parent.stat().st_dev):
        path.touch()  # for whoever removes it: what writes it may not have begun by then
        yield
        return
    if not _CONTROL.exists():
        pytest.skip(f"needs a file system on a block device at {path.parent}, or the module loop")
    with _loop_device() as device:
        path.unlink(missing_ok=True)
        path.symlink_to(device)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def _loop_device() -> Iterator[str]:
    backing = os.memfd_create("disk")
    try:
        os.ftruncate(backing, _SIZE)
        device, disk = _taken(backing)
        try:
            yield device
        finally:
            fcntl.ioctl(disk, _CLEAR_FD)
            os.close(disk)
    finally:
        os.close(backing)


def _taken(backing: int) -> tuple[str, int]:
    # The kernel names a free device and holds it for nobody: another test may be faster.
    while True:
        with _CONTROL.open() as control:
            device = f"/dev/loop{fcntl.ioctl(control, _GET_FREE)}"
        disk = os.open(device, os.O_RDWR)
        try:
            fcntl.ioctl(disk, _SET_FD, backing)
        except OSError as err:
            os.close(disk)
            if err.errno != errno.EBUSY:
                raise
        else:
            return device, disk
