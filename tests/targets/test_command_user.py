"""A command that runs as another user."""

from __future__ import annotations

import grp
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest
from processes import as_nobody

from usdt.base.errors import TargetError
from usdt.targets.command_user import CommandUser, find_user
from usdt.targets.spawn import StoppedCommand

WAYS = pytest.mark.parametrize("use_ptrace", [True, False], ids=["ptrace", "pipe"])
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
_NAMES = ("HOME", "SHELL", "USER", "LOGNAME")
_SHOWN = """
import os
print(os.getresuid(), os.getresgid(), sorted(os.getgroups()), os.environ.get("LANG"), sep="|")
print([os.environ.get(name) for name in ("HOME", "SHELL", "USER", "LOGNAME")], sep="|")
print([line.split()[1] for line in open("/proc/self/status") if line.startswith("CapEff")])
"""


def _run(user: str, *, use_ptrace: bool) -> list[str]:
    # What a command says that runs as a user.
    program = (
        "import sys; from usdt.targets.spawn import StoppedCommand\n"
        "with StoppedCommand(sys.argv[3:], user=sys.argv[1], use_ptrace=sys.argv[2] == '1') as c:\n"
        "    c.release(); c.wait()"
    )
    done = subprocess.run(
        [
            *(sys.executable, "-c", program, user, str(int(use_ptrace))),
            *("/usr/bin/python3", "-c", _SHOWN),
        ],
        capture_output=True,
        text=True,
        check=True,
        env={"LANG": "xx", "HOME": "/root", "USER": "root"},
        cwd=Path(__file__).parents[2],
    )
    return done.stdout.splitlines()


@needs_root
@WAYS
@pytest.mark.parametrize("number", [False, True], ids=["name", "number"])
def test_it_has_the_users_ids_and_environment(*, number: bool, use_ptrace: bool) -> None:
    entry = _member_of_groups()
    ids, variables, capabilities = _run(
        str(entry.pw_uid) if number else entry.pw_name, use_ptrace=use_ptrace
    )
    uid, gid = entry.pw_uid, entry.pw_gid
    groups = sorted(os.getgrouplist(entry.pw_name, gid))
    assert ids == f"({uid}, {uid}, {uid})|({gid}, {gid}, {gid})|{groups}|xx"
    expected = [entry.pw_dir, entry.pw_shell or "/bin/sh", entry.pw_name, entry.pw_name]
    assert variables == repr(expected)
    assert int(capabilities.strip("[']"), 16) == 0


def _member_of_groups() -> pwd.struct_passwd:
    # A user in more groups than one, or else nobody.
    for group in grp.getgrall():
        for name in group.gr_mem:
            entry = pwd.getpwnam(name)
            if entry.pw_uid and entry.pw_gid != group.gr_gid:
                return entry
    return pwd.getpwnam("nobody")


def test_who_is_not_there_is_said() -> None:
    for name in ("nosuch", "4294967294"):
        with pytest.raises(TargetError, match=f"user {name}: there is no such user; .*getent"):
            find_user(name)


@pytest.fixture
def loaded() -> None:
    """Have everything imported: another user may not be able to read this Python's modules."""
    for use_ptrace in (True, False):
        with StoppedCommand(["true"], user="nobody", use_ptrace=use_ptrace) as command:
            command.release()


@needs_root
@pytest.mark.usefixtures("loaded")
def test_only_root_runs_commands_as_another_user() -> None:
    def question() -> object:
        try:
            with StoppedCommand(["true"], user="root") as command:
                command.release()
        except TargetError as err:
            return str(err)
        return None

    said = as_nobody(question)
    assert said == (
        "user root: running a command as another user needs root (CAP_SETUID, CAP_SETGID)"
    )


@needs_root
@pytest.mark.usefixtures("loaded")
def test_a_user_may_name_itself() -> None:
    def question() -> object:
        with StoppedCommand(["true"], user="nobody") as command:
            command.release()
            return command.wait()

    assert as_nobody(question) == 0


@needs_root
@WAYS
def test_what_the_user_may_not_execute_is_said(tmp_path: Path, *, use_ptrace: bool) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    with (
        pytest.raises(TargetError, match=r"program: cannot be executed as user nobody: Perm"),
        StoppedCommand([str(program)], user="nobody", use_ptrace=use_ptrace) as command,
    ):
        command.release()


def test_a_user_is_a_value() -> None:
    user = CommandUser("u", 5, 6, (6, 7), "/home/u", "/bin/zsh")
    assert user.environment({"A": "b", "HOME": "/root"}) == {
        "A": "b",
        **dict(zip(_NAMES, ("/home/u", "/bin/zsh", "u", "u"), strict=True)),
    }
