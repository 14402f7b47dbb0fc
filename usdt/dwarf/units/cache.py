"""A cache of decompressed sections and indexes: ``$XDG_CACHE_HOME/usdt-toolkit/dwarf``.

The directory is opened by :mod:`usdt.base.files`; files are opened, renamed and deleted by
its descriptor. Files are created atomically and are private to their owner. A header has the
format's version, the key, the length and a checksum. A file that does not match its header is
ignored. When the cache is full, the least recently used files are deleted.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import stat
import struct
import zlib
from typing import TYPE_CHECKING

from usdt.base.files import open_cache_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ("load", "store")

_VERSION = 3
_MAGIC = b"usdtdwrf"
_HEADER = struct.Struct("<8sIIQ32s8x")
_MAX_CACHE = 4 << 30  # bytes of all files together
_MAX_CHECKED = 16 << 20  # the checksum covers files up to this size, and samples of larger ones
_SAMPLES = 64
_SAMPLE = 1 << 16
_OWN_FOLDERS = ("usdt-toolkit", "dwarf")


def _file_name(key: str, kind: str) -> str:
    return f"{hashlib.sha256(key.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}.{kind}"


def _digest(key: str, kind: str) -> bytes:
    return hashlib.sha256(f"{kind}\0{key}".encode("utf-8", "surrogateescape")).digest()


def _checksum(data: memoryview) -> int:
    if len(data) <= _MAX_CHECKED:
        return zlib.crc32(data)
    value = 0
    for index in range(_SAMPLES):
        at = index * (len(data) - _SAMPLE) // (_SAMPLES - 1)
        value = zlib.crc32(data[at : at + _SAMPLE], value)
    return value


def load(key: str, kind: str) -> memoryview | None:
    """Return the contents stored under a key, as mapped memory; None if absent or damaged."""
    folder = open_cache_folder(_OWN_FOLDERS)
    if folder is None:
        return None
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = os.open(_file_name(key, kind), flags, dir_fd=folder)
    except OSError:
        return None
    finally:
        os.close(folder)
    try:
        return _mapped(descriptor, _digest(key, kind))
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)


def _mapped(descriptor: int, digest: bytes) -> memoryview | None:
    status = os.fstat(descriptor)
    ours = status.st_uid == os.geteuid() and not status.st_mode & 0o022
    if not ours or not stat.S_ISREG(status.st_mode) or status.st_size < _HEADER.size:
        return None
    data = memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
    magic, version, checksum, length, found = _HEADER.unpack_from(data)
    payload = data[_HEADER.size :]
    if (magic, version, length, found) != (_MAGIC, _VERSION, len(payload), digest):
        return None
    if _checksum(payload) != checksum:
        return None
    with contextlib.suppress(OSError):
        os.utime(descriptor)
    return payload


def store(
    key: str,
    kind: str,
    parts: Callable[[], Iterator[bytes]],
    *,
    size: int = 0,
    on_start: Callable[[memoryview], None] | None = None,
) -> memoryview | None:
    """Store the bytes that ``parts`` yields. Return them as mapped memory; None on failure.

    If ``parts`` raises an error, it is propagated, and nothing is stored.

    Args:
        key: identifies the contents.
        kind: the kind of contents, which is the file's suffix.
        parts: yields the bytes; each part is written before the next is requested.
        size: size of all parts in bytes; only needed with ``on_start``.
        on_start: called with the mapped memory before the first byte is written.
    """
    folder = open_cache_folder(_OWN_FOLDERS)
    if folder is None:
        return None
    try:
        return _stored(folder, key, kind, parts, size=size, on_start=on_start)
    finally:
        os.close(folder)


def _stored(
    folder: int,
    key: str,
    kind: str,
    parts: Callable[[], Iterator[bytes]],
    *,
    size: int,
    on_start: Callable[[memoryview], None] | None,
) -> memoryview | None:
    name = _file_name(key, kind)
    temporary = f".{name}.{os.getpid()}"
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o600, dir_fd=folder)
    except OSError:
        return None
    try:
        if on_start is not None:
            os.ftruncate(descriptor, _HEADER.size + size)
            mapped = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
            on_start(memoryview(mapped)[_HEADER.size :])
        _fill(descriptor, _digest(key, kind), parts())
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        made = _mapped(descriptor, _digest(key, kind))
    except OSError:  # the disk is full, or the directory is gone
        made = None
    finally:
        os.close(descriptor)
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
    _prune(folder)
    return made


def _fill(descriptor: int, digest: bytes, parts: Iterator[bytes]) -> None:
    os.lseek(descriptor, _HEADER.size, os.SEEK_SET)
    length = 0
    for part in parts:
        view = memoryview(part)
        length += len(view)
        while view:
            view = view[os.write(descriptor, view) :]
    checksum = 0
    if length:
        data = memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
        checksum = _checksum(data[_HEADER.size :])
    os.pwrite(descriptor, _HEADER.pack(_MAGIC, _VERSION, checksum, length, digest), 0)


def _prune(folder: int) -> None:
    # Delete the least recently used files first.
    found = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for one in entries:
            with contextlib.suppress(OSError):
                status = one.stat(follow_symlinks=False)
                found.append((status.st_mtime_ns, status.st_size, one.name))
    total = sum(size for _, size, _ in found)
    for _, size, name in sorted(found):
        if total <= _MAX_CACHE:
            return
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=folder)
            total -= size
