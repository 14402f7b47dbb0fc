"""System calls through libc: bpf(2), perf_event_open(2), ptrace(2), prctl(2), fsmount(2), write(2).

Attributes of bpf(2) are packed from plain values, so no C structure is declared twice: the layout
is a :mod:`struct` format in which ``P`` stands for a pointer. A pointer's value is
``bytes`` (copied in), ``bytearray`` (the kernel writes into it) or None (NULL).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import struct
from typing import TYPE_CHECKING

from usdt.base.closeable import FD, Closeable
from usdt.base.errors import SyscallError
from usdt.base.machine import PROCESS_MACHINE
from usdt.bpf._uapi import MOUNT_SYSCALLS, SYSCALLS, Command
from usdt.bpf.capabilities import privilege_hint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = (
    "ExecutableFile",
    "Field",
    "address_of",
    "bpf",
    "bpf_attribute",
    "capset",
    "clear_ambient_capabilities",
    "die_with_parent",
    "forbid_new_privileges",
    "limit_bounding_set",
    "mount_privately",
    "perf_attribute",
    "perf_event_open",
    "prctl",
    "prlimit_memlock",
    "ptrace",
    "string_array",
    "u64_array",
    "uprobe_syscall",
    "write",
)

Field = int | bytes | bytearray | None

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.write.restype = ctypes.c_ssize_t
_libc.write.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int),
    *(ctypes.c_int, ctypes.c_int, ctypes.c_long),
)
_MAP_FAILED = ctypes.c_void_p(-1).value
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)

_BPF, _PERF_EVENT_OPEN = SYSCALLS.get(PROCESS_MACHINE, SYSCALLS["generic"])

_UPROBE = 336  # on x86-64 alone

_FSOPEN_CLOEXEC = _FSMOUNT_CLOEXEC = 1  # include/uapi/linux/mount.h
_FSCONFIG_CMD_CREATE = 6
# include/uapi/linux/prctl.h and capability.h
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 1, 24, 38, 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION_3 = 0x20080522

# A command fails with EAGAIN when a signal interrupts the verifier. Like libbpf, try again, but not
# so often that a real fault is hidden.
_ATTEMPTS = 5


def bpf(command: Command, layout: str, *fields: Field) -> int:
    """Run a BPF command with an attribute packed from ``fields``, and return its result.

    Raises:
        SyscallError: with the errno and ``bpf(BPF_…)`` as the call's name; for EPERM with a hint
            which capability is missing.
    """
    result, number, _ = bpf_attribute(command, layout, *fields)
    if result == -1:
        hint = privilege_hint() if number == errno.EPERM else ""
        raise SyscallError(number, f"bpf(BPF_{command.name})", hint)
    return result


def bpf_attribute(command: Command, layout: str, *fields: Field) -> tuple[int, int, bytes]:
    """Call bpf(2) like :func:`bpf`, for commands that return values in the attribute.

    Returns:
        (result, errno, the attribute as the kernel left it).
    """
    attribute, keep = _pack(layout, fields)
    buffer = ctypes.create_string_buffer(attribute, len(attribute))
    result, number = -1, errno.EAGAIN
    for _ in range(_ATTEMPTS):
        result = _libc.syscall(
            ctypes.c_long(_BPF), ctypes.c_int(command), buffer, ctypes.c_uint(len(attribute))
        )
        number = ctypes.get_errno() if result == -1 else 0
        if number != errno.EAGAIN:
            break
    del keep  # pointers were valid until here
    return int(result), number, buffer.raw


def perf_event_open(
    attribute: bytes,
    pid: int,
    cpu: int,
    group: int = -1,
    flags: int = 8,
    *,
    hint: Callable[[], str] = privilege_hint,
) -> int:
    """Open a perf event; ``flags`` defaults to PERF_FLAG_FD_CLOEXEC.

    Raises:
        SyscallError: EACCES and EPERM come with a hint which capability is missing.
    """
    buffer = ctypes.create_string_buffer(attribute, len(attribute))
    result = _libc.syscall(
        ctypes.c_long(_PERF_EVENT_OPEN),
        buffer,
        ctypes.c_int(pid),
        ctypes.c_int(cpu),
        ctypes.c_int(group),
        ctypes.c_ulong(flags),
    )
    if result == -1:
        number = ctypes.get_errno()
        said = hint() if number in (errno.EPERM, errno.EACCES) else ""
        raise SyscallError(number, "perf_event_open", said)
    return int(result)


def perf_attribute(layout: str, *fields: Field) -> tuple[bytes, list[object]]:
    """Pack a ``struct perf_event_attr``; keep the second value as long as its pointers are used."""
    return _pack(layout, fields)


def string_array(strings: Sequence[str]) -> tuple[bytes, list[object]]:
    """Pack pointers to NUL-terminated strings, a u64 each; keep the second value with them."""
    keep = [ctypes.create_string_buffer(string.encode()) for string in strings]
    return u64_array([ctypes.addressof(owner) for owner in keep]), [*keep]


def u64_array(values: Sequence[int]) -> bytes:
    """Pack numbers, a u64 each."""
    return struct.pack(f"={len(values)}Q", *values)


def address_of(buffer: bytearray) -> tuple[int, object]:
    """Return the address of a buffer, for a pointer within another; keep the second value."""
    return _address(buffer)


def ptrace(request: int, pid: int, address: int = 0, data: int = 0) -> int:
    """Trace another process: make a request that returns no data.

    Raises:
        SyscallError: the kernel refuses.
    """
    return _checked(int(_libc.ptrace(request, pid, address, data)), "ptrace")


def die_with_parent(number: int) -> None:
    """Ask for a signal when the thread that forked this process ends (PR_SET_PDEATHSIG).

    Raises:
        SyscallError: there is no such signal.
    """
    prctl("PR_SET_PDEATHSIG", _PR_SET_PDEATHSIG, number)


def capset(effective: int, permitted: int, inheritable: int) -> None:
    """Set the capabilities of this thread, one bit for each.

    Raises:
        SyscallError: EPERM: this thread may not have one of them.
    """
    sets = effective, permitted, inheritable
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    data = struct.pack("=6I", *(one & 0xFFFFFFFF for one in sets), *(one >> 32 for one in sets))
    _checked(int(_libc.capset(header, data)), "capset")


def clear_ambient_capabilities() -> None:
    """Empty the ambient set of this thread. Linux 4.3."""
    prctl("PR_CAP_AMBIENT", _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)


def limit_bounding_set(keep: int) -> None:
    """Take all capabilities but these from the bounding set, if this thread may (CAP_SETPCAP)."""
    with contextlib.suppress(SyscallError):  # EINVAL: there are no further ones; EPERM
        for bit in range(64):
            if not keep >> bit & 1:
                prctl("PR_CAPBSET_DROP", _PR_CAPBSET_DROP, bit)


def forbid_new_privileges() -> None:
    """Let no program that this thread executes gain privileges (no_new_privs)."""
    prctl("PR_SET_NO_NEW_PRIVS", _PR_SET_NO_NEW_PRIVS, 1)


def prctl(name: str, option: int, word: int, more: int = 0) -> None:
    """Change a property of this thread.

    Args:
        name: the option's name, for errors.
        option: the option.
        word: its argument.
        more: its second argument.

    Raises:
        SyscallError: the kernel refuses.
    """
    words = (ctypes.c_ulong(number) for number in (word, more, 0, 0))
    _checked(int(_libc.prctl(option, *words)), f"prctl({name})")


def mount_privately(fstype: str) -> FD:
    """Mount a file system where no path leads to, and return its root folder.

    The mount is gone when the descriptor is closed, and when the process ends.

    Raises:
        SyscallError: EPERM without CAP_SYS_ADMIN, ENODEV if the kernel has no such file system,
            ENOSYS before Linux 5.2.
    """
    fsopen, fsconfig, fsmount = MOUNT_SYSCALLS
    with FD(_call("fsopen", fsopen, fstype.encode(), _FSOPEN_CLOEXEC)) as context:
        number = context.fileno()
        _call("fsconfig", fsconfig, number, _FSCONFIG_CMD_CREATE, None, None, 0)
        return FD(_call("fsmount", fsmount, number, _FSMOUNT_CLOEXEC, 0))


def uprobe_syscall() -> None:
    """Call uprobe(2) of x86-64, which the trampoline of optimized uprobes calls.

    Raises:
        SyscallError: always: the kernel refuses all other callers.
    """
    _call("uprobe", _UPROBE)


class ExecutableFile(Closeable):
    """Machine code of this CPU in a file of its own, mapped into this process; a context manager.

    Raises:
        OSError: the file cannot be made, or not be mapped so that it is executable.
    """

    def __init__(self, code: bytes) -> None:
        self._size = len(code)
        self.file = FD(os.memfd_create("usdt-code", os.MFD_CLOEXEC))
        with contextlib.ExitStack() as stack:
            stack.callback(self.file.close)
            os.write(self.file.fileno(), code)
            words = mmap.PROT_READ | mmap.PROT_EXEC, mmap.MAP_PRIVATE, self.file.fileno(), 0
            address = _libc.mmap(None, self._size, *words)
            if address == _MAP_FAILED:
                _checked(-1, "mmap")
            stack.pop_all()
        self._address = int(address)

    def call(self, offset: int) -> int:
        """Call a function without arguments; return its result, 64 bits and unsigned."""
        return int(ctypes.CFUNCTYPE(ctypes.c_uint64)(self._address + offset)())

    def read(self, offset: int, size: int) -> bytes:
        """Return the code as it is now in memory."""
        return ctypes.string_at(self._address + offset, size)

    def close(self) -> None:
        """Unmap the code and close the file; idempotent."""
        if not self.file.closed:
            self.file.close()
            _libc.munmap(ctypes.c_void_p(self._address), ctypes.c_size_t(self._size))


def _call(name: str, number: int, *words: int | bytes | None) -> int:
    result = _libc.syscall(ctypes.c_long(number), *words)
    return _checked(int(result), name)


def write(descriptor: int, data: bytes) -> int:
    """Write to a file; return the number of bytes.

    os.write() repeats a call that fails with EINTR for ever. The kernel's event tracer may answer
    EINTR each time, so this gives up after a few attempts.

    Raises:
        SyscallError: with the errno of write(2).
    """
    for _ in range(_ATTEMPTS):
        size = int(_libc.write(descriptor, data, len(data)))
        if size >= 0 or ctypes.get_errno() != errno.EINTR:
            break
    return _checked(size, "write")


def prlimit_memlock(size: int) -> None:
    """Raise the soft and hard RLIMIT_MEMLOCK to ``size`` bytes.

    Raises:
        SyscallError: EPERM without CAP_SYS_RESOURCE.
    """
    import resource  # noqa: PLC0415 - only kernels before 5.11 need it

    try:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (size, size))
    except (OSError, ValueError) as err:
        number = err.errno if isinstance(err, OSError) and err.errno else errno.EPERM
        raise SyscallError(number, "setrlimit(RLIMIT_MEMLOCK)") from err


def _checked(result: int, call: str) -> int:
    if result == -1:
        raise SyscallError(ctypes.get_errno(), call)
    return result


def _pack(layout: str, fields: Sequence[Field]) -> tuple[bytes, list[object]]:
    keep: list[object] = []
    values: list[int | bytes] = []
    for kind, field in zip(_kinds(layout), fields, strict=True):
        if kind != "P":
            values.append(field if isinstance(field, (int, bytes)) else bytes(field or b""))
            continue
        address, owner = _address(field)
        keep.append(owner)
        values.append(address)
    return struct.pack("=" + layout.replace("P", "Q"), *values), keep


def _kinds(layout: str) -> str:
    # One letter for each value: the counts of "16s" and "4x" are not repetitions.
    kinds = []
    count = ""
    for letter in layout:
        if letter.isdigit():
            count += letter
        else:
            times = 1 if letter == "s" or not count else int(count)
            kinds.append("" if letter == "x" else letter * times)
            count = ""
    return "".join(kinds)


def _address(field: Field) -> tuple[int, object]:
    if field is None or isinstance(field, int):
        return field or 0, None
    if isinstance(field, bytearray):
        owner: object = (ctypes.c_char * len(field)).from_buffer(field)
    else:
        owner = ctypes.create_string_buffer(field, len(field))
    return ctypes.addressof(owner), owner  # type: ignore[arg-type]
