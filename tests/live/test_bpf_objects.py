"""usdt.bpf.objects against the running kernel: maps and programs that somebody else made."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from usdt.base.errors import SyscallError, TargetError
from usdt.bpf._uapi import MapType
from usdt.bpf.asm.assembler import Assembler
from usdt.bpf.asm.insn import R0
from usdt.bpf.maps import Map, MapSpec
from usdt.bpf.objects import pin
from usdt.bpf.program import Program, ProgramSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

_BPFFS = Path("/sys/fs/bpf")

SPEC = MapSpec(MapType.HASH, 4, 8, 600, "shared")


def key(number: int) -> bytes:
    return number.to_bytes(4, sys.byteorder)


def number(value: int) -> bytes:
    return value.to_bytes(8, sys.byteorder)


@pytest.fixture
def place() -> Iterator[Path]:
    """A path in bpffs, whose names have no dots; whatever is pinned there is gone afterwards."""
    if not os.path.ismount(_BPFFS):
        pytest.skip(f"needs bpffs: mount -t bpf bpf {_BPFFS}")
    path = _BPFFS / f"test_bpf_objects_{os.getpid()}"
    yield path
    path.unlink(missing_ok=True)


@pytest.fixture
def table() -> Iterator[Map]:
    """A map."""
    with SPEC.create() as made:
        yield made


@pytest.fixture
def program() -> Iterator[Program]:
    """A program."""
    asm = Assembler()
    asm.mov(R0, 0)
    asm.exit()
    with ProgramSpec(asm.assemble()).load({}) as made:
        yield made


def test_a_map_by_its_descriptor_is_the_same_map(table: Map) -> None:
    with Map.from_fd(table.fd.fileno()) as other:
        assert other.fd.fileno() != table.fd.fileno()
        assert other.spec == SPEC
        assert other.id == table.id > 0
        other.set(key(1), number(5))
    assert table.get(key(1)) == number(5)  # closing the other has closed nothing of ours


def test_a_pinned_map_outlives_its_maker(place: Path, table: Map) -> None:
    table.set(key(1), number(5))
    pin(table.fd, place)
    table.close()
    with Map.from_pin(place) as found:
        assert found.spec == SPEC
        assert list(found.items()) == [(key(1), number(5))]


def test_pinning_twice_is_refused(place: Path, table: Map) -> None:
    pin(table.fd, place)
    with pytest.raises(SyscallError) as caught:
        pin(table.fd, str(place))
    assert str(caught.value) == "bpf(BPF_OBJ_PIN): File exists"


def test_a_program_by_descriptor_and_by_pin(place: Path, program: Program) -> None:
    with Program.from_fd(program.fd.fileno()) as other:
        assert other.fd.fileno() != program.fd.fileno()
        pin(other.fd, place)
    with Program.from_pin(str(place)) as found:
        assert not found.fd.closed


def test_one_kind_is_not_taken_for_the_other(place: Path, table: Map, program: Program) -> None:
    with pytest.raises(TargetError, match="is bpf-prog, a BPF map expected"):
        Map.from_fd(program.fd.fileno())
    with pytest.raises(TargetError, match="is bpf-map, a BPF program expected"):
        Program.from_fd(table.fd.fileno())
    pin(table.fd, place)
    with pytest.raises(TargetError, match=f"{place}: is bpf-map, a BPF program expected"):
        Program.from_pin(place)


@pytest.mark.parametrize("bad", [-1, 1 << 20, 1 << 40], ids=["negative", "closed", "no int"])
def test_what_is_no_descriptor(bad: int) -> None:
    with pytest.raises(TargetError, match=f"descriptor {bad}: not an open descriptor"):
        Map.from_fd(bad)


def test_a_file_is_no_map() -> None:
    with (
        Path(os.devnull).open("rb") as file,
        pytest.raises(TargetError, match="is /dev/null, a BPF map expected"),
    ):
        Map.from_fd(file.fileno())


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        pytest.param("nothing", "nothing is pinned there", id="nothing there"),
        pytest.param("file/below", "nothing is pinned there", id="below a file"),
        pytest.param("file", "must be a pin in bpffs", id="a file"),
        pytest.param("", "must be a pin in bpffs", id="a folder"),
    ],
)
def test_what_is_no_pin(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(TargetError, match=reason):
        Map.from_pin(tmp_path / name)


def test_an_entry_is_added_once(table: Map) -> None:
    assert table.add(key(1), number(5)) is True
    assert table.add(key(1), number(6)) is False
    assert table.get(key(1)) == number(5)


@pytest.mark.parametrize("count", [0, 1, 2, 600])
def test_many_entries_are_written_at_once(table: Map, count: int) -> None:
    rows = [(key(index), number(index * 3)) for index in range(count)]
    table.set_many(iter(rows))
    assert sorted(table.items()) == sorted(rows)


def test_more_entries_than_there_is_room_for(table: Map) -> None:
    with pytest.raises(SyscallError, match="BPF_MAP_UPDATE_BATCH"):
        table.set_many((key(index), number(0)) for index in range(601))


def test_one_entry_of_a_wrong_size_writes_none(table: Map) -> None:
    with pytest.raises(ValueError, match="map value: 8 bytes expected, 1 given"):
        table.set_many([(key(1), number(1)), (key(2), b"x")])
    assert list(table.items()) == []
