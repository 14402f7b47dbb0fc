"""usdt.base.closeable: descriptors that are closed once and are never 0."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest
from house import ROOT

from usdt.base.closeable import FD, open_descriptors


def null() -> int:
    return os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)


def is_open(number: int) -> bool:
    try:
        fcntl.fcntl(number, fcntl.F_GETFD)
    except OSError:
        return False
    return True


def test_it_keeps_the_number_and_closes_it() -> None:
    number = null()
    fd = FD(number)
    assert (fd.fileno(), fd.number, fd.closed) == (number, number, False)
    fd.close()
    assert fd.closed
    assert not is_open(number)


def test_it_is_closed_with_its_block_also_by_an_error() -> None:
    with FD(null()) as fd:
        assert not fd.closed
    assert fd.closed
    with pytest.raises(ZeroDivisionError), FD(null()) as fd:
        _ = 1 // int(fd.closed)
    assert fd.closed


def test_a_closed_one_has_no_number() -> None:
    fd = FD(null())
    fd.close()
    with pytest.raises(ValueError, match="operation on a closed kernel object"):
        fd.fileno()


def test_closing_twice_does_not_close_the_next_owner_of_the_number() -> None:
    fd = FD(null())
    number = fd.fileno()
    fd.close()
    again = null()
    try:
        assert again == number  # the lowest free one: what makes closing twice dangerous
        fd.close()
        assert is_open(number)
    finally:
        os.close(again)


def test_one_whose_closing_fails_is_closed_all_the_same() -> None:
    number = null()
    fd = FD(number)
    os.close(number)
    with pytest.raises(OSError, match="Bad file descriptor"):
        fd.close()
    assert fd.closed
    fd.close()


_WITHOUT_STDIN = """\
import fcntl, os
from usdt.base.closeable import FD
os.close(0)
number = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
assert number == 0, number
fd = FD(number)
assert fd.fileno() >= 3, fd.fileno()
assert fcntl.fcntl(fd.fileno(), fcntl.F_GETFD) & fcntl.FD_CLOEXEC
assert os.readlink(f"/proc/self/fd/{fd.fileno()}") == "/dev/null"
assert not os.path.exists("/proc/self/fd/0")
fd.close()
"""


def test_a_process_without_standard_input_gets_no_descriptor_0() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_STDIN], cwd=ROOT, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


_DESCRIPTORS = """\
import resource
from usdt.base.closeable import allow_descriptors
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (100, min(hard, 400)))
allow_descriptors(5)
assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 100
allow_descriptors(200)
assert 264 <= resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 300
allow_descriptors(100_000)
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (400, 400)
"""


def test_room_for_descriptors_is_made_as_far_as_it_is_allowed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _DESCRIPTORS], cwd=ROOT, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


def test_open_descriptors_are_counted_without_a_list_of_them() -> None:
    opened = [os.open("/", os.O_RDONLY) for _ in range(50)]
    try:
        listed = [*Path("/proc/self/fd").iterdir()]  # with the descriptor of the list itself
        assert open_descriptors() in (len(listed) - 1, len(listed))
    finally:
        for one in opened:
            os.close(one)
