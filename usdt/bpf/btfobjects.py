"""BTF as the kernel holds it: a descriptor of a module's, which programs on its functions name."""

from __future__ import annotations

import errno
import struct

from usdt.base.closeable import FD
from usdt.base.errors import NotSupported, SyscallError
from usdt.bpf._syscall import address_of, bpf, bpf_attribute
from usdt.bpf._uapi import Command

__all__ = ("open_module_btf",)

_INFO = struct.Struct("=QIIQII")  # struct bpf_btf_info
_NAME = 64  # bytes: a module's name is shorter
_MOST = 1 << 16  # BTF objects looked at


def open_module_btf(module: str) -> FD:
    """A descriptor of a loaded module's BTF.

    Raises:
        NotSupported: the kernel has none of it. Modules' BTF: Linux 5.11, commit 36e68442d1af.
        SyscallError: EPERM without CAP_SYS_ADMIN.
    """
    number = 0
    for _ in range(_MOST):
        result, error, answer = bpf_attribute(Command.BTF_GET_NEXT_ID, "III", number, 0, 0)
        if result == -1:
            if error == errno.ENOENT:
                break
            raise SyscallError(error, "bpf(BPF_BTF_GET_NEXT_ID)")
        (number,) = struct.unpack_from("=I", answer, 4)
        try:
            fd = FD(bpf(Command.BTF_GET_FD_BY_ID, "III", number, 0, 0))
        except SyscallError as err:
            if err.errno == errno.ENOENT:  # it has gone meanwhile
                continue
            raise
        if _name(fd) == module:
            return fd
        fd.close()
    raise NotSupported(f"BTF of the module {module}", (5, 11))


def _name(fd: FD) -> str:
    # Of a kernel's BTF; "" of a program's.
    room = bytearray(_NAME)
    address, keep = address_of(room)
    info = bytearray(_INFO.pack(0, 0, 0, address, _NAME, 0))
    bpf(Command.OBJ_GET_INFO_BY_FD, "IIP", fd.fileno(), len(info), info)
    del keep
    return bytes(room).split(b"\0", 1)[0].decode("utf-8", "replace")
