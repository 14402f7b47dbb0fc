"""usdt.bpf._syscall: attributes packed from plain values; errors with their call's name."""

from __future__ import annotations

import contextlib
import ctypes  # noqa: TID251 - to look at the memory behind a packed pointer
import errno
import json
import os
import signal
import struct
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from house import ROOT

from usdt.base.errors import SyscallError
from usdt.base.machine import PROCESS_MACHINE
from usdt.bpf import _syscall
from usdt.bpf._syscall import Field, bpf, bpf_attribute, perf_attribute, ptrace, write
from usdt.bpf._uapi import SYSCALLS, Command
from usdt.bpf.maps import parse_cpu_list, possible_cpus

if TYPE_CHECKING:
    from collections.abc import Sequence

_NO_PID = 1 << 30  # above any pid_max


def pack(layout: str, *fields: Field) -> bytes:
    return _syscall._pack(layout, fields)[0]


def at(address: int, size: int) -> bytes:
    return ctypes.string_at(address, size)


@pytest.mark.parametrize(
    ("layout", "kinds"),
    [
        pytest.param("", "", id="nothing"),
        pytest.param("IIQ", "IIQ", id="a letter is a value"),
        pytest.param("3IQ", "IIIQ", id="a count repeats"),
        pytest.param("12I", "I" * 12, id="of two digits"),
        pytest.param("16s", "s", id="a string is one value however long"),
        pytest.param("I4xP", "IP", id="padding is no value"),
        pytest.param("40x", "", id="nothing but padding"),
        pytest.param("2PI16sII", "PPIsII", id="all together"),
    ],
)
def test_kinds_of_values(layout: str, kinds: str) -> None:
    assert _syscall._kinds(layout) == kinds


@pytest.mark.parametrize(
    ("layout", "fields", "expected"),
    [
        pytest.param("IQ", (1, 2), struct.pack("=IQ", 1, 2), id="no padding of its own"),
        pytest.param("I4xQ", (1, 2), struct.pack("=IIQ", 1, 0, 2), id="padding where it says so"),
        pytest.param("3I", (1, 2, 3), struct.pack("=III", 1, 2, 3), id="counts"),
        pytest.param("16s", (b"events",), b"events" + bytes(10), id="strings are filled up"),
        pytest.param("16s", (None,), bytes(16), id="no string"),
        pytest.param("4s", (bytearray(b"ab"),), b"ab\0\0", id="a string from a bytearray"),
        pytest.param("P", (None,), bytes(8), id="no pointer is NULL"),
        pytest.param("P", (0x1122,), struct.pack("=Q", 0x1122), id="an address stays what it is"),
        pytest.param("i", (-5,), struct.pack("=i", -5), id="signed"),
    ],
)
def test_packing(layout: str, fields: Sequence[Field], expected: bytes) -> None:
    assert pack(layout, *fields) == expected


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"a\0b", b"no NUL is added", bytes(4096)], ids=lambda data: f"{len(data)}"
)
def test_bytes_are_copied_and_pointed_to(data: bytes) -> None:
    packed, keep = _syscall._pack("P", (data,))
    (address,) = struct.unpack("=Q", packed)
    assert address
    assert at(address, len(data)) == data
    assert keep[0] is not None


def test_a_bytearray_is_pointed_to_itself() -> None:
    room = bytearray(8)
    packed, keep = _syscall._pack("I4xP", (1, room))
    (address,) = struct.unpack_from("=Q", packed, 8)
    ctypes.memset(address, 0xAB, 8)
    assert room == b"\xab" * 8
    assert len(keep) == 1


def test_pointers_of_one_attribute_do_not_overlap() -> None:
    packed, keep = perf_attribute("PPP", b"first", b"second", b"third")
    first, second, third = struct.unpack("=QQQ", packed)
    assert (at(first, 5), at(second, 6), at(third, 5)) == (b"first", b"second", b"third")
    assert len(keep) == 3


@pytest.mark.parametrize("fields", [(1,), (1, 2, 3)], ids=["too few", "too many"])
def test_as_many_values_as_the_layout_says(fields: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="zip"):
        pack("II", *fields)


@pytest.mark.parametrize("value", [-1, 1 << 32])
def test_a_value_that_does_not_fit_is_never_cut_off(value: int) -> None:
    with pytest.raises(struct.error):
        pack("I", value)


def test_a_refused_call_has_its_name_and_errno() -> None:
    # No map 2^30, and no privilege is asked for before that is found out.
    with pytest.raises(SyscallError) as caught:
        bpf(Command.MAP_LOOKUP_ELEM, "I4xPPQ", _NO_PID, b"\0" * 4, bytearray(4), 0)
    assert caught.value.call == "bpf(BPF_MAP_LOOKUP_ELEM)"
    assert caught.value.errno in (errno.EBADF, errno.EPERM)


def test_an_attribute_that_answers_comes_back_whole() -> None:
    result, number, attribute = bpf_attribute(
        Command.MAP_LOOKUP_ELEM, "I4xPPQ", _NO_PID, b"\0" * 4, bytearray(4), 0
    )
    assert result == -1
    assert number in (errno.EBADF, errno.EPERM)
    assert len(attribute) == 32
    assert attribute[:4] == struct.pack("=I", _NO_PID)


def test_ptrace_of_nobody() -> None:
    with pytest.raises(SyscallError) as caught:
        ptrace(16, _NO_PID)
    assert (caught.value.errno, caught.value.call) == (errno.ESRCH, "ptrace")


def test_system_calls_of_this_cpu() -> None:
    # Of every other CPU: tests/arch/test_pt_regs.py.
    numbers = SYSCALLS.get(PROCESS_MACHINE, SYSCALLS["generic"])
    assert numbers == (_syscall._BPF, _syscall._PERF_EVENT_OPEN)


_LIMIT = """\
import json, os, resource, sys
from usdt.bpf import maps
from usdt.base.errors import SyscallError
from usdt.base.machine import PROCESS_MACHINE
from usdt.bpf._syscall import prlimit_memlock
resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 131072))
prlimit_memlock(65536)  # lowering is free
os.setgroups([]) if os.geteuid() == 0 else None
os.setuid(65534) if os.geteuid() == 0 else None
raised = maps.raise_memlock()
try:
    prlimit_memlock(1 << 40)
except SyscallError as err:
    said = (err.errno, err.call)
limits = resource.getrlimit(resource.RLIMIT_MEMLOCK)
print(json.dumps([raised, said, limits]))
"""


def test_a_memlock_limit_that_cannot_be_raised_is_no_error_of_its_own() -> None:
    done = subprocess.run([sys.executable, "-c", _LIMIT], cwd=ROOT, capture_output=True, check=True)
    raised, said, limits = json.loads(done.stdout)
    assert raised is False
    assert said == [errno.EPERM, "setrlimit(RLIMIT_MEMLOCK)"]
    assert limits == [65536, 65536]


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        pytest.param("0\n", [0], id="one"),
        pytest.param("0-3\n", [0, 1, 2, 3], id="four"),
        pytest.param("0-127\n", [*range(128)], id="a hundred and twenty-eight"),
        pytest.param("0,2-3\n", [0, 2, 3], id="a gap has no slot"),
        pytest.param("0-1,4,8-11\n", [0, 1, 4, 8, 9, 10, 11], id="three ranges"),
    ],
)
def test_lists_of_cpus_are_read(text: str, cpus: list[int]) -> None:
    assert parse_cpu_list(text) == cpus


def test_there_are_at_least_as_many_possible_cpus_as_online_ones() -> None:
    assert possible_cpus() >= (os.cpu_count() or 1)


def test_a_write_that_is_always_interrupted_is_given_up() -> None:
    """os.write() repeats it for ever, as the event tracer answers for an event that perf uses."""
    reader, writer = os.pipe()
    previous = signal.signal(signal.SIGALRM, lambda *_: None)
    try:
        os.set_blocking(writer, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writer, bytes(4096))
        os.set_blocking(writer, True)
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        with pytest.raises(SyscallError) as caught:
            write(writer, b"x")
        assert caught.value.errno == errno.EINTR
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        os.close(reader)
        os.close(writer)


def test_write_says_what_the_kernel_refuses() -> None:
    reader, writer = os.pipe()
    try:
        assert write(writer, b"abc") == 3
        assert os.read(reader, 10) == b"abc"
        with pytest.raises(SyscallError, match="write: Bad file descriptor"):
            write(reader, b"x")
    finally:
        os.close(reader)
        os.close(writer)
