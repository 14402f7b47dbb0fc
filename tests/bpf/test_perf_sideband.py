"""Side-band records of perf events: as bytes, and those of a real process."""

from __future__ import annotations

import mmap
import os
import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from skips import requires_root
from tracing_tools import until

from usdt.bpf.perf.sideband import (
    CgroupRecord,
    ExecRecord,
    ForkRecord,
    LostRecord,
    MmapRecord,
    NameRecord,
    PerfSideband,
    parse_records,
)

_HEADER = struct.Struct("=IHH")


def record(kind: int, body: bytes, *, misc: int = 0, time: int = 7) -> bytes:
    """A record with its header and its time."""
    body += bytes(-len(body) % 8) + struct.pack("=Q", time)
    return _HEADER.pack(kind, misc, _HEADER.size + len(body)) + body


MAPPING = struct.pack("=IIQQQIIQQII", 10, 11, 0x400000, 0x1000, 0x2000, 8, 1, 99, 3, 5, 2)
STREAM = [
    (
        record(10, MAPPING + b"/usr/bin/ls\0"),
        [MmapRecord(7, 10, 0x400000, 0x401000, 0x2000, (8, 1), 99, 3, b"/usr/bin/ls")],
    ),
    (record(3, struct.pack("=II", 10, 10) + b"ls\0", misc=1 << 13), [ExecRecord(7, 10)]),
    (record(3, struct.pack("=II", 10, 10) + b"renamed\0"), [NameRecord(7, 10)]),
    (record(3, struct.pack("=II", 10, 11) + b"a thread\0"), []),
    (record(7, struct.pack("=IIIIQ", 12, 10, 12, 10, 5)), [ForkRecord(7, 12, 10)]),
    (record(7, struct.pack("=IIIIQ", 10, 10, 13, 10, 5)), []),  # a thread
    (record(4, struct.pack("=IIIIQ", 12, 10, 12, 10, 5)), []),
    (record(2, struct.pack("=QQ", 1, 42)), [LostRecord(7, 42)]),
]


def test_each_record_is_parsed() -> None:
    for data, expected in STREAM:
        assert list(parse_records(data)) == expected
    whole = b"".join(data for data, _ in STREAM)
    assert list(parse_records(whole)) == [one for _, found in STREAM for one in found]


def test_a_new_cgroup_is_parsed() -> None:
    body = struct.pack("=Q", 1 << 40 | 5) + b"/a\xff.slice\0\0\0\0\0"
    assert list(parse_records(record(19, body))) == [CgroupRecord(7, 1 << 40 | 5, b"/a\xff.slice")]


def test_damaged_records_end_the_reading() -> None:
    whole = b"".join(data for data, _ in STREAM)
    chance = random.Random(2)
    for cut in range(len(whole)):
        list(parse_records(whole[:cut]))
    for _ in range(2000):
        data = bytearray(whole)
        for _ in range(4):
            data[chance.randrange(len(data))] = chance.randrange(256)
        list(parse_records(bytes(data)))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\0" * 7, id="less than a header"),
        pytest.param(_HEADER.pack(10, 0, 0), id="a record without length"),
        pytest.param(_HEADER.pack(10, 0, 4) * 4, id="shorter than its header"),
        pytest.param(record(10, MAPPING + b"/x\0")[:-8], id="cut off"),
        pytest.param(record(10, bytes(8)), id="a mapping without its fields"),
        pytest.param(record(2, b""), id="a loss without its number"),
    ],
)
def test_a_damaged_record_gives_nothing(data: bytes) -> None:
    assert list(parse_records(data)) == []


@requires_root
def test_a_process_is_told_from_its_fork_to_its_libraries() -> None:
    with PerfSideband(tasks=True) as records:
        with subprocess.Popen(["/bin/true"]) as process:
            process.wait(20)
        found = [one for one in records.take() if getattr(one, "pid", 0) == process.pid]
    kinds = [type(one) for one in found]
    assert kinds.index(ForkRecord) < kinds.index(ExecRecord) < kinds.index(MmapRecord)
    paths = [one.path for one in found if isinstance(one, MmapRecord)]
    assert os.path.realpath("/bin/true").encode() in [os.path.realpath(path) for path in paths]
    assert any(b"libc" in path for path in paths)
    assert [one.time for one in found] == sorted(one.time for one in found)


@requires_root
def test_the_processes_that_start_or_change_their_names() -> None:
    rename = "open('/proc/self/comm', 'w').write('other'); input()"
    with (
        PerfSideband(tasks=True, mappings=False) as records,
        subprocess.Popen([sys.executable, "-c", rename], stdin=subprocess.PIPE) as process,
    ):
        comm = Path(f"/proc/{process.pid}/comm")
        until(lambda: comm.read_text() == "other\n", "its name")
        found = [one for one in records.take() if getattr(one, "pid", 0) == process.pid]
        assert [type(one) for one in found] == [ForkRecord, ExecRecord, NameRecord]
        process.communicate(b"\n")
        process.wait(20)
        with subprocess.Popen(["/bin/true"]) as other:
            other.wait(20)
        pids = records.take_pids()
        assert pids is None or other.pid in pids  # None: other programs of this machine were many


@requires_root
def test_lost_records_leave_the_processes_unknown() -> None:
    cpus = os.sched_getaffinity(0)
    with PerfSideband() as records:
        os.sched_setaffinity(0, {min(cpus)})
        try:
            map_executable(4000)
            answers = [records.take_pids()]
            map_executable(1)  # the kernel says with the next record that some were lost
            answers.append(records.take_pids())
            assert None in answers  # the first, if another program wrote the next record
        finally:
            os.sched_setaffinity(0, cpus)


def map_executable(times: int) -> None:
    """Map a page, executable, so many times."""
    for _ in range(times):
        mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_EXEC).close()
