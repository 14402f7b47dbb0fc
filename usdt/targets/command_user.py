"""The user whose command is traced: its IDs and the environment that goes with them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from usdt.base.errors import TargetError
from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ("CommandUser", "find_user")

_SHELL = "/bin/sh"  # of a user who has none in the user database, passwd(5)


@frozen
class CommandUser:
    """A user of the system.

    Attributes:
        name: the user's name.
        uid: the user ID.
        gid: the ID of the user's own group.
        groups: the IDs of all groups of the user.
        home: the home directory.
        shell: the login shell.
    """

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """Return an environment with the variables that name the user, as runuser(1) sets them."""
        own = {"HOME": self.home, "SHELL": self.shell, "USER": self.name, "LOGNAME": self.name}
        return {**base, **own}

    def assume(self) -> None:
        """Give this process the IDs of the user, for good.

        A process that has them already keeps its groups: only root may set these.

        Raises:
            PermissionError: this process may not.
        """
        if {*os.getresuid()} == {self.uid} and {*os.getresgid()} == {self.gid} and self.uid:
            return
        os.setgroups(self.groups)
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)


def find_user(name: str) -> CommandUser:
    """Return a user by name or by number.

    Raises:
        TargetError: there is no such user.
    """
    import pwd  # noqa: PLC0415 - only for --user

    try:
        entry = pwd.getpwuid(int(name)) if name.isdecimal() else pwd.getpwnam(name)
    except (KeyError, ValueError, OverflowError) as err:
        raise TargetError(
            f"user {name}: there is no such user; list them with: getent passwd"
        ) from err
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    shell = entry.pw_shell or _SHELL
    return CommandUser(
        entry.pw_name, entry.pw_uid, entry.pw_gid, groups, entry.pw_dir or "/", shell
    )
