"""Read BTF from files: raw ones, /sys/kernel/btf, ELF objects and modules, also compressed ones."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from usdt.base.errors import BtfError
from usdt.base.frozen import frozen
from usdt.btf.elf_sections import find_sections, is_elf

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("FOLDER", "KERNEL", "BtfFile", "modules", "read_btf")

#: Where the kernel shows its own BTF (Linux 5.4) and its modules' (5.11).
FOLDER = "/sys/kernel/btf"
KERNEL = FOLDER + "/vmlinux"

_MAX_SIZE = 1 << 30  # bytes, of a file and of its decompressed contents
# Importing pathlib takes longer than reading all of the kernel's BTF: use open() and os.


@frozen
class BtfFile:
    """The BTF in a file, not parsed yet.

    Attributes:
        types: the BTF itself.
        base: the BTF that it continues, where the file has one (``.BTF.base``), or None.
        of_module: True for a kernel module: without ``base``, it continues the kernel's BTF.
    """

    types: bytes
    base: bytes | None
    of_module: bool


def modules() -> list[str]:
    """Return the names of the loaded modules that have BTF, sorted."""
    try:
        return sorted(name for name in os.listdir(FOLDER) if name != "vmlinux")  # noqa: PTH208
    except FileNotFoundError:
        return []


def read_btf(path: str) -> BtfFile:
    """Read a file of raw BTF, or the ``.BTF`` section of an ELF file or module.

    Raises:
        BtfError: the file has no BTF, or is damaged.
        OSError: the file cannot be read.
    """
    data = _decompressed(_read(path), path)
    if not is_elf(data):
        return BtfFile(data, None, _is_module_of_sysfs(path))
    sections = find_sections(data, (".BTF", ".BTF.base", ".modinfo"), path)
    types = sections.get(".BTF")
    if not types:
        raise BtfError(f"{path}: ELF file without .BTF (made by pahole -J, clang -g -target bpf)")
    return BtfFile(types, sections.get(".BTF.base") or None, ".modinfo" in sections)


def _is_module_of_sysfs(path: str) -> bool:
    folder, _, name = os.path.realpath(path).rpartition("/")
    return folder == FOLDER and name != "vmlinux"


def _read(path: str) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123
        data = file.read(_MAX_SIZE + 1)
    if len(data) > _MAX_SIZE:
        raise BtfError(f"{path}: more than {_MAX_SIZE >> 20} MiB")
    return data


def _decompressed(data: bytes, path: str) -> bytes:
    for magic, decompress in _DECOMPRESSORS.items():
        if data.startswith(magic):
            try:
                plain = decompress(data)
            except (OSError, EOFError, ValueError) as err:
                raise BtfError(f"{path}: cannot be decompressed ({err})") from err
            if len(plain) > _MAX_SIZE:
                raise BtfError(f"{path}: more than {_MAX_SIZE >> 20} MiB when decompressed")
            return plain
    return data


def _gunzip(data: bytes) -> bytes:
    import gzip  # noqa: PLC0415 - rarely needed
    import io  # noqa: PLC0415
    import zlib  # noqa: PLC0415

    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            return file.read(_MAX_SIZE + 1)
    except zlib.error as err:
        raise ValueError(str(err)) from err


def _unxz(data: bytes) -> bytes:
    import lzma  # noqa: PLC0415 - rarely needed

    try:
        return lzma.LZMADecompressor().decompress(data, _MAX_SIZE + 1)
    except lzma.LZMAError as err:
        raise ValueError(str(err)) from err


def _unzstd(data: bytes) -> bytes:
    try:
        from compression import zstd  # type: ignore[import-not-found]  # noqa: PLC0415
    except ImportError as err:
        raise ValueError("zstd needs Python 3.14; decompress the file first: zstd -d FILE") from err
    try:
        plain: bytes = zstd.ZstdDecompressor().decompress(data, _MAX_SIZE + 1)
    except zstd.ZstdError as err:
        raise ValueError(str(err)) from err
    return plain


_DECOMPRESSORS: dict[bytes, Callable[[bytes], bytes]] = {
    b"\x1f\x8b": _gunzip,
    b"\xfd7zXZ\0": _unxz,
    b"\x28\xb5\x2f\xfd": _unzstd,
}
