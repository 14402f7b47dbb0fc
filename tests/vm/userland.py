"""A userland for a guest, made of Debian packages without running any of them.

Packages are read as archives and written as one: no root, no foreign code, no folder in between.
What no test looks at is left out.
"""

from __future__ import annotations

import fnmatch
import re
import stat
import subprocess
import tarfile
from typing import TYPE_CHECKING, Any

from vm.archive import Entry, directory, file, symlink

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator
    from pathlib import Path

__all__ = ("read_packages", "skeleton")

# Since bookworm /bin is /usr/bin and so on, whatever a package says.
_MERGED = ("bin", "lib", "lib32", "lib64", "sbin")

_LEFT_OUT = (
    *("usr/share/doc/*", "usr/share/man/*", "usr/share/info/*", "usr/share/locale/*"),
    *(
        "usr/share/lintian/*",
        "usr/share/bash-completion/*",
        "usr/share/perl5/*",
        "usr/share/mime/*",
    ),
    *("usr/lib/*/gconv/*", "usr/lib32/gconv/*", "usr/lib/*/perl/*", "usr/share/i18n/*"),
    *("usr/lib/systemd/*", "usr/lib/udev/*", "var/*", "usr/share/debconf/*", "usr/lib/dpkg/*"),
    *("usr/lib/python3*/idlelib/*", "usr/lib/python3*/pydoc_data/*", "usr/lib/python3*/lib2to3/*"),
    *("usr/lib/python3*/ensurepip/*", "usr/lib/python3*/distutils/*", "usr/lib/python3*/tkinter/*"),
    *("usr/lib/python3*/test/*", "usr/lib/*/ldscripts/*", "usr/lib/*/bfd-plugins/*"),
    *("usr/lib/*/libdb-*", "usr/lib/*/gprofng/*", "usr/lib/*/libgprofng*", "*/__pycache__/*"),
    *("usr/bin/*gold", "usr/bin/*dwp", "usr/bin/gp-*", "usr/bin/gprof*", "usr/bin/*lto-dump*"),
    *("usr/bin/*-gp-*", "usr/bin/*-gprof*", "usr/bin/dpkg*", "usr/share/dpkg/*", "usr/sbin/fsck*"),
    *("usr/sbin/mkfs.[!x]*", "usr/lib/gcc/*/lto*", "usr/lib/gcc/*san*", "usr/lib/*/lib?san.so*"),
    *("usr/lib/*/lib??san.so*", "usr/lib/*-linux-gnu/lib[cm]*.[0-9]*.a", "usr/lib/*/lib[cm].a"),
    *("usr/bin/*gcov*", "usr/lib/gcc/*/libgomp.a", "usr/lib/gcc/*/libquadmath.a"),
)
_DROP = re.compile("|".join(map(fnmatch.translate, _LEFT_OUT)))


def skeleton(packages: Container[str]) -> dict[str, Entry]:
    """What no package has: mount points, users, the folders that are links since bookworm.

    ``packages`` are the paths that packages have.
    """
    # Since trixie libc6-i386 makes this link when it is installed.
    loader = "usr/lib32/ld-linux.so.2" in packages
    mounts = (
        "dev",
        "mnt",
        "proc",
        "root",
        "run",
        "sys",
        "tmp",
        "usr/lib32",
        "usr/lib64",
        "var/tmp",
    )
    return {
        **{name: directory() for name in mounts},
        **{name: symlink(f"usr/{name}") for name in _MERGED},
        **({"usr/lib/ld-linux.so.2": symlink("/lib32/ld-linux.so.2")} if loader else {}),
        "usr/bin/sh": symlink("busybox"),
        # The kernel opens it before init runs.
        "dev/console": Entry(stat.S_IFCHR | 0o600, device=(5, 1)),
        "dev/null": Entry(stat.S_IFCHR | 0o666, device=(1, 3)),
        "etc/passwd": file(
            "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"
        ),
        "etc/group": file("root:x:0:\nnogroup:x:65534:\n"),
        "etc/nsswitch.conf": file("passwd: files\ngroup: files\nhosts: files\n"),
        "etc/hosts": file("127.0.0.1 localhost\n"),
    }


def read_packages(packages: Iterable[Path]) -> dict[str, Entry]:
    """What packages install, without what is left out."""
    tree: dict[str, Entry] = {}
    for package in packages:
        tree.update(_read_package(package))
    return tree


def _read_package(package: Path) -> Iterator[tuple[str, Entry]]:
    command = ("dpkg-deb", "--fsys-tarfile", package)
    seen: dict[str, Entry] = {}  # what hard links lead to
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
            for member in archive:
                path = _merged(member.name.removeprefix("./").strip("/"))
                entry = seen.get(_merged(member.linkname)) if member.islnk() else None
                entry = entry or _entry(archive, member)
                seen[path] = entry
                if path and not _DROP.match(path):
                    yield path, entry
        if process.wait():
            raise OSError(f"{package.name}: dpkg-deb failed with {process.returncode}")


def _merged(path: str) -> str:
    path = path.removeprefix("./")
    return f"usr/{path}" if path.partition("/")[0] in _MERGED else path


def _entry(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Entry:
    if member.issym():
        return symlink(member.linkname)
    if member.isdir():
        return directory(member.mode)
    content: Any = archive.extractfile(member)
    return file(content.read() if content else b"", member.mode, int(member.mtime))
