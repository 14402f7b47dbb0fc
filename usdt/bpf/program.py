"""Programs: a spec of assembled code, and the program that it is loaded as."""

from __future__ import annotations

import contextlib
import errno
import functools
import struct
import sys
from typing import TYPE_CHECKING, Self

from usdt.base.closeable import FD, Closeable
from usdt.base.errors import SyscallError, VerifierError
from usdt.base.frozen import frozen
from usdt.bpf._syscall import bpf
from usdt.bpf._uapi import ENOTSUPP, AttachType, Command, ProgType
from usdt.bpf.maps import Map, raise_memlock

if TYPE_CHECKING:
    import os

    from usdt.bpf.asm.assembler import Code

__all__ = ("Program", "ProgramSpec", "measure_programs")

_LOG_SIZE = 1 << 20
# Of a program that is refused: EFAULT of one with too many branches (until 6.18).
_REFUSED = (errno.EACCES, errno.EINVAL, errno.E2BIG, errno.ENOSPC, errno.EFAULT)
_INFO = struct.Struct("=208xQ")  # struct bpf_prog_info: recursion_misses
_COST = struct.Struct("=192xQQ")  # run_time_ns, run_cnt
_MOST_INSTRUCTIONS = 4096  # BPF_MAXINSNS, which a kernel allows to everybody
_RUN_TIME = 0  # BPF_STATS_RUN_TIME
_NO_JIT = (
    "this kernel's JIT compiler lacks an instruction that its interpreter has; let it interpret:"
    " sysctl -w net.core.bpf_jit_enable=0"
)
_LAYOUT = "IIPPIIPII16sII"
_RUN = "IIIIPPIIIIPPIII4x"  # prog_fd, retval, data sizes … flags, cpu, batch_size
_TRACED = "IIPIIQIII4x"  # prog_btf_fd … line_info_cnt, attach_btf_id, attach_btf_obj_fd
_FUNCTION = struct.Struct("=II")  # struct bpf_func_info: insn_off, type_id


def measure_programs() -> FD:
    """Have the kernel measure all programs until the descriptor is closed (Linux 5.8).

    Each run of a program then takes some 20 ns more.

    Raises:
        SyscallError: the kernel cannot, or does not allow it.
    """
    return FD(bpf(Command.ENABLE_STATS, "I", _RUN_TIME))


@frozen
class ProgramSpec:
    """The specification of a program: a value, made and tested without a kernel.

    Attributes:
        code: assembled instructions, with maps by name.
        type: the program type; KPROBE is that of uprobes, too.
        attach_type: the attach type, if the kernel needs it at load time.
        flags: BPF_F_… of program loading, such as BPF_F_SLEEPABLE.
        name: up to 15 letters, digits, ``_`` and ``.``, shown by bpftool.
        license: decides which helpers the program may call.
        function: for ``ProgType.TRACING``, the BTF ID of the function to attach to.
        module: descriptor of the BTF of the function's module; 0: the kernel's own BTF.
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
            VerifierError: the verifier rejects it; ``log`` has the reason.
            SyscallError: any other error of the kernel.
        """
        insns = self.code.link({name: item.fd.fileno() for name, item in maps.items()})
        try:
            return Program(FD(self._load(insns, None)))
        except SyscallError as err:
            # Kernels before 5.11 charge programs to RLIMIT_MEMLOCK; see maps.py.
            if err.errno == errno.EPERM and raise_memlock():
                return Program(FD(self._load(insns, None)))
            if err.errno == errno.E2BIG and len(insns) // 8 > _MOST_INSTRUCTIONS:
                raise SyscallError(err.errno, err.call, _too_long(len(insns) // 8)) from err
            if err.errno in _REFUSED:
                # Load it once more to get the log, which costs time and memory.
                self._explain(insns, err.errno)
            if err.errno == ENOTSUPP:
                raise SyscallError(err.errno, err.call, _NO_JIT) from err
            raise

    def _explain(self, insns: bytes, number: int) -> None:
        log = bytearray(_LOG_SIZE)
        try:
            FD(self._load(insns, log)).close()
        except SyscallError as err:
            text = bytes(log).split(b"\0", 1)[0].decode("utf-8", "replace")
            # The first errno is the reason; this one may be ENOSPC: the log is too long.
            raise VerifierError(number, text) from err

    def _load(self, insns: bytes, log: bytearray | None) -> int:
        with contextlib.ExitStack() as stack:
            about = self._functions(stack) if self.code.functions else (0, 0, None, 0)
            return self._call(insns, log, about)

    def _functions(self, stack: contextlib.ExitStack) -> tuple[int, int, bytes, int]:
        # The types of the program and of the functions that helpers call: the kernel asks for them.
        types, number = _function_types()
        fd = FD(bpf(Command.BTF_LOAD, "PPIII", types, None, len(types), 0, 0))
        stack.callback(fd.close)
        starts = (0, *self.code.functions)
        rows = b"".join(_FUNCTION.pack(start, number) for start in starts)
        return fd.fileno(), _FUNCTION.size, rows, len(starts)

    def _call(
        self, insns: bytes, log: bytearray | None, about: tuple[int, int, bytes | None, int]
    ) -> int:
        name = "".join(c if c.isascii() and (c.isalnum() or c in "_.") else "_" for c in self.name)
        more = self.function or self.code.functions
        traced = (*about, 0, 0, 0, self.function, self.module) if more else ()
        return bpf(
            Command.PROG_LOAD,
            _LAYOUT + (_TRACED if traced else ""),
            *(self.type, len(insns) // 8, insns, self.license.encode() + b"\0"),
            *(1 if log else 0, len(log or b""), log, 0, self.flags),
            *(name.encode()[:15], 0, self.attach_type),
            *traced,
        )


def _too_long(count: int) -> str:
    return f"{count} instructions; the kernel takes at most 1000000, without CAP_BPF 4096"


@functools.cache
def _function_types() -> tuple[bytes, int]:
    # BTF with a static function of a number and a pointer that returns a number; and its ID.
    from usdt.btf.format import Encoding, Kind  # noqa: PLC0415 - rarely needed
    from usdt.btf.writer import BtfWriter  # noqa: PLC0415

    types = BtfWriter(sys.byteorder)
    number = types.integer("int", 4, Encoding.SIGNED)
    wide = types.integer("u64", 8)
    prototype = types.prototype(number, [("index", wide), ("context", types.pointer(0))])
    function = types.record(Kind.FUNC, "step", prototype)
    return types.data(), function


class Program(Closeable):
    """A loaded program; a context manager. Links keep it alive after close().

    Raises:
        TargetError: from_fd() and from_pin(): no program is there.
        VerifierError: :meth:`ProgramSpec.load`: the verifier rejects it; ``log`` has the reason.

    Examples:
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
        """Return the program that a descriptor refers to, by a duplicate of the descriptor.

        Raises:
            TargetError: it is not a descriptor of a program.
        """
        from usdt.bpf.objects import dup_fd  # noqa: PLC0415 - rarely needed

        return cls(dup_fd(number, "program"))

    @classmethod
    def from_pin(cls, path: str | os.PathLike[str]) -> Self:
        """Return a program pinned in bpffs.

        Raises:
            TargetError: nothing is pinned there, or not a program.
        """
        from usdt.bpf.objects import open_pin  # noqa: PLC0415 - rarely needed

        return cls(open_pin(path, "program"))

    def run(self) -> None:
        """Run a program of a raw tracepoint once, here and now (Linux 5.10, commit 1b4d60ec162f).

        Raises:
            SyscallError: the kernel cannot run it.
        """
        nothing = (0, 0, 0, None, None, 0, 0, 0, 0, None, None, 0, 0, 0)
        bpf(Command.PROG_TEST_RUN, _RUN, self.fd.fileno(), *nothing)

    def cost(self) -> tuple[int, int]:
        """Return the nanoseconds of all measured runs, and their number.

        Raises:
            SyscallError: the kernel does not tell.
        """
        from usdt.bpf.objects import object_info  # noqa: PLC0415 - rarely needed

        nanoseconds, count = _COST.unpack(object_info(self.fd, _COST.size))
        return int(nanoseconds), int(count)

    def missed(self) -> int:
        """Return how often the kernel did not run the program because it was running already.

        0 where the kernel does not count it: before Linux 5.12 (commit 9ed9e9ba2337), of kprobes
        before 6.7.
        """
        from usdt.bpf.objects import object_info  # noqa: PLC0415 - rarely needed

        try:
            (missed,) = _INFO.unpack(object_info(self.fd, _INFO.size))
        except SyscallError:
            return 0
        return int(missed)

    def close(self) -> None:
        """Close the descriptor."""
        self.fd.close()
