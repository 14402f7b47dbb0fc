"""bpf against the running kernel: maps, programs, feature probes, privilege."""

from __future__ import annotations

import errno
import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from house import ROOT
from skips import need_program

from usdt.base.errors import NotSupported, SyscallError, VerifierError
from usdt.base.machine import KERNEL_WORD_SIZE
from usdt.bpf import features
from usdt.bpf._uapi import BPF_F_SLEEPABLE, AttachType, Command, Helper, MapType
from usdt.bpf.asm.assembler import Assembler
from usdt.bpf.asm.insn import R0, R1, R2, R3, R6, R10, Alu, Jump
from usdt.bpf.capabilities import missing_capabilities
from usdt.bpf.maps import Map, MapSpec, possible_cpus
from usdt.bpf.program import ProgramSpec
from usdt.engine.compiler.codegen.current_task import task_offsets

_HASHES = (MapType.HASH, MapType.LRU_HASH, MapType.PERCPU_HASH, MapType.LRU_PERCPU_HASH)
_ARRAYS = (MapType.ARRAY, MapType.PERCPU_ARRAY)


def names(kind: MapType) -> str:
    return kind.name.lower()


def value(table: Map, number: int) -> bytes:
    """A value of the map's size; a per-CPU one differs in every slot, its padding is 0."""
    size = table.spec.value_size
    one = (number.to_bytes(8, "little") * (size // 8 + 1))[:size]
    if table.value_size == size:
        return one
    slots = table.value_size // possible_cpus()
    return b"".join(
        bytes([cpu & 0xFF]) + one[1:] + bytes(slots - size) for cpu in range(possible_cpus())
    )


def key(number: int, size: int = 4) -> bytes:
    return number.to_bytes(size, sys.byteorder)


def one_by_one(table: Map) -> list[tuple[bytes, bytes | None]]:
    return [(name, table.get(name)) for name in table.keys()]  # noqa: SIM118 - no dict


@pytest.mark.parametrize("kind", _HASHES, ids=names)
def test_entries_of_a_hash_come_and_go(kind: MapType) -> None:
    with MapSpec(kind, 4, 12, 100, "hash").create() as table:
        assert table.get(key(1)) is None
        assert not list(table.items())
        assert not list(table.keys())
        table.set(key(1), value(table, 7))
        table.set(key(2), value(table, 8))
        table.set(key(1), value(table, 9))
        assert table.get(key(1)) == value(table, 9)
        assert sorted(table.keys()) == [key(1), key(2)]
        assert table.delete(key(1)) is True
        assert table.delete(key(1)) is False
        assert table.get(key(1)) is None
        assert list(table.items()) == [(key(2), value(table, 8))]


@pytest.mark.parametrize("kind", _ARRAYS, ids=names)
def test_an_array_is_there_from_the_start_and_stays(kind: MapType) -> None:
    with MapSpec(kind, 4, 8, 5, "array").create() as table:
        assert [name for name, _ in table.items()] == [key(index) for index in range(5)]
        assert all(not any(content) for _, content in table.items())
        table.set(key(3), value(table, 0x1122334455667788))
        assert table.get(key(3)) == value(table, 0x1122334455667788)
        assert table.get(key(5)) is None
        with pytest.raises(SyscallError) as caught:
            table.delete(key(3))
        assert caught.value.errno == errno.EINVAL
        assert caught.value.call == "bpf(BPF_MAP_DELETE_ELEM)"


@pytest.mark.parametrize("count", [0, 1, 511, 512, 513, 1300])
@pytest.mark.parametrize("kind", [MapType.HASH, MapType.PERCPU_HASH], ids=names)
def test_batches_bring_what_single_look_ups_bring(kind: MapType, count: int) -> None:
    with MapSpec(kind, 8, 20, 1400).create() as table:
        for number in range(count):
            table.set(key(number * 7919, 8), value(table, number))
        found = list(table.items())
        assert len(found) == count
        assert sorted(found) == sorted(one_by_one(table))
        assert dict(found) == {
            key(number * 7919, 8): value(table, number) for number in range(count)
        }


@pytest.mark.parametrize("entries", [1, 512, 1030])
@pytest.mark.parametrize("kind", _ARRAYS, ids=names)
def test_batches_of_arrays_end_with_the_array(kind: MapType, entries: int) -> None:
    with MapSpec(kind, 4, 4, entries).create() as table:
        table.set(key(entries - 1), value(table, 77))
        assert list(table.items()) == one_by_one(table)
        assert len(list(table.items())) == entries


def test_a_full_map_is_read_whole() -> None:
    with MapSpec(MapType.HASH, 4, 4, 3).create() as table:
        for number in range(3):
            table.set(key(number), key(number))
        with pytest.raises(SyscallError) as caught:
            table.set(key(3), key(3))
        assert caught.value.errno == errno.E2BIG
        assert sorted(table.items()) == [(key(number), key(number)) for number in range(3)]


def test_an_lru_map_forgets_and_never_refuses() -> None:
    with MapSpec(MapType.LRU_HASH, 4, 4, 64).create() as table:
        for number in range(1000):
            table.set(key(number), key(number))
        found = dict(table.items())
        assert 0 < len(found) <= 64
        assert all(name == content for name, content in found.items())


def test_maps_without_batches_are_read_key_by_key() -> None:
    with MapSpec(MapType.STACK_TRACE, 4, 8 * 16, 16).create() as table:
        with pytest.raises(SyscallError):
            list(table._batches())
        assert list(table.items()) == []


def test_a_per_cpu_counter_has_a_slot_for_each_cpu() -> None:
    with MapSpec(MapType.PERCPU_ARRAY, 4, 8, 1).create() as table:
        slots = struct.pack(f"={possible_cpus()}Q", *range(1, possible_cpus() + 1))
        table.set(key(0), slots)
        assert table.get(key(0)) == slots


def test_bytes_of_another_size_never_reach_the_kernel() -> None:
    with MapSpec(MapType.PERCPU_HASH, 4, 8, 1).create() as table:
        slots = 8 * possible_cpus()
        with pytest.raises(ValueError, match="map key: 4 bytes expected, 3 given"):
            table.get(b"abc")
        with pytest.raises(ValueError, match="map key: 4 bytes expected, 0 given"):
            table.delete(b"")
        with pytest.raises(ValueError, match=f"map value: {slots} bytes expected, 9 given"):
            table.set(key(0), bytes(9))


def test_a_closed_map_refuses() -> None:
    table = MapSpec(MapType.ARRAY, 4, 4, 1).create()
    table.close()
    table.close()
    with pytest.raises(ValueError, match="closed kernel object"):
        table.get(key(0))


def test_a_map_that_cannot_be_is_an_error_of_the_call() -> None:
    with pytest.raises(SyscallError) as caught:
        MapSpec(MapType.ARRAY, 3, 4, 1).create()
    assert str(caught.value) == "bpf(BPF_MAP_CREATE): Invalid argument"
    with pytest.raises(SyscallError) as odd_size:
        MapSpec(MapType.RINGBUF, 0, 0, 5000).create()
    assert odd_size.value.errno == errno.EINVAL  # its size is wrong, the kernel is not


def _info(fd: int) -> bytes:
    from usdt.bpf._syscall import bpf

    room = bytearray(256)
    bpf(Command.OBJ_GET_INFO_BY_FD, "IIP", fd, len(room), room)
    return bytes(room)


def test_names_are_what_bpftool_shows() -> None:
    with MapSpec(MapType.ARRAY, 4, 4, 1, "a_name.longer_than_15").create() as table:
        assert b"a_name.longer_t\0" in _info(table.fd.fileno())
    with ProgramSpec(_returning().assemble(), name="usdt:my-probe").load({}) as program:
        assert b"usdt_my_probe\0" in _info(program.fd.fileno())


def _returning() -> Assembler:
    asm = Assembler()
    asm.mov(R0, 0)
    asm.exit()
    return asm


def _beyond_the_context() -> Assembler:
    asm = Assembler()
    asm.load(R0, R1, 32000)
    asm.exit()
    return asm


def test_a_refused_program_brings_the_verifiers_log() -> None:
    with pytest.raises(VerifierError) as caught:
        ProgramSpec(_beyond_the_context().assemble()).load({})
    err = caught.value
    assert err.errno == errno.EACCES
    assert err.call == "bpf(BPF_PROG_LOAD)"
    assert "r0 = *(u64 *)(r1 +32000)" in err.log
    assert str(err) == (
        "bpf(BPF_PROG_LOAD): Permission denied (invalid bpf_context access off=32000 size=8)"
    )


def test_a_log_that_is_too_long_keeps_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("usdt.bpf.program._LOG_SIZE", 256)
    asm = Assembler()
    for number in range(500):
        asm.mov(R6, number)
    asm.load(R0, R1, 32000)
    asm.exit()
    with pytest.raises(VerifierError) as caught:
        ProgramSpec(asm.assemble()).load({})
    assert caught.value.errno == errno.EACCES  # and not ENOSPC, which is about the log
    assert 0 < len(caught.value.log) < 256


@pytest.mark.parametrize(
    ("helper", "license_", "reason"),
    [
        pytest.param(9999, "GPL", "invalid func", id="a helper that does not exist"),
        pytest.param(Helper.PROBE_READ_USER, "Proprietary", "GPL", id="one for GPL programs"),
    ],
)
def test_a_helper_that_may_not_be_called(helper: int, license_: str, reason: str) -> None:
    asm = Assembler()
    asm.mov(R1, R10)
    asm.add(R1, -8)
    asm.mov(R2, 8)
    asm.mov(R3, 0)
    asm.call(helper)
    asm.mov(R0, 0)
    asm.exit()
    with pytest.raises(VerifierError, match=reason):
        ProgramSpec(asm.assemble(), license=license_).load({})


def test_an_empty_program_is_refused_without_a_log() -> None:
    with pytest.raises(VerifierError) as caught:
        ProgramSpec(Assembler().assemble()).load({})
    assert caught.value.log == ""


def test_a_program_with_too_many_branches_is_refused_with_the_reason() -> None:
    asm = Assembler()
    asm.call(Helper.KTIME_GET_NS)
    for value in range(
        8300
    ):  # the kernel remembers 8192 branches; see BPF_COMPLEXITY_LIMIT_JMP_SEQ
        asm.jump(Jump.EQ, R0, value, "end")
    asm.mov(R0, 0)
    asm.label("end")
    asm.exit()
    with pytest.raises(VerifierError, match=r"jumps is too complex|too large"):
        ProgramSpec(asm.assemble()).load({})


# What the kernel's own disassembler, in the verifier's log, makes of our instructions.
_DISASSEMBLED = (
    *("r6 = r1", "r7 = -3", "r8 = 0x1122334455667788", "call bpf_ktime_get_ns#5", "w0 = w0"),
    *("r0 += -8", "r0 *= r7", "r0 s>>= 3", "r0 = -r0", "w0 ^= 255"),
    *("*(u64 *)(r10 -8) = r0", "*(u8 *)(r10 -9) = 7", "*(u16 *)(r10 -12) = r0"),
    *("lock *(u64 *)(r10 -8) += r0", "r2 = *(u32 *)(r10 -8)", "r3 = *(u8 *)(r6 +32)"),
    *("if r0 == 0x5 goto pc+2", "if r0 s< r2 goto pc+1", "if r2 & 0x8 goto pc+0"),
)


def test_the_kernel_reads_instructions_as_we_mean_them() -> None:
    asm = Assembler()
    r7, r8 = (type(R0)(number) for number in (7, 8))
    asm.mov(R6, R1)
    asm.mov(r7, -3)
    asm.mov(r8, 0x1122334455667788)
    asm.call(Helper.KTIME_GET_NS)
    asm.alu(Alu.MOV, R0, R0, width=32)
    asm.add(R0, -8)
    asm.alu(Alu.MUL, R0, r7)
    asm.alu(Alu.ARSH, R0, 3)
    asm.alu(Alu.NEG, R0)
    asm.alu(Alu.XOR, R0, 255, width=32)
    asm.store(R10, -8, R0)
    asm.store(R10, -9, 7, 1)
    asm.store(R10, -12, R0, 2)
    asm.atomic_add(R10, -8, R0)
    asm.load(R2, R10, -8, 4)
    asm.load(R3, R6, 32, 1)
    asm.jump(Jump.EQ, R0, 5, "end")
    asm.jump(Jump.SLT, R0, R2, "end")
    asm.jump(Jump.SET, R2, 8, "end")
    asm.label("end")
    asm.load(R0, R6, 32000)
    asm.exit()
    with pytest.raises(VerifierError) as caught:
        ProgramSpec(asm.assemble()).load({})
    log = caught.value.log
    position = 0
    for text in _DISASSEMBLED:
        position = log.find(text, position)
        assert position >= 0, f"{text} is not (in this order) in:\n{log}"


def test_sleepable_programs_are_loaded(sleepable_uprobes: None) -> None:
    asm = Assembler()
    asm.mov(R1, R10)
    asm.add(R1, -8)
    asm.mov(R2, 8)
    asm.mov(R3, 0)
    asm.call(Helper.COPY_FROM_USER)
    asm.mov(R0, 0)
    asm.exit()
    ProgramSpec(asm.assemble(), flags=BPF_F_SLEEPABLE).load({}).close()
    with pytest.raises(VerifierError, match=r"copy_from_user|might sleep"):
        ProgramSpec(asm.assemble(), attach_type=AttachType.NONE).load({})


_FEATURES = [
    pytest.param(features.have_ringbuf, (5, 8), id="ring buffer"),
    pytest.param(features.have_cookies, (5, 15), id="cookies"),
    pytest.param(features.have_sleepable_uprobes, (6, 0), id="sleepable uprobes"),
    pytest.param(features.have_uprobe_multi, (6, 6), id="uprobe_multi"),
    pytest.param(features.links_filter_processes, (6, 13), id="links of one process"),
    pytest.param(features.have_batch_operations, (5, 6), id="batches"),
    pytest.param(features.have_raw_cookies, (6, 10), id="cookies of raw tracepoints"),
    pytest.param(features.have_uprobe_pmu, None, id="uprobe PMU"),
    pytest.param(features.have_loops, None, id="bpf_loop()"),
    pytest.param(features.have_vmlinux_btf, None, id="vmlinux BTF"),
]


@pytest.mark.parametrize(("have", "since"), _FEATURES)
def test_this_kernel_has(have: Any, since: tuple[int, int] | None) -> None:
    have.cache_clear()
    if not have():
        raise NotSupported(have.__name__, since)  # skips on an older kernel, fails on this one
    assert have() is True
    assert have.cache_info().hits == 1


_ASK = """\
import json
from usdt.bpf import features
from usdt.bpf.capabilities import missing_capabilities, privilege_hint
from usdt.base.errors import SyscallError
from usdt.bpf.maps import MapSpec
from usdt.bpf.rings.ringbuf import RingBuffer
from usdt.bpf._uapi import MapType
from usdt.bpf._syscall import perf_attribute, perf_event_open

def answer(question):
    try:
        return question()
    except SyscallError as err:
        return [err.errno, err.call, str(err)]

software, _ = perf_attribute("IIQ96x", 1, 112, 0)
questions = {
    "map": lambda: MapSpec(MapType.HASH, 4, 4, 1).create().close(),
    "ring": lambda: RingBuffer(4096).close(),
    "perf": lambda: perf_event_open(software, -1, 0),
}
for name in ("ringbuf", "cookies", "sleepable_uprobes", "uprobe_multi", "batch_operations"):
    questions[name] = getattr(features, "have_" + name)
answers = {name: answer(question) for name, question in questions.items()}
cached = {name: question.cache_info().currsize for name, question in questions.items()
          if hasattr(question, "cache_info")}
print(json.dumps([missing_capabilities(), privilege_hint(), answers, cached]))
"""


def _without(capabilities: str) -> Any:
    setpriv = need_program("setpriv", "util-linux")
    if Path("/proc/sys/kernel/unprivileged_bpf_disabled").read_text().strip() == "0":
        pytest.skip("needs kernel.unprivileged_bpf_disabled=2")
    done = subprocess.run(
        [
            *(setpriv, f"--bounding-set={capabilities}", f"--inh-caps={capabilities}"),
            *(sys.executable, "-c", _ASK),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_without_privilege_every_call_says_what_is_missing() -> None:
    missing, hint, answers, _ = _without("-all")
    assert missing == ["CAP_BPF", "CAP_PERFMON"]
    assert hint == "this process lacks CAP_BPF and CAP_PERFMON: run it as root, or with sudo"
    refused = "bpf(BPF_MAP_CREATE): Operation not permitted"
    assert answers["map"] == [errno.EPERM, "bpf(BPF_MAP_CREATE)", f"{refused} ({hint})"]
    assert answers["ring"] == answers["map"]
    assert answers["perf"][1] == "perf_event_open"
    assert hint in answers["perf"][2]


@pytest.mark.parametrize(
    "name", ["ringbuf", "cookies", "sleepable_uprobes", "uprobe_multi", "batch_operations"]
)
def test_without_privilege_nobody_says_that_the_kernel_lacks_a_feature(name: str) -> None:
    _, _, answers, cached = _without("-all")
    assert answers[name][0] == errno.EPERM
    assert cached[name] == 0  # asked again by a process that got the privilege


def test_a_single_missing_capability_is_named() -> None:
    missing, hint, _, _ = _without("-sys_admin,-perfmon")
    assert missing == ["CAP_PERFMON"]
    assert hint == "this process lacks CAP_PERFMON: run it as root, or with sudo"


def test_both_capabilities_are_enough() -> None:
    missing, hint, answers, _ = _without("-all,+bpf,+perfmon")
    assert missing == []
    assert "user namespace" in hint
    assert answers["map"] is answers["ring"] is None
    assert answers["ringbuf"] is True


def test_root_lacks_nothing() -> None:
    assert missing_capabilities() == [] or os.geteuid() != 0


def test_names_of_threads_are_loaded_where_the_kernel_describes_its_tasks() -> None:
    described = features.have_vmlinux_btf() and features.have_loops()  # Linux 5.17
    if KERNEL_WORD_SIZE == 8:  # the compilers of 32-bit kernels may lack such loads
        assert (task_offsets() is not None) is described
