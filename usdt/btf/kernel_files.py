"""Files with the types of the running kernel.

/sys/kernel/btf/vmlinux       of the kernel itself: the only one whose type IDs it knows
/boot/vmlinux-RELEASE, …      for kernels that have none; one of another build is not used
any file                      that the user names (``--btf FILE``), before all others
"""

from __future__ import annotations

import os

from usdt.base.errors import BtfError, NotSupported
from usdt.btf.files import KERNEL, BtfFile, build_id_in, read_btf

__all__ = (
    "given_file",
    "has_own_btf",
    "kernel_files",
    "name_file",
    "read_other_btf",
    "running_build_id",
)

_NOTES = "/sys/kernel/notes"
_MODULE_NOTES = "/sys/module/{}/notes/.note.gnu.build-id"
# As libbpf has them (btf__load_vmlinux_btf), each also compressed.
_FOLDERS = (
    "/boot/vmlinux-{0}",
    "/lib/modules/{0}/vmlinux-{0}",
    "/lib/modules/{0}/vmlinux",
    "/lib/modules/{0}/build/vmlinux",
    "/usr/lib/modules/{0}/kernel/vmlinux",
    "/usr/lib/debug/boot/vmlinux-{0}",
    "/usr/lib/debug/boot/vmlinux-{0}.debug",
    "/usr/lib/debug/lib/modules/{0}/vmlinux",
)
_ENDINGS = ("", ".gz", ".xz", ".zst")

_given: list[str] = []  # the file that the user names; at most one


def name_file(path: str | None) -> None:
    """Name the file with the kernel's types; None for the kernel's own again."""
    _given[:] = [] if path is None else [path]


def given_file() -> str | None:
    """Return the file that the user names, or None."""
    return _given[0] if _given else None


def kernel_files(release: str) -> list[str]:
    """Return the files that may be the running kernel's ``vmlinux``, the most likely first."""
    return [folder.format(release) + ending for folder in _FOLDERS for ending in _ENDINGS]


def has_own_btf() -> bool:
    """Return True if the running kernel shows its types."""
    return os.path.exists(KERNEL)  # noqa: PTH110 - importing pathlib takes longer


def read_other_btf() -> tuple[str, BtfFile]:
    """Return the file with the running kernel's types that is not its own, and the contents.

    Raises:
        BtfError: the file that the user names has no BTF, or is of another kernel.
        NotSupported: there is no such file.
    """
    path = given_file()
    if path is not None:
        return path, _named(path)
    refused = []
    for path in kernel_files(os.uname().release):
        try:
            file = read_btf(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (BtfError, OSError) as problem:
            refused.append(str(problem))
            continue
        if not _is_of_another(file):
            return path, file
        refused.append(f"{path} is of another kernel")
    raise _missing(refused)


def _named(path: str) -> BtfFile:
    try:
        file = read_btf(path)
    except OSError as err:
        raise BtfError(f"{path}: {err.strerror}") from err
    if file.of_module:
        raise BtfError(f"{path}: the types of a module; expected those of the kernel")
    if _is_of_another(file):
        ids = f"build ID {file.build_id}; this one has {running_build_id()}"
        raise BtfError(f"{path}: of another kernel ({ids})")
    return file


def _is_of_another(file: BtfFile) -> bool:
    # Raw BTF has no build ID.
    running = running_build_id()
    return bool(file.build_id and running) and file.build_id != running


def running_build_id(module: str = "") -> str:
    """Return the build ID of the running kernel, or of its module; "" if it is not known."""
    path = _MODULE_NOTES.format(module) if module else _NOTES
    try:
        with open(path, "rb") as notes:  # noqa: PTH123 - as in files.py
            return build_id_in(notes.read())
    except OSError:
        return ""


def _missing(refused: list[str]) -> NotSupported:
    first = kernel_files(os.uname().release)[0]
    found = "".join(f"; {one}" for one in refused[:2])
    where = f"{KERNEL}, CONFIG_DEBUG_INFO_BTF; nor in {first} and the like{found}"
    return NotSupported(f"BTF of the kernel ({where}; --btf FILE names a file)")
