"""Constants of headers: the values are those of the C library's headers, as Python has them."""

from __future__ import annotations

import errno
import mmap
import os
import signal
import socket
import stat
import time

import pytest

from usdt.engine.programs.included.constants import constants

_PREFIXES = ("AF_", "CLOCK_", "CLONE_", "E", "IPPROTO_", "MAP_", "MSG_", "O_", "PROT_", "SEEK_",
             "SIG", "SOCK_", "S_I", "R_OK", "W_OK", "X_OK", "F_OK")  # fmt: skip
# The C library's own value: 0, because a 64-bit process needs no flag for large files.
_DIFFERENT = {"O_LARGEFILE"}


@pytest.mark.parametrize(
    "module", [errno, mmap, os, signal, socket, stat, time], ids=lambda m: m.__name__
)
def test_values_are_those_of_python(module) -> None:
    known = constants()
    compared = [
        name
        for name in dir(module)
        if name in known
        and name.startswith(_PREFIXES)
        and name not in _DIFFERENT
        and not callable(getattr(module, name))
    ]
    assert compared
    assert {name: known[name] for name in compared} == {
        name: int(getattr(module, name)) for name in compared
    }


def test_what_scripts_use_most() -> None:
    known = constants()
    assert (known["AF_INET"], known["AF_INET6"], known["PF_INET6"]) == (2, 10, 10)
    assert (known["TCP_ESTABLISHED"], known["TCP_CLOSE"], known["TCP_NEW_SYN_RECV"]) == (1, 7, 12)
    assert (known["TASK_RUNNING"], known["S_IRUSR"], known["S_IXOTH"]) == (0, 0o400, 1)
    assert (known["EAGAIN"], known["SIGKILL"], known["ERESTARTSYS"]) == (11, 9, 512)
