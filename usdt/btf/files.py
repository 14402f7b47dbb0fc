"""Where BTF comes from: raw files, /sys/kernel/btf, ELF objects and modules, compressed ones too.

A module's BTF continues its base's: ``.BTF.base`` where the module brings its own (built outside
the kernel's tree), the running kernel's otherwise.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

from usdt.base.errors import BtfError, NotSupported
from usdt.btf.elf_sections import find_sections, is_elf
from usdt.btf.reader import Btf

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("KERNEL", "kernel_btf", "load", "module_btf", "modules")

#: Where the kernel shows its own BTF (Linux 5.4) and its modules' (5.11).
FOLDER = "/sys/kernel/btf"
KERNEL = FOLDER + "/vmlinux"

_MOST = 1 << 30  # bytes of a file or of what is unpacked from it
# pathlib takes longer to import than all of the kernel's BTF to read: open() and os serve here.


@functools.cache
def kernel_btf() -> Btf:
    """The running kernel's types.

    Raises:
        NotSupported: it shows none.
    """
    try:
        data = _read(KERNEL)
    except FileNotFoundError as err:
        what = f"BTF of the kernel ({KERNEL}, CONFIG_DEBUG_INFO_BTF)"
        raise NotSupported(what) from err
    return Btf(data, name=KERNEL)


def modules() -> list[str]:
    """Names of the loaded modules that have BTF."""
    try:
        return sorted(name for name in os.listdir(FOLDER) if name != "vmlinux")  # noqa: PTH208
    except FileNotFoundError:
        return []


def module_btf(name: str) -> Btf:
    """The types of a loaded module, on top of the kernel's.

    Raises:
        BtfError: no such module, or it has no BTF.
    """
    if name not in modules():
        raise BtfError(f"{name}: no such module is loaded with BTF; see {FOLDER}")
    return load(f"{FOLDER}/{name}")


def load(path: str, *, base: Btf | None = None) -> Btf:
    """The types in a file: raw BTF, or the ``.BTF`` section of an ELF file or module.

    Args:
        path: a file; ``.gz``, ``.xz`` and (with Python 3.14) ``.zst`` are unpacked.
        base: what split BTF continues; by default ``.BTF.base`` of the file, the running kernel
            for files in /sys/kernel/btf and for modules, nothing for others.

    Raises:
        BtfError: there is no BTF in it, or it is damaged.
        OSError: the file cannot be read.
    """
    data = _unpacked(_read(path), path)
    if not is_elf(data):
        if base is None and _is_module_of_sysfs(path):
            base = kernel_btf()
        return Btf(data, name=path, base=base)
    found = find_sections(data, (".BTF", ".BTF.base", ".modinfo"), path)
    if not found.get(".BTF"):
        raise BtfError(f"{path}: ELF file without .BTF (made by pahole -J, clang -g -target bpf)")
    if base is None and found.get(".BTF.base"):
        base = Btf(found[".BTF.base"], name=f"{path}: .BTF.base")
    elif base is None and ".modinfo" in found:
        base = kernel_btf()
    return Btf(found[".BTF"], name=path, base=base)


def _is_module_of_sysfs(path: str) -> bool:
    folder, _, name = os.path.realpath(path).rpartition("/")
    return folder == FOLDER and name != "vmlinux"


def _read(path: str) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123
        data = file.read(_MOST + 1)
    if len(data) > _MOST:
        raise BtfError(f"{path}: more than {_MOST >> 20} MiB")
    return data


def _unpacked(data: bytes, path: str) -> bytes:
    for magic, unpack in _PACKERS.items():
        if data.startswith(magic):
            try:
                plain = unpack(data)
            except (OSError, EOFError, ValueError) as err:
                raise BtfError(f"{path}: cannot be unpacked ({err})") from err
            if len(plain) > _MOST:
                raise BtfError(f"{path}: more than {_MOST >> 20} MiB when unpacked")
            return plain
    return data


def _gunzip(data: bytes) -> bytes:
    import gzip  # noqa: PLC0415 - rarely needed
    import io  # noqa: PLC0415
    import zlib  # noqa: PLC0415

    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            return file.read(_MOST + 1)
    except zlib.error as err:
        raise ValueError(str(err)) from err


def _unxz(data: bytes) -> bytes:
    import lzma  # noqa: PLC0415 - rarely needed

    try:
        return lzma.LZMADecompressor().decompress(data, _MOST + 1)
    except lzma.LZMAError as err:
        raise ValueError(str(err)) from err


def _unzstd(data: bytes) -> bytes:
    try:
        from compression import zstd  # type: ignore[import-not-found]  # noqa: PLC0415
    except ImportError as err:
        raise ValueError("zstd needs Python 3.14; unpack it first: zstd -d FILE") from err
    try:
        plain: bytes = zstd.ZstdDecompressor().decompress(data, _MOST + 1)
    except zstd.ZstdError as err:
        raise ValueError(str(err)) from err
    return plain


_PACKERS: dict[bytes, Callable[[bytes], bytes]] = {
    b"\x1f\x8b": _gunzip,
    b"\xfd7zXZ\0": _unxz,
    b"\x28\xb5\x2f\xfd": _unzstd,
}
