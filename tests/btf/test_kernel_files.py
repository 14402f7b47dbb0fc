"""The kernel's types from files: which are searched, and which are refused."""

from __future__ import annotations

import gzip
import os
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from skips import need_program

from usdt.base.errors import BtfError, NotSupported
from usdt.btf import kernel_files, reader
from usdt.btf.files import build_id_in, read_btf
from usdt.btf.reader import Btf, use_kernel_btf
from usdt.btf.writer import BtfWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

_XEN = struct.pack("=III4s", 3, 0, 9, b"Xen\0")
_OTHER = struct.pack("=III4s20s", 4, 20, 3, b"GNU\0", b"another kernel's one")


def raw(name: str = "mark") -> bytes:
    """BTF with one type."""
    made = BtfWriter()
    made.integer(name, 4)
    return made.data()


def vmlinux(folder: Path, notes: bytes, name: str = "vmlinux") -> Path:
    """An ELF file with BTF and notes, as the kernel's image has them."""
    copier = need_program("objcopy", "binutils")
    (folder / "empty.c").write_text("int x;")
    (folder / "types").write_bytes(raw())
    (folder / "notes").write_bytes(notes)
    subprocess.run([need_program("gcc"), "-c", "empty.c"], cwd=folder, check=True)
    sections = ["--add-section=.BTF=types", "--add-section=.notes=notes"]
    subprocess.run([copier, *sections, "empty.o", name], cwd=folder, check=True)
    return folder / name


@pytest.fixture
def without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A kernel that has no BTF: the folder in which its files are searched."""
    folder = tmp_path / "boot"
    folder.mkdir()
    monkeypatch.setattr(kernel_files, "KERNEL", str(tmp_path / "none"))
    monkeypatch.setattr(kernel_files, "_FOLDERS", (f"{folder}/vmlinux-{{0}}", f"{folder}/b-{{0}}"))
    reader._kernel_btf.cache_clear()
    yield folder
    monkeypatch.undo()
    use_kernel_btf(None)


def has_mark() -> bool:
    return [name for _, name in Btf.from_kernel().named(1)] == ["mark"]


def test_files_are_searched_by_the_release(without: Path) -> None:
    release = os.uname().release
    with pytest.raises(NotSupported, match=rf"nor in {without}/vmlinux-{release} and the like"):
        Btf.from_kernel()
    (without / f"b-{release}.gz").write_bytes(gzip.compress(raw()))
    assert has_mark()
    assert Btf.from_kernel().name == f"{without}/b-{release}.gz"
    assert not Btf.from_kernel().has_kernel_ids


def test_an_image_of_another_build_is_not_used(without: Path) -> None:
    release = os.uname().release
    vmlinux(without, _OTHER, f"vmlinux-{release}")
    with pytest.raises(NotSupported, match=f"vmlinux-{release} is of another kernel; --btf FILE"):
        Btf.from_kernel()
    vmlinux(without, Path("/sys/kernel/notes").read_bytes(), f"b-{release}")
    assert has_mark()


def test_damage_is_told_if_nothing_else_is_found(without: Path) -> None:
    (without / f"vmlinux-{os.uname().release}").write_bytes(b"\x7fELF" + bytes(100))
    with pytest.raises(NotSupported, match=r"damaged ELF file \(e_ident\); --btf FILE"):
        Btf.from_kernel()


def test_the_file_that_is_named_comes_first(tmp_path: Path) -> None:
    own = Btf.from_kernel()
    path = tmp_path / "types"
    path.write_bytes(raw())
    try:
        use_kernel_btf(str(path))
        assert has_mark()
        with pytest.raises(BtfError, match="with --btf, types of modules are not known"):
            Btf.from_module("loop")
    finally:
        use_kernel_btf(None)
    assert Btf.from_kernel() is own is Btf.from_sysfs()
    assert own.has_kernel_ids


@pytest.mark.parametrize(
    ("make", "said"),
    [
        pytest.param(lambda _: "/nonexistent", "No such file or directory", id="no file"),
        pytest.param(lambda f: str(vmlinux(f, _OTHER)), "of another kernel", id="another build"),
        pytest.param(str, "Is a directory", id="a folder"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(make, said: str, tmp_path: Path) -> None:
    try:
        with pytest.raises(BtfError, match=said):
            use_kernel_btf(make(tmp_path))
    finally:
        use_kernel_btf(None)


def test_only_the_types_of_an_image_are_read(tmp_path: Path) -> None:
    image = vmlinux(tmp_path, b"")
    os.truncate(image, 3 << 30)  # sparse, as large as one with debug information
    assert read_btf(str(image)).types == raw()


@pytest.mark.parametrize(
    ("notes", "found"),
    [
        pytest.param(None, "", id="no notes"),
        pytest.param(_OTHER, b"another kernel's one".hex(), id="a build ID"),
        pytest.param(
            struct.pack("=III4s", 3, 0, 9, b"Xen\0") + _OTHER, _OTHER[16:].hex(), id="later"
        ),
        pytest.param(_OTHER[:-1], _OTHER[16:-1].hex(), id="cut off"),
        pytest.param(b"\xff" * 12, "", id="of absurd sizes"),
    ],
)
def test_build_ids_in_notes(notes: bytes | None, found: str) -> None:
    assert build_id_in(notes) == found


def test_a_file_that_is_refused_is_not_used_later(tmp_path: Path) -> None:
    if not Path(kernel_files.KERNEL).exists():
        pytest.skip("needs BTF of the kernel")
    with pytest.raises(BtfError):
        use_kernel_btf(str(tmp_path / "none"))
    assert Btf.from_kernel().name == kernel_files.KERNEL
