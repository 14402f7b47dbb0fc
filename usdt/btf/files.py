"""Read BTF from files: raw ones, /sys/kernel/btf, ELF objects and modules, also compressed ones."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Protocol

from usdt.base.errors import BtfError
from usdt.base.files import open_at_once
from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("FOLDER", "KERNEL", "BtfFile", "modules", "read_btf")

#: Where the kernel shows its own BTF (Linux 5.4) and its modules' (5.11).
FOLDER = "/sys/kernel/btf"
KERNEL = FOLDER + "/vmlinux"

_MAX_SIZE = 1 << 30  # bytes, of a file and of its decompressed contents
# Importing pathlib takes longer than reading all of the kernel's BTF: use open() and os.

# usdt.elf stands on a higher floor: BTF finds sections of an ELF file, of both classes, by itself.
_NOBITS = 8
_XINDEX = 0xFFFF
_COMPRESSED = 1 << 11
_MAX_SECTIONS = 1 << 20


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
    if data[:4] != b"\x7fELF":
        return BtfFile(data, None, _is_module_of_sysfs(path))
    sections = _find_sections(data, (".BTF", ".BTF.base", ".modinfo"), path)
    types = sections.get(".BTF")
    if not types:
        raise BtfError(f"{path}: ELF file without .BTF (made by pahole -J, clang -g -target bpf)")
    return BtfFile(types, sections.get(".BTF.base") or None, ".modinfo" in sections)


def _find_sections(data: bytes, names: tuple[str, ...], path: str) -> dict[str, bytes]:
    """Return the contents of the first section with each of the names; leave out missing ones.

    Raises:
        BtfError: the ELF file is damaged.
    """
    try:
        return _find(data, {name.encode() + b"\0": name for name in names}, path)
    except (struct.error, IndexError) as err:
        raise BtfError(f"{path}: damaged ELF file ({err})") from err


def _find(data: bytes, wanted: dict[bytes, str], path: str) -> dict[str, bytes]:
    wide, mark = _ident(data, path)
    where = struct.unpack_from(mark + ("Q" if wide else "I"), data, 40 if wide else 32)[0]
    size, count, names_at = struct.unpack_from(mark + "HHH", data, 58 if wide else 46)
    if not where:
        return {}
    layout = struct.Struct(mark + ("IIQQQQIIQQ" if wide else "10I"))
    if size < layout.size:
        raise BtfError(f"{path}: ELF section headers of {size} bytes, {layout.size} expected")
    first = layout.unpack_from(data, where)
    count = count or first[5]  # more sections than the header has bits for
    names_at = first[6] if names_at == _XINDEX else names_at
    if count > _MAX_SECTIONS or where + count * size > len(data):
        raise BtfError(f"{path}: ELF file ends before its {count} section headers")
    rows = [layout.unpack_from(data, where + index * size) for index in range(count)]
    if names_at >= count:
        raise BtfError(f"{path}: ELF file without section names")
    names = _contents(data, rows[names_at], path)
    found: dict[str, bytes] = {}
    for row in rows:
        for raw, name in wanted.items():
            if name not in found and names.startswith(raw, row[0]):
                found[name] = _contents(data, row, path)
    return found


def _ident(data: bytes, path: str) -> tuple[bool, str]:
    if len(data) < 52 or data[4] not in (1, 2) or data[5] not in (1, 2):
        raise BtfError(f"{path}: damaged ELF file (e_ident)")
    return data[4] == 2, "<" if data[5] == 1 else ">"


def _contents(data: bytes, row: tuple[int, ...], path: str) -> bytes:
    kind, flags, offset, size = row[1], row[2], row[4], row[5]
    if kind == _NOBITS:
        return b""
    if offset + size > len(data):
        raise BtfError(
            f"{path}: ELF section of {size} bytes at {offset} ends after the end of the file"
        )
    if flags & _COMPRESSED:
        raise BtfError(
            f"{path}: the section is compressed; decompress it: objcopy --decompress-debug-sections"
        )
    return data[offset : offset + size]


def _is_module_of_sysfs(path: str) -> bool:
    folder, _, name = os.path.realpath(path).rpartition("/")
    return folder == FOLDER and name != "vmlinux"


def _read(path: str) -> bytes:
    try:
        number = open_at_once(path)
    except ValueError as err:  # a NUL or a lone surrogate
        raise BtfError(f"{path!r}: cannot be opened: {err}") from err
    with open(number, "rb") as file:  # noqa: PTH123
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
