"""A cache of decompressed sections and indexes: ``$XDG_CACHE_HOME/usdt-toolkit/dwarf``.

The directory is opened by :mod:`usdt.base.files`; files are opened, renamed and deleted by
its descriptor. Files are created atomically and are private to their owner. A header has the
format's version, the key, the length and a checksum. A file that does not match its header is
ignored. When the cache is full, the least recently used files are deleted. Files about the running
kernel (:func:`usdt.base.files.store_of_boot`) are in the same directory, and counted with them.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import stat
import struct
import zlib
from typing import TYPE_CHECKING, NamedTuple

from usdt.base.errors import ElfError
from usdt.base.files import OWN_FOLDERS, create_file, open_cache_folder, temporary_name
from usdt.elf.file_bytes import FileBytes, OpenFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    SectionBytes = memoryview | FileBytes

__all__ = (
    "MAX_CACHE",
    "CachedKind",
    "Draft",
    "StoredSection",
    "clear",
    "contents",
    "drafts",
    "load",
    "open_section",
    "store",
)

_VERSION = 4
_MAGIC = b"usdtdwrf"
_HEADER = struct.Struct("<8sIIQ32s8x")
MAX_CACHE = 4 << 30  #: bytes of all files together
_MAX_CHECKED = 16 << 20  # the checksum covers files up to this size, and samples of larger ones
_MAX_CHECKED_SECTION = 1 << 20  # the same of sections, of which a run reads a hundredth
_SAMPLES = 64
_SAMPLE = 1 << 16
_SAMPLE_OF_SECTION = 1 << 12
_SECTION = "section"  # the kind
_TEMPORARY = ("/var/tmp", "/tmp")  # noqa: S108 - for files without a name
_UNNAMED = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC


def _file_name(key: str, kind: str) -> str:
    return f"{hashlib.sha256(key.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}.{kind}"


def _digest(key: str, kind: str) -> bytes:
    return hashlib.sha256(f"{kind}\0{key}".encode("utf-8", "surrogateescape")).digest()


def _is_ours(status: os.stat_result) -> bool:
    ours = status.st_uid == os.geteuid() and not status.st_mode & 0o022
    return ours and stat.S_ISREG(status.st_mode) and status.st_size >= _HEADER.size


def _checksum(data: SectionBytes, most: int = _MAX_CHECKED, sample: int = _SAMPLE) -> int:
    value = 0
    if len(data) <= most:
        for at in range(0, len(data), 1 << 20):
            value = zlib.crc32(data[at : at + (1 << 20)], value)
        return value
    for index in range(_SAMPLES):
        at = index * (len(data) - sample) // (_SAMPLES - 1)
        value = zlib.crc32(data[at : at + sample], value)
    return value


def _checksum_of_section(data: FileBytes) -> int:
    return _checksum(data, _MAX_CHECKED_SECTION, _SAMPLE_OF_SECTION)


def load(key: str, kind: str) -> memoryview | None:
    """Return the contents stored under a key, as mapped memory; None if absent or damaged."""
    folder = open_cache_folder(OWN_FOLDERS)
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
    if not _is_ours(os.fstat(descriptor)):
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


def store(key: str, kind: str, parts: Callable[[], Iterator[bytes]]) -> memoryview | None:
    """Store the bytes that ``parts`` yields. Return them as mapped memory; None on failure.

    If ``parts`` raises an error, it is propagated, and nothing is stored.

    Args:
        key: identifies the contents.
        kind: the kind of contents, which is the file's suffix.
        parts: yields the bytes; each part is written before the next is requested.
    """
    folder = open_cache_folder(OWN_FOLDERS)
    if folder is None:
        return None
    try:
        return _stored(folder, key, kind, parts)
    finally:
        os.close(folder)


def _stored(
    folder: int, key: str, kind: str, parts: Callable[[], Iterator[bytes]]
) -> memoryview | None:
    name = _file_name(key, kind)
    temporary = temporary_name(name)
    try:
        descriptor = create_file(folder, temporary)
    except OSError:
        return None
    try:
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


# ------------------------------------------------------------ sections, read instead of mapped


class StoredSection(NamedTuple):
    """The decompressed bytes of a section, or of its beginning, in a file of the cache.

    Attributes:
        file: the open file; the caller closes it.
        start: the position of the section's first byte in it.
        size: bytes of the section that it has.
    """

    file: OpenFile
    start: int
    size: int


def open_section(key: str, size: int) -> StoredSection | None:
    """Open what is stored of a section of ``size`` bytes; None if nothing is, or it is damaged."""
    folder = open_cache_folder(OWN_FOLDERS)
    if folder is None:
        return None
    name = _file_name(key, _SECTION)
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = os.open(name, flags, dir_fd=folder)
    except OSError:
        return None
    finally:
        os.close(folder)
    file = OpenFile(descriptor, f"{name} of the cache")
    try:
        length = _checked_length(descriptor, file, _digest(key, _SECTION))
    except (OSError, ElfError):
        length = None
    if length is None or length > size:
        file.close()
        return None
    return StoredSection(file, _HEADER.size, length)


def _checked_length(descriptor: int, file: OpenFile, digest: bytes) -> int | None:
    status = os.fstat(descriptor)
    if not _is_ours(status):
        return None
    magic, version, checksum, length, found = _HEADER.unpack(file.read(0, _HEADER.size))
    expected = (_MAGIC, _VERSION, status.st_size - _HEADER.size, digest)
    if (magic, version, length, found) != expected:
        return None
    if _checksum_of_section(FileBytes(file, _HEADER.size, length)) != checksum:
        return None
    with contextlib.suppress(OSError):
        os.utime(descriptor)
    return int(length)


class Draft:
    """A section that is being decompressed into a file without a name.

    Args:
        folder: descriptor of the cache's directory, which is closed with the draft; -1 if the file
            is elsewhere and so ends with the draft.
        descriptor: the file.

    Attributes:
        file: the file.
        start: the position of the section's first byte in it.
    """

    start = _HEADER.size

    def __init__(self, folder: int, descriptor: int) -> None:
        self._folder = OpenFile(folder, "")
        self._descriptor = descriptor
        self.file = OpenFile(descriptor, "a file of the cache")
        self._end = self.start

    def write(self, data: bytes) -> None:
        """Append to the section.

        Raises:
            OSError: the disk is full.
        """
        view = memoryview(data)
        while view:
            written = os.pwrite(self._descriptor, view, self._end)
            self._end += written
            view = view[written:]

    def keep(self, key: str, size: int) -> None:
        """Give the file its name, so that :func:`open_section` finds it; errors are ignored.

        Args:
            key: the section's key.
            size: number of the section's bytes that were written.
        """
        if self._folder.number < 0:
            return
        name = _file_name(key, _SECTION)
        temporary = temporary_name(name)
        with contextlib.suppress(OSError, ElfError):
            os.ftruncate(self._descriptor, self.start + size)
            checksum = _checksum_of_section(FileBytes(self.file, self.start, size))
            head = _HEADER.pack(_MAGIC, _VERSION, checksum, size, _digest(key, _SECTION))
            os.pwrite(self._descriptor, head, 0)
            folder = self._folder.number
            os.link(f"/proc/self/fd/{self._descriptor}", temporary, dst_dir_fd=folder)
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            _prune(folder)


def drafts() -> Iterator[Draft]:
    """Yield empty drafts in one directory after the other, for when the disk of one is full.

    The first is in the cache's directory. The others are in those for temporary files, and no later
    run finds them: in ``$TMPDIR``, in ``/var/tmp``, which is a disk more often than ``/tmp``, and
    there. A directory or file system that allows none is left out.
    """
    folder = open_cache_folder(OWN_FOLDERS)
    if folder is not None:
        try:
            descriptor = os.open(".", _UNNAMED, 0o600, dir_fd=folder)
        except OSError:
            os.close(folder)
        else:
            yield Draft(folder, descriptor)
    for path in (os.environ.get("TMPDIR", ""), *_TEMPORARY):
        try:
            descriptor = os.open(path, _UNNAMED, 0o600)
        except (OSError, ValueError):
            continue
        yield Draft(-1, descriptor)


# ------------------------------------------------------------ the size of all files


class CachedKind(NamedTuple):
    """The files of one kind in the cache.

    Attributes:
        kind: "index", "section", "unwind"…
        files: their number.
        size: bytes of all of them.
    """

    kind: str
    files: int
    size: int


def contents() -> tuple[str, list[CachedKind]]:
    """Return the path of the cache's directory and what is in it, sorted; "" if there is none."""
    folder = open_cache_folder(OWN_FOLDERS, create=False)
    if folder is None:
        return "", []
    try:
        kinds: dict[str, CachedKind] = {}
        for _, size, name in _files(folder):
            kind = "" if name.startswith(".") else name.rpartition(".")[2]
            known = kinds.get(kind, CachedKind(kind, 0, 0))
            kinds[kind] = CachedKind(kind, known.files + 1, known.size + size)
        path = os.readlink(f"/proc/self/fd/{folder}")  # noqa: PTH115 - text
        return path, sorted(kinds.values())
    finally:
        os.close(folder)


def clear() -> None:
    """Delete all files of the cache; running programs keep those that they use.

    Raises:
        OSError: a file cannot be deleted.
    """
    folder = open_cache_folder(OWN_FOLDERS, create=False)
    if folder is None:
        return
    try:
        for _, _, name in _files(folder):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
    finally:
        os.close(folder)


def _files(folder: int) -> list[tuple[int, int, str]]:
    # Time of the last use in nanoseconds, size in bytes, and name.
    found = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for one in entries:
            with contextlib.suppress(OSError):
                status = one.stat(follow_symlinks=False)
                found.append((status.st_mtime_ns, status.st_size, one.name))
    return found


def _prune(folder: int) -> None:
    # Delete the least recently used files first.
    found = _files(folder)
    total = sum(size for _, size, _ in found)
    for _, size, name in sorted(found):
        if total <= MAX_CACHE:
            return
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=folder)
            total -= size
