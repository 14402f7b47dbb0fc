"""Opening files that others name, and the user's directory for caches.

That directory is ``$XDG_CACHE_HOME``, else ``~/.cache``. Root with the home directory of another
user (sudo) uses ``/var/cache``: the user could lead it elsewhere. Directories are opened one below
the other, and only those above our own may be links, for root none. Our own must be ours and not
writable by others.

What is true of the running kernel until it ends is kept in files with the ID of its boot.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import BinaryIO

__all__ = (
    "OWN_FOLDERS",
    "create_file",
    "load_of_boot",
    "open_at_once",
    "open_cache_folder",
    "size_of",
    "store_of_boot",
    "temporary_name",
)

#: The names of our directories in the user's for caches, as for :func:`open_cache_folder`.
OWN_FOLDERS = ("usdt-toolkit", "dwarf")

_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_ROOT_CACHE = "/var/cache"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_LENGTHS = struct.Struct("=QQ")  # of the text that says what the data are about, and of the data


def open_at_once(path: str) -> int:
    """Open a file for reading without waiting for a writer; return the descriptor.

    Reading waits as usual. A FIFO without a writer reads as empty.

    Raises:
        OSError, ValueError: as from os.open().
    """
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    if stat.S_ISDIR(os.fstat(number).st_mode):
        os.close(number)  # open() would leave it open
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    os.set_blocking(number, True)
    return number


def size_of(file: BinaryIO) -> int:
    """Return the bytes of a file, for progress; 0 of a pipe or of what is no file."""
    try:
        about = os.fstat(file.fileno())
    except (OSError, ValueError):
        return 0
    return about.st_size if stat.S_ISREG(about.st_mode) else 0


def open_cache_folder(names: Sequence[str], *, create: bool = True, base: str = "") -> int | None:
    """Open a directory below the user's cache directory; the caller closes the descriptor.

    Args:
        names: the names of our own directories, each below the one before.
        create: create what is missing.
        base: an absolute path that is used instead of the user's cache directory.

    Returns:
        The descriptor; None if there is no such directory that only this user can write to.
    """
    base = base or os.environ.get("XDG_CACHE_HOME", "")
    home = ""
    if not base.startswith("/"):
        home = base = os.path.expanduser("~")  # noqa: PTH111 - text
        if not os.geteuid() and not _is_ours(home):
            home, base = "", _ROOT_CACHE
    if not base.startswith("/"):
        return None
    above = [part for part in (*base.split("/"), ".cache" if home else "") if part]
    try:
        return _descend(above, names, create=create)
    except (OSError, ValueError):  # ValueError: a NUL in the path
        return None


def _is_ours(path: str) -> bool:
    try:
        return os.stat(path).st_uid == os.geteuid()  # noqa: PTH116 - text
    except (OSError, ValueError):
        return False


def _descend(above: Sequence[str], names: Sequence[str], *, create: bool) -> int:
    # Opens our directories below others.
    links = os.O_NOFOLLOW if not os.geteuid() else 0
    folder = os.open("/", os.O_PATH | _OPEN_FOLDER)
    for part in above:
        folder = _below(folder, part, os.O_PATH | links, create=create)
    for part in names:
        folder = _below(folder, part, os.O_NOFOLLOW, create=create)
        status = os.fstat(folder)
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            os.close(folder)
            raise PermissionError(errno.EPERM, "a directory that others can write to", part)
    return folder


def _below(folder: int, name: str, flags: int, *, create: bool) -> int:
    # Opens a directory in another, which is closed.
    try:
        try:
            return os.open(name, _OPEN_FOLDER | flags, dir_fd=folder)
        except FileNotFoundError:
            if not create:
                raise
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=folder)
            return os.open(name, _OPEN_FOLDER | flags, dir_fd=folder)
    finally:
        os.close(folder)


def temporary_name(name: str) -> str:
    """Return the name under which this process writes a file that is then renamed to ``name``."""
    return f".{name}.{os.getpid()}"


def create_file(folder: int, name: str) -> int:
    """Create a file for its owner only, in place of an earlier one; return a descriptor.

    Raises:
        OSError: the disk is full, or the directory is gone.
    """
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    return os.open(name, flags, 0o600, dir_fd=folder)


def load_of_boot(name: str, about: str) -> bytes | None:
    """Return what :func:`store_of_boot` stored since the machine started.

    Args:
        name: the file's name.
        about: what it must be about.

    Returns:
        The data; None if there are none, or about something else.
    """
    head = _head(about)
    folder = open_cache_folder(OWN_FOLDERS, create=False) if head else None
    if folder is None:
        return None
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        number = os.open(name, flags, dir_fd=folder)
    except OSError:
        return None
    finally:
        os.close(folder)
    with open(number, "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor
        status = os.fstat(number)
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            return None
        start = _LENGTHS.size + len(head)
        expected = _LENGTHS.pack(len(head), max(0, status.st_size - start)) + head
        try:
            data = file.readall() if file.read(start) == expected else None
            os.utime(number)  # the oldest are deleted first
        except OSError:
            return None
        return data


def store_of_boot(name: str, about: str, data: bytes | memoryview) -> None:
    """Store data that are true until the machine starts again; errors are ignored.

    No checksum is needed: what a crash of the machine leaves is of another boot.

    Args:
        name: the file's name; what it had before is replaced.
        about: what the data are about, in addition to the boot.
        data: the contents.
    """
    head = _head(about)
    folder = open_cache_folder(OWN_FOLDERS) if head else None
    if folder is None:
        return
    temporary = temporary_name(name)
    try:
        number = create_file(folder, temporary)
        with open(number, "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(_LENGTHS.pack(len(head), memoryview(data).nbytes) + head)
            file.write(data)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:  # the disk is full, or the directory is gone
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
    finally:
        os.close(folder)


def _head(about: str) -> bytes:
    # The boot, and what the data are about, of whole words; b"" if the boot has no ID.
    try:
        with open(_BOOT_ID, "rb") as file:  # noqa: PTH123 - importing pathlib takes longer
            head = file.read().strip() + b" " + about.encode("utf-8", "surrogateescape")
    except OSError:
        return b""
    return head + b" " * (-len(head) % 8)
