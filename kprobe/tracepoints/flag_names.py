"""Names of the flags of system calls, which are macros and thus in no format and not in BTF."""

from __future__ import annotations

from usdt.engine.compiler.uapi_names import (
    ACCESS_MODES,
    CLONE_FLAGS,
    EPOLL_OPERATIONS,
    MAP_FLAGS,
    MAP_SHARING,
    MESSAGE_FLAGS,
    OPEN_FLAGS,
    OPEN_MODES,
    PATH_FLAGS,
    PROTECTIONS,
    SEEK_ORIGINS,
    SIGNALS,
    SOCKET_FLAGS,
    SOCKET_TYPES,
)
from usdt.engine.compiler.value_names import Enumerators, Flags, ValueNames
from usdt.engine.output.socket_addresses import FAMILIES

__all__ = ("flags_of",)


def _flags(
    table: dict[str, int], mask: int = 0, choices: tuple[tuple[int, str], ...] = ()
) -> ValueNames:
    return Flags(tuple((bit, name) for name, bit in table.items()), "|", mask, choices)


_OPEN_FLAGS = _flags(OPEN_FLAGS, 3, OPEN_MODES)
_PIPE_FLAGS = _flags({name: OPEN_FLAGS[name] for name in ("O_CLOEXEC", "O_NONBLOCK", "O_DIRECT")})
_PROTECTION = _flags(PROTECTIONS)
_MAP_FLAGS = _flags(MAP_FLAGS, 3, MAP_SHARING)
_PATH_FLAGS = _flags(PATH_FLAGS)
_CLONE_FLAGS = _flags(CLONE_FLAGS)
_SIGNAL = Enumerators(tuple((number, name) for name, number in SIGNALS.items()))
_FAMILY = Enumerators(tuple(FAMILIES.items()))
_SOCKET_TYPE = _flags(SOCKET_FLAGS, 0xF, SOCKET_TYPES)
_MESSAGE_FLAGS = _flags(MESSAGE_FLAGS)
_ACCESS_MODE = _flags(ACCESS_MODES)
_DIRECTORY = Enumerators(((-100, "AT_FDCWD"),))
_NAMES = {
    **dict.fromkeys((("open", "flags"), ("openat", "flags")), _OPEN_FLAGS),
    **dict.fromkeys((("pipe2", "flags"), ("dup3", "flags")), _PIPE_FLAGS),
    **dict.fromkeys((("mmap", "prot"), ("mprotect", "prot")), _PROTECTION),
    ("pkey_mprotect", "prot"): _PROTECTION,
    **dict.fromkeys((("socket", "family"), ("socketpair", "family")), _FAMILY),
    **dict.fromkeys((("socket", "type"), ("socketpair", "type")), _SOCKET_TYPE),
    ("accept4", "flags"): _flags(SOCKET_FLAGS),
    **dict.fromkeys(
        (
            (call, "flags")
            for call in ("sendto", "recvfrom", "sendmsg", "recvmsg", "sendmmsg", "recvmmsg")
        ),
        _MESSAGE_FLAGS,
    ),
    ("epoll_create1", "flags"): _flags({"EPOLL_CLOEXEC": OPEN_FLAGS["O_CLOEXEC"]}),
    ("epoll_ctl", "op"): Enumerators(EPOLL_OPERATIONS),
    ("lseek", "whence"): Enumerators(SEEK_ORIGINS),
    **dict.fromkeys(
        ((call, "mode") for call in ("access", "faccessat", "faccessat2")), _ACCESS_MODE
    ),
    ("mmap", "flags"): _MAP_FLAGS,
    **dict.fromkeys((("newfstatat", "flag"), ("unlinkat", "flag")), _PATH_FLAGS),
    **dict.fromkeys((("linkat", "flags"), ("statx", "flags")), _PATH_FLAGS),
    **dict.fromkeys((("execveat", "flags"), ("faccessat2", "flags")), _PATH_FLAGS),
    **dict.fromkeys((("clone", "clone_flags"), ("unshare", "unshare_flags")), _CLONE_FLAGS),
    ("setns", "flags"): _CLONE_FLAGS,
    **dict.fromkeys((("kill", "sig"), ("tkill", "sig"), ("tgkill", "sig")), _SIGNAL),
    **dict.fromkeys((("rt_sigaction", "sig"), ("pidfd_send_signal", "sig")), _SIGNAL),
}


def flags_of(call: str, argument: str, kind: str) -> ValueNames | None:
    """Return names of the values of a system call's argument; None if none are known.

    Args:
        call: name of the system call.
        argument: name of the argument in the kernel's format.
        kind: C type of the argument.
    """
    if kind == "int" and argument in ("dfd", "olddfd", "newdfd", "dirfd"):
        return _DIRECTORY
    return _NAMES.get((call, argument))
