"""Offsets that are found without all types are those of the types."""

from __future__ import annotations

from pathlib import Path

import pytest

from usdt.btf import kernel_offsets
from usdt.btf.files import KERNEL
from usdt.btf.format import Encoding, Kind
from usdt.btf.kernel_offsets import member_offsets
from usdt.btf.reader import Btf
from usdt.btf.types import Composite
from usdt.btf.writer import BtfWriter

need_vmlinux = pytest.mark.skipif(
    not Path(KERNEL).exists(), reason="needs CONFIG_DEBUG_INFO_BTF: /sys/kernel/btf/vmlinux"
)


@need_vmlinux
@pytest.mark.parametrize(
    "name", ["task_struct", "file", "sk_buff", "list_head", "vm_area_struct", "super_block"]
)
def test_offsets_of_the_running_kernel(name: str) -> None:
    btf = Btf.from_sysfs()
    (number, *_) = btf.find(name, Kind.STRUCT)
    structure = btf.type(number)
    assert isinstance(structure, Composite)
    known = {one.name: one.bit_offset // 8 for one in structure.members if one.name}
    assert member_offsets(name, *known) == tuple(known.values())


@need_vmlinux
@pytest.mark.parametrize(
    "names",
    [
        pytest.param(("task_struct", "comm", "no_such"), id="a member that is not there"),
        pytest.param(("no_such_struct", "comm"), id="no such structure"),
        pytest.param(("pid_type", "PIDTYPE_PID"), id="an enumeration"),
        pytest.param(("comm", "comm"), id="only a member's name"),
    ],
)
def test_what_the_kernel_does_not_have(names: tuple[str, ...]) -> None:
    assert member_offsets(*names) is None


def _types() -> BtfWriter:
    # The name "wanted" is also that of a member, of an enumerator and of a smaller structure, and
    # its offset is a type's ID or a number of bits.
    out = BtfWriter()
    out.integer("int", 4, Encoding.SIGNED)
    for filler in range(40):
        out.pointer(filler + 1)
    out.composite(Kind.STRUCT, "other", 8, [("wanted", 1, 0, 4), ("b", 6, 8, 4)])
    out.enum("e", 4, [("wanted", 0x04000002)])
    out.composite(Kind.STRUCT, "wanted", 4, [("a", 1, 0, 0)])
    out.composite(Kind.STRUCT, "wanted", 16, [("a", 1, 0, 3), ("b", 1, 64, 4)])
    return out


def test_the_structure_with_all_the_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "vmlinux"
    file.write_bytes(_types().data())
    monkeypatch.setattr(kernel_offsets, "KERNEL", str(file))
    assert member_offsets("wanted", "a", "b") == (0, 8)
    assert member_offsets("wanted", "b", "a") == (8, 0)


@pytest.mark.parametrize(
    "contents",
    [
        pytest.param(b"", id="an empty file"),
        pytest.param(b"\x9f\xeb\1", id="a part of a header"),
        pytest.param(_types().data()[:-4], id="strings cut off"),
    ],
)
def test_damaged_types(contents: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "vmlinux"
    file.write_bytes(contents)
    monkeypatch.setattr(kernel_offsets, "KERNEL", str(file))
    assert member_offsets("wanted", "a") is None


def test_no_types(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_offsets, "KERNEL", "/no/such/file")
    assert member_offsets("wanted", "a") is None
