"""Programs and debug files from debuginfod servers, by build ID.

    SERVER/buildid/BUILDID/debuginfo     the debug file
    SERVER/buildid/BUILDID/executable    the program or library

What is downloaded is kept where the clients of elfutils and gdb keep it,
``$XDG_CACHE_HOME/debuginfod_client/BUILDID/debuginfo`` and ``…/executable``, or in
``$DEBUGINFOD_CACHE_PATH/BUILDID``; what they have downloaded is used, too. A file counts only if it
has the build ID.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Literal

from usdt.base.errors import ElfError, TargetError
from usdt.base.files import open_cache_folder, temporary_name
from usdt.base.terminal import progress
from usdt.elf.file import ElfFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from usdt.symbolize.sources.download import Bounds

    Kind = Literal["debuginfo", "executable"]

__all__ = ("Debuginfod",)

_CACHE = "debuginfod_client"


class Debuginfod:
    """A client of debuginfod servers; without servers, only of the cache.

    Args:
        servers: the URLs of servers, asked in this order.
        bounds: bounds of each download; None means those of the environment, or the default.

    Attributes:
        notices: messages for the user; the caller removes them.
    """

    def __init__(self, servers: Sequence[str] = (), *, bounds: Bounds | None = None) -> None:
        self.notices: list[str] = []
        self._servers = [*dict.fromkeys(server.rstrip("/") for server in servers)]
        self._bounds = bounds
        self._absent: set[tuple[str, Kind]] = set()

    def find(self, build_id: str, kind: Kind) -> ElfFile | None:
        """Return a file by build ID, in hexadecimal, from the cache or from a server.

        None if nobody has it. The caller closes it.
        """
        if (build_id, kind) in self._absent:
            return None
        create = bool(self._servers)
        with _folder(build_id, create=create) as folder:
            if folder is not None:
                found = _opened(folder, kind, build_id)
                if found is not None:
                    return found
                for server in tuple(self._servers):
                    if self._download(server, build_id, kind, folder):
                        return _opened(folder, kind, build_id)
            elif self._servers:
                self._servers.clear()
                self.notices.append(
                    "nothing is downloaded: the cache directory cannot be used; "
                    "set DEBUGINFOD_CACHE_PATH"
                )
        self._absent.add((build_id, kind))
        if create:
            _tidy(build_id)
        return None

    def _download(self, server: str, build_id: str, kind: Kind, folder: int) -> bool:
        # Whether the file is in the cache now.
        from usdt.symbolize.sources.download import AbsentError, DownloadError, TooLargeError  # noqa: PLC0415 - http

        temporary = temporary_name(kind)
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(temporary, flags, 0o600, dir_fd=folder)
        except OSError as err:
            return self._fail(server, f"the cache cannot be written: {err.strerror}")
        try:
            self._fetch(f"{server}/buildid/{build_id}/{kind}", descriptor)
            if not _has_build_id(descriptor, build_id):
                self.notices.append(
                    f"{server}: its {kind} of build ID {build_id} is a file without this build ID; "
                    "it is not used"
                )
                return False
            os.rename(temporary, kind, src_dir_fd=folder, dst_dir_fd=folder)
        except AbsentError:
            return False
        except TooLargeError as err:
            self.notices.append(f"{server}: its {kind} of build ID {build_id} is not used: {err}")
            return False
        except DownloadError as err:
            return self._fail(server, f"{err}")
        except OSError as err:
            return self._fail(server, f"the cache cannot be written: {err.strerror}")
        finally:
            progress.erase()
            os.close(descriptor)
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
        return True

    def _fetch(self, url: str, descriptor: int) -> None:
        from usdt.symbolize.sources.download import Bounds, download  # noqa: PLC0415

        def show(done: int, total: int) -> None:
            progress.report(f"downloading {url}, {done / (1 << 20):.1f} MiB", done, total)

        progress.report(f"downloading {url}")  # the wait for the first byte counts as well
        download(url, descriptor, self._bounds or Bounds.of_environment(), show)

    def _fail(self, server: str, why: str) -> bool:
        self._servers.remove(server)
        self.notices.append(f"{server}: {why}; this server is not asked again")
        return False


@contextlib.contextmanager
def _folder(build_id: str, *, create: bool) -> Iterator[int | None]:
    folder = _cache_folder(build_id, create=create)
    try:
        yield folder
    finally:
        if folder is not None:
            os.close(folder)


def _cache_folder(*names: str, create: bool) -> int | None:
    path = os.path.abspath(os.environ.get("DEBUGINFOD_CACHE_PATH") or "/")  # noqa: PTH100 - text
    above, _, name = path.rpartition("/")
    if name:
        return open_cache_folder((name, *names), create=create, base=above or "/")
    return open_cache_folder((_CACHE, *names), create=create)


def _tidy(build_id: str) -> None:
    # Removes the directory made for a download if nothing was downloaded.
    parent = _cache_folder(create=False)
    if parent is not None:
        with contextlib.suppress(OSError):  # it has another file
            os.rmdir(build_id, dir_fd=parent)
        os.close(parent)


def _opened(folder: int, kind: Kind, build_id: str) -> ElfFile | None:
    # The clients of elfutils keep an empty file for what no server had.
    try:
        elf = ElfFile(f"/proc/self/fd/{folder}/{kind}", name=f"{build_id}/{kind}")
    except (ElfError, TargetError):
        return None
    if elf.build_id == build_id:
        return elf
    elf.close()
    return None


def _has_build_id(descriptor: int, build_id: str) -> bool:
    try:
        with ElfFile(f"/proc/self/fd/{descriptor}", name=build_id) as elf:
            return elf.build_id == build_id
    except (ElfError, TargetError):
        return False
