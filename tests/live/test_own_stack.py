"""Programs of uprobes keep to the task's stack.

x86-64: Linux 6.13 and 6.12.y give a program of type kprobe with 64 bytes of stack or more one stack
a CPU, which a jited program finds by ``movabs $stack, %r9; add %gs:…, %r9``.
"""

from __future__ import annotations

import contextlib
import platform
import re
import struct
from array import array
from pathlib import Path

import pytest
from house import ROOT

import usdt
from usdt.bpf._syscall import bpf
from usdt.bpf._uapi import Command
from usdt.bpf.asm.assembler import Assembler
from usdt.bpf.asm.insn import R0, R10
from usdt.bpf.program import ProgramSpec

_SHARED = re.compile(rb"\x49\xb9.{8}\x65\x4c\x03\x0c\x25", re.DOTALL)
_PROGRAM = ROOT / "testbins" / "out" / "default" / "strings"
_CODE_SIZE = 1 << 16
_INFO_SIZE = 128


def _jited(descriptor: int) -> bytes:
    # struct bpf_prog_info: the length of the jited code at 16, where it goes at 24.
    code = array("B", bytes(_CODE_SIZE))
    info = bytearray(_INFO_SIZE)
    struct.pack_into("=I4xQ", info, 16, _CODE_SIZE, code.buffer_info()[0])
    bpf(Command.OBJ_GET_INFO_BY_FD, "IIP", descriptor, len(info), info)
    (length,) = struct.unpack_from("=I", info, 16)
    return code.tobytes()[:length]


def _programs() -> list[int]:
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if descriptor.readlink() == Path("anon_inode:bpf-prog"):
                found.append(int(descriptor.name))
    return found


def _kernel_shares() -> bool:
    asm = Assembler()
    asm.store(R10, -512, 0)
    asm.mov(R0, 0)
    asm.exit()
    with ProgramSpec(asm.assemble(), name="control").load({}) as program:
        return bool(_SHARED.search(_jited(program.fd.fileno())))


@pytest.mark.parametrize("items", ["(arg0, str(arg0))", '(str(arg0) == "a*", comm, arg0)'])
def test_no_program_has_a_stack_of_its_cpu(items: str) -> None:
    if platform.machine() != "x86_64" or not _kernel_shares():
        pytest.skip("programs have no stack a CPU in this kernel")
    before = set(_programs())
    with usdt.attach(f"{_PROGRAM}:*:*{items}"):
        mine = set(_programs()) - before
        assert mine
        assert not [number for number in mine if _SHARED.search(_jited(number))]
