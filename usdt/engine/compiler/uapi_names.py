"""Constants of the kernel's interface that are macros, and so in no type information.

The values are those of include/uapi/asm-generic, which x86, riscv and loongarch use; five values
of the flags of open(2) differ on arm64 (arch/arm64/include/uapi/asm/fcntl.h).
"""

from __future__ import annotations

from usdt.base.machine import KERNEL_MACHINE

__all__ = (
    "ACCESS_MODES",
    "CLONE_FLAGS",
    "EPOLL_OPERATIONS",
    "FILE_MODES",
    "MAP_FLAGS",
    "MAP_SHARING",
    "MESSAGE_FLAGS",
    "OPEN_FLAGS",
    "OPEN_MODES",
    "PATH_FLAGS",
    "PROTECTIONS",
    "SEEK_ORIGINS",
    "SIGNALS",
    "SOCKET_FLAGS",
    "SOCKET_TYPES",
)

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
OPEN_FLAGS = _COMMON | (_ARM if KERNEL_MACHINE in ("aarch64", "arm") else _GENERIC)
OPEN_MODES = ((0, "O_RDONLY"), (1, "O_WRONLY"), (2, "O_RDWR"))

# include/uapi/asm-generic/mman-common.h
PROTECTIONS = {"PROT_READ": 1, "PROT_WRITE": 2, "PROT_EXEC": 4, "PROT_SEM": 8, "PROT_NONE": 0}
MAP_FLAGS = {
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
MAP_SHARING = ((1, "MAP_SHARED"), (2, "MAP_PRIVATE"), (3, "MAP_SHARED_VALIDATE"))

# include/uapi/linux/fcntl.h
PATH_FLAGS = {
    "AT_SYMLINK_NOFOLLOW": 0x100,
    "AT_REMOVEDIR": 0x200,
    "AT_SYMLINK_FOLLOW": 0x400,
    "AT_NO_AUTOMOUNT": 0x800,
    "AT_EMPTY_PATH": 0x1000,
}
# include/uapi/linux/sched.h
CLONE_FLAGS = {
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
SOCKET_TYPES = ((1, "SOCK_STREAM"), (2, "SOCK_DGRAM"), (3, "SOCK_RAW"), (4, "SOCK_RDM"),
                 (5, "SOCK_SEQPACKET"), (6, "SOCK_DCCP"), (10, "SOCK_PACKET"))  # fmt: skip
SOCKET_FLAGS = {"SOCK_NONBLOCK": OPEN_FLAGS["O_NONBLOCK"], "SOCK_CLOEXEC": OPEN_FLAGS["O_CLOEXEC"]}
# include/linux/socket.h
MESSAGE_FLAGS = {
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
SEEK_ORIGINS = (
    (0, "SEEK_SET"),
    (1, "SEEK_CUR"),
    (2, "SEEK_END"),
    (3, "SEEK_DATA"),
    (4, "SEEK_HOLE"),
)
EPOLL_OPERATIONS = ((1, "EPOLL_CTL_ADD"), (2, "EPOLL_CTL_DEL"), (3, "EPOLL_CTL_MOD"))
ACCESS_MODES = {"R_OK": 4, "W_OK": 2, "X_OK": 1, "F_OK": 0}
# include/uapi/asm-generic/signal.h; the numbers of most CPUs
_SIGNAL_NAMES = (
    "HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD CONT STOP "
    "TSTP TTIN TTOU URG XCPU XFSZ VTALRM PROF WINCH IO PWR SYS"
)
SIGNALS = {f"SIG{name}": number for number, name in enumerate(_SIGNAL_NAMES.split(), 1)}

# include/uapi/linux/stat.h
FILE_MODES = {
    "S_IFMT": 0o170000,
    "S_IFSOCK": 0o140000,
    "S_IFLNK": 0o120000,
    "S_IFREG": 0o100000,
    "S_IFBLK": 0o060000,
    "S_IFDIR": 0o040000,
    "S_IFCHR": 0o020000,
    "S_IFIFO": 0o010000,
    "S_ISUID": 0o4000,
    "S_ISGID": 0o2000,
    "S_ISVTX": 0o1000,
    **{
        f"S_I{right}{who}": bit << 3 * (2 - place)
        for place, who in enumerate(("USR", "GRP", "OTH"))
        for right, bit in (("R", 4), ("W", 2), ("X", 1))
    },
    "S_IRWXU": 0o700,
    "S_IRWXG": 0o070,
    "S_IRWXO": 0o007,
}
