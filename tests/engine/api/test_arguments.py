"""What the Python interface says of arguments that it cannot take."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest

import kprobe
import usdt
from usdt.engine.api.attach import target_options


@pytest.mark.parametrize("module", [usdt, kprobe], ids=["usdt", "kprobe"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pid": "123"}, "pid '123': expected the ID of a process, an integer"),
        ({"pid": b"123"}, "pid b'123': expected the ID of a process"),
        ({"pid": ["12"]}, "pid '12': expected the ID of a process"),
        ({"pid": True}, "pid True: expected the ID of a process"),
        ({"pid": 1.5}, "pid 1.5: expected the ID of a process"),
        ({"command": 7}, "command 7: expected a string, or a list of strings"),
        ({"command": b"true"}, "command b'true': expected a string, or a list of strings"),
        ({"command": "true", "user": 0}, "user 0: expected the name of a user, a string"),
        ({"buffer": "8M"}, "buffer '8M': expected a number of bytes, an integer"),
        ({"backlog": 1.5}, "backlog 1.5: expected a number of bytes, an integer"),
        ({"max_string": None}, "max_string None: expected a number of bytes, an integer"),
        ({"container": 7}, "container 7: expected a name, a string"),
        ({"pod": ["a/b", b"c"]}, "pod b'c': expected a name, a string"),
        ({"cgroups": "/a"}, "unexpected keyword argument 'cgroups'"),
        ({"command": ["sleep", 1]}, "command ['sleep', 1]: expected a string, or a list"),
    ],
    ids=repr,
)
def test_wrong_types_are_named(module: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=re.escape(message)):
        module.attach("syscall:openat", **arguments)


def test_a_probe_that_is_no_string() -> None:
    with pytest.raises(TypeError, match="probe 7: expected a string"):
        usdt.attach(7)  # type: ignore[arg-type]


def test_process_ids_are_one_or_several() -> None:
    for pid, found in ((5, (5,)), ([5, 6], (5, 6)), (range(2), (0, 1)), (None, ())):
        assert target_options(pid=pid, library_timeout=None).pids == found


def test_cgroups_are_named_one_or_several() -> None:
    made = target_options(pid=None, library_timeout=None, container="web", unit=["a", "b.service"])
    assert [choice.written for choice in made.cgroups] == [
        "--container web",
        "--unit a",
        "--unit b.service",
    ]


@pytest.mark.parametrize("module", [usdt, kprobe], ids=["usdt", "kprobe"])
def test_a_command_excludes_cgroups(module: Any) -> None:
    with pytest.raises(usdt.TargetError, match="pod: a command starts in the cgroup of this"):
        module.attach("syscall:openat", command="true", pod="a/b")


def test_a_string_command_is_split_as_by_a_shell() -> None:
    made = target_options(pid=None, command="python3 -c 'print(1)'", library_timeout=None)
    assert made.command == ("python3", "-c", "print(1)")
    with pytest.raises(usdt.TargetError, match="No closing quotation"):
        usdt.attach(f"{sys.executable}:a:b", command="x 'y")


@pytest.mark.parametrize("module", [usdt, kprobe], ids=["usdt", "kprobe"])
def test_a_user_is_the_user_of_a_command(module: Any) -> None:
    with pytest.raises(usdt.TargetError, match="user nobody: there is no command"):
        module.attach("syscall:openat", pid=1, user="nobody")
    with pytest.raises(usdt.TargetError, match="user nosuch: there is no such user"):
        module.attach("syscall:openat", command="true", user="nosuch")


@pytest.mark.parametrize("method", ["hist", "latency"])
def test_linear_is_a_string(method: str) -> None:
    probes = ["syscall:openat", "syscall:read"][: 1 + (method == "latency")]
    with kprobe.Session() as session, pytest.raises(TypeError, match=r"linear \(0, 100, 10\)"):
        getattr(session, method)(*probes, linear=(0, 100, 10))
