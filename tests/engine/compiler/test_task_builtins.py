"""``ppid`` and ``pcomm``: read from the kernel's structures, in programs on user probes as well."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from bpfmachine import Machine
from hits import UNREADABLE, run
from planning import plan

from usdt.base.errors import LanguageError
from usdt.btf import files, kernel_files, reader
from usdt.btf.lookup import find_type
from usdt.btf.reader import Btf
from usdt.btf.types import Composite
from usdt.engine.compiler.entry_return import for_32bit_process
from usdt.engine.compiler.resolve import tasks
from usdt.engine.compiler.resolve.tasks import TASK_BUILTINS

_TASK, _FORKER, _PARENT, _PID, _PARENTS_PID = (0xFFFF888000000000 + n * 0x10000 for n in range(5))
_LEVEL = 2


def members(name: str) -> dict[str, int]:
    """The offsets of a structure's members."""
    btf = Btf.from_kernel()
    found = btf.type(find_type(btf, f"struct {name}"))
    assert isinstance(found, Composite)
    return {member.name: member.bit_offset // 8 for member in found.members}


@pytest.fixture
def family() -> Machine:
    """A task whose parent process is 5 and "parent"; a thread of that forked it."""
    if not Path(files.KERNEL).exists():
        pytest.skip("needs BTF of the kernel")
    task, pid = members("task_struct"), members("pid")
    names = members("upid")
    number = pid["numbers"] + _LEVEL * 16 + names["nr"]
    return Machine(
        kernel={
            _TASK + task["real_parent"]: struct.pack("=Q", _FORKER),
            _TASK + task["thread_pid"]: struct.pack("=Q", _PID),
            _PID + pid["level"]: struct.pack("=I", _LEVEL),
            _FORKER + task["tgid"]: struct.pack("=i", 5),
            _FORKER + task["group_leader"]: struct.pack("=Q", _PARENT),
            _PARENT + task["comm"]: b"parent".ljust(16, b"\0"),
            _PARENT + task["thread_pid"]: struct.pack("=Q", _PARENTS_PID),
            _PARENTS_PID + pid["level"]: struct.pack("=I", _LEVEL),
            _PARENTS_PID + number: struct.pack("=i", 3),
        }
    )


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tracer in a PID namespace, as the kernel says it."""
    monkeypatch.setattr(tasks, "in_initial_pid_namespace", lambda: False)


@pytest.mark.parametrize("sleepable", [False, True])
def test_the_parent_is_read_from_the_kernel(family: Machine, sleepable: bool) -> None:
    items = 'ppid, pcomm, str(pcomm, 3), ppid == 5, pcomm == "par*", contains(pcomm, "ren")'
    found = run(items, family, sleepable=sleepable)
    assert list(found.values()) == [5, "parent", "par"]
    for predicate in ("ppid != 5", 'pcomm == "paren"', 'pcomm == "*x"', 'pcomm != "parent"'):
        assert run(f"pid, {predicate}", Machine(kernel=family.kernel)) is None


def test_an_unreadable_parent_is_none(family: Machine) -> None:
    family.kernel = {}
    assert run("ppid, pcomm", family) == {"ppid": UNREADABLE, "pcomm": UNREADABLE}


@pytest.mark.usefixtures("inside")
def test_the_parent_in_a_pid_namespace(family: Machine) -> None:
    assert run("ppid", family) == {"ppid": 3}
    outside = members("pid")["level"] + _PARENTS_PID
    kernel = family.kernel | {outside: struct.pack("=I", _LEVEL - 1)}
    assert run("ppid", Machine(kernel=kernel)) == {"ppid": 0}


def test_addresses_of_the_kernel_stay_wide_for_32_bit_programs(family: Machine) -> None:
    del family
    made = plan('ppid, pcomm, pcomm == "x"')
    assert for_32bit_process(made) == made


def test_a_kernel_without_btf(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kernel_files, "KERNEL", str(tmp_path / "vmlinux"))
    caches = reader._kernel_btf, tasks.task_scope
    for cache in caches:
        cache.cache_clear()
    try:
        for name in TASK_BUILTINS:
            reason = rf"{name}: this kernel lacks BTF of the kernel \(.*CONFIG_DEBUG_INFO_BTF"
            with pytest.raises(LanguageError, match=reason) as caught:
                plan(f"pid, {name}")
            assert caught.value.column == len("p:q(pid, ")
    finally:
        for cache in caches:
            cache.cache_clear()


def test_what_cannot_be_asked_of_them() -> None:
    with pytest.raises(LanguageError, match="pcomm is none"):
        plan("out(pcomm)")
    with pytest.raises(LanguageError, match="compared with constants"):
        plan("pcomm == comm")
