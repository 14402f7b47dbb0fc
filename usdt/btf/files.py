"""Read BTF from files: raw ones, /sys/kernel/btf, ELF objects and modules, also compressed ones."""

from __future__ import annotations

import mmap
import os
import stat
import struct
from typing import TYPE_CHECKING, Protocol

from usdt.base.errors import BtfError
from usdt.base.files import open_at_once
from usdt.base.frozen import frozen
from usdt.btf.elf_sections import ELF_MAGIC, FileData, find_sections

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

__all__ = ("FOLDER", "KERNEL", "BtfFile", "build_id_in", "modules", "read_btf", "read_or_map")

#: Where the kernel shows its own BTF (Linux 5.4) and its modules' (5.11).
FOLDER = "/sys/kernel/btf"
KERNEL = FOLDER + "/vmlinux"

_MAX_SIZE = 1 << 30  # bytes, of a file and of its decompressed contents
# Importing pathlib takes longer than reading all of the kernel's BTF: use open() and os.

_NOTE = struct.Struct("=III")  # sizes of name and contents, type
_BUILD_ID = 3  # NT_GNU_BUILD_ID


@frozen
class BtfFile:
    """The BTF in a file, not parsed yet.

    Attributes:
        types: the BTF itself.
        base: the BTF that it continues, where the file has one (``.BTF.base``), or None.
        of_module: True for a kernel module: without ``base``, it continues the kernel's BTF.
        build_id: of an ELF file, in hexadecimal; "" if there is none.
    """

    types: bytes
    base: bytes | None
    of_module: bool
    build_id: str = ""


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
    try:
        number = open_at_once(path)
    except ValueError as err:  # a NUL or a lone surrogate
        raise BtfError(f"{path!r}: cannot be opened: {err}") from err
    with open(number, "rb") as file:  # noqa: PTH123
        if stat.S_ISREG(os.fstat(number).st_mode) and os.pread(number, 4, 0) == ELF_MAGIC:
            return _of_elf(FileData(number), path)
        data = _decompressed(_read(file, path), path)
    if data.startswith(ELF_MAGIC):
        return _of_elf(data, path)
    return BtfFile(data, None, _is_module_of_sysfs(path))


def read_or_map(path: str) -> bytes | mmap.mmap:
    """Return the contents of a file of raw BTF, mapped if possible: that takes no memory.

    Linux 6.16 allows it for the kernel's (commit a539e2a6d51d), privately.

    Raises:
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:  # noqa: PTH123
        try:
            return mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
        except (OSError, ValueError):
            return file.read()


def _of_elf(data: bytes | FileData, path: str) -> BtfFile:
    notes = (".notes", ".note.gnu.build-id")  # of a kernel, of a module
    sections = find_sections(data, (".BTF", ".BTF.base", ".modinfo", *notes), path)
    types = sections.get(".BTF")
    if not types:
        raise BtfError(f"{path}: ELF file without .BTF (made by pahole -J, clang -g -target bpf)")
    build_id = next((found for name in notes if (found := build_id_in(sections.get(name)))), "")
    base = sections.get(".BTF.base") or None
    return BtfFile(types, base, ".modinfo" in sections, build_id)


def build_id_in(notes: bytes | None) -> str:
    """Return the GNU build ID among ELF notes of this machine's byte order, or ""."""
    at = 0
    while notes is not None and at + _NOTE.size <= len(notes):
        name_size, size, kind = _NOTE.unpack_from(notes, at)
        name = at + _NOTE.size
        start = name + (name_size + 3 & ~3)
        if kind == _BUILD_ID and notes[name : name + name_size] == b"GNU\0":
            return notes[start : start + size].hex()
        at = start + (size + 3 & ~3)
    return ""


def _is_module_of_sysfs(path: str) -> bool:
    folder, _, name = os.path.realpath(path).rpartition("/")
    return folder == FOLDER and name != "vmlinux"


def _read(file: BinaryIO, path: str) -> bytes:
    size = os.fstat(file.fileno()).st_size  # 0 of a pipe
    data = file.read(_MAX_SIZE + 1) if size <= _MAX_SIZE else b""
    if max(size, len(data)) > _MAX_SIZE:
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
        return _all_of(lzma.LZMADecompressor(), data)
    except lzma.LZMAError as err:
        raise ValueError(str(err)) from err


def _unzstd(data: bytes) -> bytes:
    try:
        from compression import zstd  # type: ignore[import-not-found]  # noqa: PLC0415
    except ImportError as err:
        raise ValueError("zstd needs Python 3.14; decompress the file first: zstd -d FILE") from err
    try:
        return _all_of(zstd.ZstdDecompressor(), data)
    except zstd.ZstdError as err:
        raise ValueError(str(err)) from err


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def _all_of(decompressor: _Decompressor, data: bytes) -> bytes:
    plain = decompressor.decompress(data, _MAX_SIZE + 1)
    if not decompressor.eof and len(plain) <= _MAX_SIZE:
        raise ValueError("it ends too early")
    return plain


_DECOMPRESSORS: dict[bytes, Callable[[bytes], bytes]] = {
    b"\x1f\x8b": _gunzip,
    b"\xfd7zXZ\0": _unxz,
    b"\x28\xb5\x2f\xfd": _unzstd,
}
