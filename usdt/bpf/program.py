"""Programs: a spec of assembled code, loaded into an object; the verifier's log on failure."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Self

from usdt.base.closeable import FD, Closeable
from usdt.base.errors import SyscallError, VerifierError
from usdt.base.frozen import frozen
from usdt.bpf._syscall import bpf
from usdt.bpf._uapi import AttachType, Command, ProgType
from usdt.bpf.maps import Map, raise_memlock
from usdt.bpf.objects import dup_fd, open_pin

if TYPE_CHECKING:
    import os

    from usdt.bpf.asm.assembler import Code

__all__ = ("Program", "ProgramSpec")

_LOG_SIZE = 1 << 20
_ENOTSUPP = 524  # the kernel's own word, which has no name outside of it
_NO_JIT = (
    "this kernel's JIT compiler lacks an instruction that its interpreter has; let it interpret:"
    " sysctl -w net.core.bpf_jit_enable=0"
)
_LAYOUT = "IIPPIIPII16sII"
_TRACED = "IIQIIQIII4x"  # prog_btf_fd … line_info_cnt, attach_btf_id, attach_btf_obj_fd


@frozen
class ProgramSpec:
    """What a program is: a value that can be made and tested anywhere.

    Attributes:
        code: assembled instructions, maps by name.
        type: the kind of program; KPROBE serves uprobes as well.
        attach_type: how it will be attached, where the kernel asks for it at load time.
        flags: BPF_F_SLEEPABLE and the like.
        name: up to 15 letters, digits, ``_`` and ``.``, shown by bpftool.
        license: decides which helpers may be called.
        function: of ``ProgType.TRACING``: the ID of its function in BTF.
        module: a descriptor of the module's BTF that has it; 0: the kernel's own.
    """

    code: Code
    type: ProgType = ProgType.KPROBE
    attach_type: AttachType = AttachType.NONE
    flags: int = 0
    name: str = ""
    license: str = "GPL"
    function: int = 0
    module: int = 0

    def load(self, maps: dict[str, Map]) -> Program:
        """Load the program with its maps.

        Raises:
            VerifierError: the verifier refused it; ``log`` says why.
            SyscallError: anything else the kernel says.
        """
        insns = self.code.link({name: item.fd.fileno() for name, item in maps.items()})
        try:
            return Program(FD(self._load(insns, None)))
        except SyscallError as err:
            # Kernels before 5.11 charge programs to RLIMIT_MEMLOCK; see maps.py.
            if err.errno == errno.EPERM and raise_memlock():
                return Program(FD(self._load(insns, None)))
            if err.errno in (errno.EACCES, errno.EINVAL, errno.E2BIG, errno.ENOSPC):
                # Raises with the log; it was not worth asking for before.
                self._explain(insns, err.errno)
            if err.errno == _ENOTSUPP:
                raise SyscallError(err.errno, err.call, _NO_JIT) from err
            raise

    def _explain(self, insns: bytes, number: int) -> None:
        log = bytearray(_LOG_SIZE)
        try:
            FD(self._load(insns, log)).close()
        except SyscallError as err:
            text = bytes(log).split(b"\0", 1)[0].decode("utf-8", "replace")
            # The first errno is the reason; this one may be ENOSPC, the log being too long.
            raise VerifierError(number, text) from err

    def _load(self, insns: bytes, log: bytearray | None) -> int:
        name = "".join(c if c.isascii() and (c.isalnum() or c in "_.") else "_" for c in self.name)
        traced = (0, 0, 0, 0, 0, 0, 0, self.function, self.module) if self.function else ()
        return bpf(
            Command.PROG_LOAD,
            _LAYOUT + (_TRACED if traced else ""),
            *(self.type, len(insns) // 8, insns, self.license.encode() + b"\0"),
            *(1 if log else 0, len(log or b""), log, 0, self.flags),
            *(name.encode()[:15], 0, self.attach_type),
            *traced,
        )


class Program(Closeable):
    """A loaded program; a context manager. Links keep it alive after close().

    Raises:
        TargetError: from_fd() and from_pin(): no program is there.
        VerifierError: :meth:`ProgramSpec.load`: the kernel refused it; ``log`` says why.

    Example:
        >>> asm = usdt.bpf.Assembler()
        >>> asm.mov(Reg.R0, 0)  # from usdt.bpf.asm.insn import Reg
        >>> asm.exit()
        >>> with usdt.bpf.ProgramSpec(asm.assemble(), name="nothing").load({}) as program:
        ...     program.fd.fileno()
        5
    """

    def __init__(self, fd: FD) -> None:
        self.fd = fd

    @classmethod
    def from_fd(cls, number: int) -> Self:
        """A program that a descriptor of somebody else's refers to; theirs stays theirs to close.

        Raises:
            TargetError: it is no descriptor of a program.
        """
        return cls(dup_fd(number, "program"))

    @classmethod
    def from_pin(cls, path: str | os.PathLike[str]) -> Self:
        """A program pinned in bpffs.

        Raises:
            TargetError: nothing is pinned there, or no program.
        """
        return cls(open_pin(path, "program"))

    def close(self) -> None:
        """Close the descriptor."""
        self.fd.close()
