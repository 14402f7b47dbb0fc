"""What is worth keeping of debug files, below ``$XDG_CACHE_HOME/usdt-toolkit/dwarf``.

Files appear whole or not at all, are their owner's alone, and say what they are of: a header with
the format's version, the key, the length and a checksum. Whatever does not fit, or lies in a folder
that others can write to, is as good as absent. The oldest go when there is too much.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import stat
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ("load", "store")

_VERSION = 2
_MAGIC = b"usdtdwrf"
_HEADER = struct.Struct("<8sIIQ32s8x")
_MOST = 4 << 30  # bytes of all files together
_WHOLE = 16 << 20  # bytes up to which all of them are under the checksum; of more, samples
_SAMPLES = 64
_SAMPLE = 1 << 16


def _folder() -> Path | None:
    # Ours, and ours alone; None where there can be none.
    home = os.environ.get("XDG_CACHE_HOME", "")
    try:
        base = Path(home) if home.startswith("/") else Path.home() / ".cache"
        folder = base / "usdt-toolkit" / "dwarf"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except (OSError, RuntimeError):
        return None
    private = stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o022
    return folder if private and status.st_uid == os.geteuid() else None


def _file_name(key: str, kind: str) -> str:
    return f"{hashlib.sha256(key.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}.{kind}"


def _digest(key: str, kind: str) -> bytes:
    return hashlib.sha256(f"{kind}\0{key}".encode("utf-8", "surrogateescape")).digest()


def _checksum(data: memoryview) -> int:
    if len(data) <= _WHOLE:
        return zlib.crc32(data)
    value = 0
    for index in range(_SAMPLES):
        at = index * (len(data) - _SAMPLE) // (_SAMPLES - 1)
        value = zlib.crc32(data[at : at + _SAMPLE], value)
    return value


def load(key: str, kind: str) -> memoryview | None:
    """What was stored under a key, mapped; None if there is nothing, or nothing to be believed."""
    folder = _folder()
    if folder is None:
        return None
    path = folder / _file_name(key, kind)
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        number = os.open(path, flags)
    except OSError:
        return None
    try:
        return _mapped(number, _digest(key, kind))
    except (OSError, ValueError):
        return None
    finally:
        os.close(number)


def _mapped(number: int, digest: bytes) -> memoryview | None:
    status = os.fstat(number)
    ours = status.st_uid == os.geteuid() and not status.st_mode & 0o022
    if not ours or not stat.S_ISREG(status.st_mode) or status.st_size < _HEADER.size:
        return None
    data = memoryview(mmap.mmap(number, 0, access=mmap.ACCESS_READ))
    magic, version, checksum, length, found = _HEADER.unpack_from(data)
    payload = data[_HEADER.size :]
    if (magic, version, length, found) != (_MAGIC, _VERSION, len(payload), digest):
        return None
    if _checksum(payload) != checksum:
        return None
    with contextlib.suppress(OSError):
        os.utime(number)
    return payload


def store(
    key: str,
    kind: str,
    parts: Callable[[], Iterator[bytes]],
    *,
    size: int = 0,
    begun: Callable[[memoryview], None] | None = None,
) -> memoryview | None:
    """Keep what ``parts`` gives, and map it; None where it cannot be kept.

    What ``parts`` raises is passed on, and nothing is kept then.

    Args:
        key: under what.
        kind: the same; the file's suffix.
        parts: gives the bytes; has written what it gave when it is asked for more.
        size: of all of them, for ``begun``.
        begun: is given the mapped bytes before the first is written.
    """
    folder = _folder()
    if folder is None:
        return None
    temporary = folder / f".{_file_name(key, kind)}.{os.getpid()}"
    try:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        number = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        if begun is not None:
            os.ftruncate(number, _HEADER.size + size)
            mapped = mmap.mmap(number, 0, access=mmap.ACCESS_READ)
            begun(memoryview(mapped)[_HEADER.size :])
        _fill(number, _digest(key, kind), parts())
        temporary.rename(folder / _file_name(key, kind))
        made = _mapped(number, _digest(key, kind))
    except OSError:  # the disk is full, or the folder went
        made = None
    finally:
        os.close(number)
        with contextlib.suppress(OSError):
            temporary.unlink()
    _prune(folder)
    return made


def _fill(number: int, digest: bytes, parts: Iterator[bytes]) -> None:
    os.lseek(number, _HEADER.size, os.SEEK_SET)
    length = 0
    for part in parts:
        view = memoryview(part)
        length += len(view)
        while view:
            view = view[os.write(number, view) :]
    checksum = 0
    if length:
        data = memoryview(mmap.mmap(number, 0, access=mmap.ACCESS_READ))
        checksum = _checksum(data[_HEADER.size :])
    os.pwrite(number, _HEADER.pack(_MAGIC, _VERSION, checksum, length, digest), 0)


def _prune(folder: Path) -> None:
    # The least recently used go first.
    found = []
    with contextlib.suppress(OSError):
        for one in os.scandir(folder):
            with contextlib.suppress(OSError):
                status = one.stat(follow_symlinks=False)
                found.append((status.st_mtime_ns, status.st_size, one.path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= _MOST:
            return
        with contextlib.suppress(OSError):
            os.unlink(path)  # noqa: PTH108 - text from scandir
            total -= size
