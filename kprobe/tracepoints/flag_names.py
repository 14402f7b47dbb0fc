"""Names of the flags of system calls, which are macros and thus in no format and not in BTF.

The values are those of include/uapi/asm-generic, which x86, riscv and loongarch use; five values
differ on arm64 (arch/arm64/include/uapi/asm/fcntl.h).
"""

from __future__ import annotations

from usdt.base.machine import KERNEL_MACHINE
from usdt.engine.compiler.value_names import Enumerators, Flags, ValueNames
from usdt.engine.output.socket_addresses import FAMILIES

__all__ = ("flags_of",)

# include/uapi/asm-generic/fcntl.h
_COMMON = {
    "O_CREAT": 0o100,
    "O_EXCL": 0o200,
    "O_NOCTTY": 0o400,
    "O_TRUNC": 0o1000,
    "O_APPEND": 0o2000,
    "O_NONBLOCK": 0o4000,
    "O_SYNC": 0o4010000,  # before O_DSYNC, which is a part of it
    "O_DSYNC": 0o10000,
    "O_NOATIME": 0o1000000,
    "O_CLOEXEC": 0o2000000,
    "O_PATH": 0o10000000,
    "FASYNC": 0o20000,
}
_GENERIC = {
    "O_DIRECT": 0o40000,
    "O_LARGEFILE": 0o100000,
    "O_TMPFILE": 0o20200000,
    "O_DIRECTORY": 0o200000,
    "O_NOFOLLOW": 0o400000,
}
_ARM = {
    "O_DIRECT": 0o200000,
    "O_LARGEFILE": 0o400000,
    "O_TMPFILE": 0o20040000,
    "O_DIRECTORY": 0o40000,
    "O_NOFOLLOW": 0o100000,
}
_OPEN = _COMMON | (_ARM if KERNEL_MACHINE in ("aarch64", "arm") else _GENERIC)
_ACCESS = ((0, "O_RDONLY"), (1, "O_WRONLY"), (2, "O_RDWR"))

# include/uapi/asm-generic/mman-common.h
_PROT = {"PROT_READ": 1, "PROT_WRITE": 2, "PROT_EXEC": 4, "PROT_SEM": 8, "PROT_NONE": 0}
_MAP = {
    "MAP_FIXED": 0x10,
    "MAP_ANONYMOUS": 0x20,
    "MAP_GROWSDOWN": 0x100,
    "MAP_DENYWRITE": 0x800,
    "MAP_EXECUTABLE": 0x1000,
    "MAP_LOCKED": 0x2000,
    "MAP_NORESERVE": 0x4000,
    "MAP_POPULATE": 0x8000,
    "MAP_NONBLOCK": 0x10000,
    "MAP_STACK": 0x20000,
    "MAP_HUGETLB": 0x40000,
    "MAP_SYNC": 0x80000,
    "MAP_FIXED_NOREPLACE": 0x100000,
}
_SHARING = ((1, "MAP_SHARED"), (2, "MAP_PRIVATE"), (3, "MAP_SHARED_VALIDATE"))

# include/uapi/linux/fcntl.h
_AT = {
    "AT_SYMLINK_NOFOLLOW": 0x100,
    "AT_REMOVEDIR": 0x200,
    "AT_SYMLINK_FOLLOW": 0x400,
    "AT_NO_AUTOMOUNT": 0x800,
    "AT_EMPTY_PATH": 0x1000,
}
# include/uapi/linux/sched.h
_CLONE = {
    "CLONE_VM": 0x100,
    "CLONE_FS": 0x200,
    "CLONE_FILES": 0x400,
    "CLONE_SIGHAND": 0x800,
    "CLONE_PIDFD": 0x1000,
    "CLONE_PTRACE": 0x2000,
    "CLONE_VFORK": 0x4000,
    "CLONE_PARENT": 0x8000,
    "CLONE_THREAD": 0x10000,
    "CLONE_NEWNS": 0x20000,
    "CLONE_SYSVSEM": 0x40000,
    "CLONE_SETTLS": 0x80000,
    "CLONE_PARENT_SETTID": 0x100000,
    "CLONE_CHILD_CLEARTID": 0x200000,
    "CLONE_UNTRACED": 0x800000,
    "CLONE_CHILD_SETTID": 0x1000000,
    "CLONE_NEWCGROUP": 0x2000000,
    "CLONE_NEWUTS": 0x4000000,
    "CLONE_NEWIPC": 0x8000000,
    "CLONE_NEWUSER": 0x10000000,
    "CLONE_NEWPID": 0x20000000,
    "CLONE_NEWNET": 0x40000000,
    "CLONE_IO": 0x80000000,
}
# include/linux/net.h, the numbers of all CPUs but MIPS
_SOCKET_TYPES = ((1, "SOCK_STREAM"), (2, "SOCK_DGRAM"), (3, "SOCK_RAW"), (4, "SOCK_RDM"),
                 (5, "SOCK_SEQPACKET"), (6, "SOCK_DCCP"), (10, "SOCK_PACKET"))  # fmt: skip
_SOCKET = {"SOCK_NONBLOCK": _OPEN["O_NONBLOCK"], "SOCK_CLOEXEC": _OPEN["O_CLOEXEC"]}
# include/linux/socket.h
_MESSAGE = {
    "MSG_OOB": 1,
    "MSG_PEEK": 2,
    "MSG_DONTROUTE": 4,
    "MSG_CTRUNC": 8,
    "MSG_TRUNC": 0x20,
    "MSG_DONTWAIT": 0x40,
    "MSG_EOR": 0x80,
    "MSG_WAITALL": 0x100,
    "MSG_CONFIRM": 0x800,
    "MSG_ERRQUEUE": 0x2000,
    "MSG_NOSIGNAL": 0x4000,
    "MSG_MORE": 0x8000,
    "MSG_WAITFORONE": 0x10000,
    "MSG_ZEROCOPY": 0x4000000,
    "MSG_FASTOPEN": 0x20000000,
    "MSG_CMSG_CLOEXEC": 0x40000000,
}
# include/uapi/linux/fs.h, eventpoll.h; unistd.h of the C library
_WHENCE = ((0, "SEEK_SET"), (1, "SEEK_CUR"), (2, "SEEK_END"), (3, "SEEK_DATA"), (4, "SEEK_HOLE"))
_EPOLL_OPERATIONS = ((1, "EPOLL_CTL_ADD"), (2, "EPOLL_CTL_DEL"), (3, "EPOLL_CTL_MOD"))
_ACCESS_MODES = {"R_OK": 4, "W_OK": 2, "X_OK": 1, "F_OK": 0}
# include/uapi/asm-generic/signal.h; the numbers of most CPUs
_SIGNALS = (
    "HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD CONT STOP "
    "TSTP TTIN TTOU URG XCPU XFSZ VTALRM PROF WINCH IO PWR SYS"
)


def _flags(
    table: dict[str, int], mask: int = 0, choices: tuple[tuple[int, str], ...] = ()
) -> ValueNames:
    return Flags(tuple((bit, name) for name, bit in table.items()), "|", mask, choices)


_OPEN_FLAGS = _flags(_OPEN, 3, _ACCESS)
_PIPE_FLAGS = _flags({name: _OPEN[name] for name in ("O_CLOEXEC", "O_NONBLOCK", "O_DIRECT")})
_PROTECTION = _flags(_PROT)
_MAP_FLAGS = _flags(_MAP, 3, _SHARING)
_PATH_FLAGS = _flags(_AT)
_CLONE_FLAGS = _flags(_CLONE)
_SIGNAL = Enumerators(
    tuple((number, f"SIG{name}") for number, name in enumerate(_SIGNALS.split(), 1))
)
_FAMILY = Enumerators(tuple(FAMILIES.items()))
_SOCKET_TYPE = _flags(_SOCKET, 0xF, _SOCKET_TYPES)
_MESSAGE_FLAGS = _flags(_MESSAGE)
_ACCESS_MODE = _flags(_ACCESS_MODES)
_DIRECTORY = Enumerators(((-100, "AT_FDCWD"),))
_NAMES = {
    **dict.fromkeys((("open", "flags"), ("openat", "flags")), _OPEN_FLAGS),
    **dict.fromkeys((("pipe2", "flags"), ("dup3", "flags")), _PIPE_FLAGS),
    **dict.fromkeys((("mmap", "prot"), ("mprotect", "prot")), _PROTECTION),
    ("pkey_mprotect", "prot"): _PROTECTION,
    **dict.fromkeys((("socket", "family"), ("socketpair", "family")), _FAMILY),
    **dict.fromkeys((("socket", "type"), ("socketpair", "type")), _SOCKET_TYPE),
    ("accept4", "flags"): _flags(_SOCKET),
    **dict.fromkeys(
        (
            (call, "flags")
            for call in ("sendto", "recvfrom", "sendmsg", "recvmsg", "sendmmsg", "recvmmsg")
        ),
        _MESSAGE_FLAGS,
    ),
    ("epoll_create1", "flags"): _flags({"EPOLL_CLOEXEC": _OPEN["O_CLOEXEC"]}),
    ("epoll_ctl", "op"): Enumerators(_EPOLL_OPERATIONS),
    ("lseek", "whence"): Enumerators(_WHENCE),
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
