"""Kprobe sessions (kprobe_multi): one program at a function's entry and return.

The kernel tells the program which of the two was hit, and keeps eight bytes for each call, for any
number of calls. The program stores the stack pointer at the entry there; it is the key of the entry
state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.bpf import features
from usdt.bpf._uapi import Helper
from usdt.bpf.asm.insn import R0, R1, R6, R7, R10, Alu, Jump
from usdt.engine.compiler.codegen.stack_slots import ENTRY_POINTER_SLOT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.arch.locations import Register
    from usdt.bpf.asm.assembler import Assembler
    from usdt.engine.runtime.attach.requests import AttachRequest

__all__ = ("EntryReturnPair", "SessionDispatch", "pair_returns")


@frozen
class EntryReturnPair:
    """The request at a function's return and, if it needs entry state, the one at its entry.

    Attributes:
        returned: the request at the return.
        entry: the request at the entry, which captures values for the return.
    """

    returned: AttachRequest
    entry: AttachRequest | None

    @property
    def size(self) -> int:
        """The size of the entry state, in bytes."""
        call = self.returned.variant.call
        return 0 if call is None else call.size


def pair_returns(requests: Sequence[AttachRequest]) -> list[EntryReturnPair]:
    """Return the returns that depend on their entries, each with the request at its entry."""
    entries = {
        (id(request.point), request.variant.call.pair): request
        for request in requests
        if request.variant.call is not None and request.variant.call.entry
    }
    pairs = []
    for request in requests:
        call = request.variant.call
        if request.on_return and (call is not None or request.variant.condition is not None):
            entry = None if call is None else entries.get((id(request.point), call.pair))
            pairs.append(EntryReturnPair(request, entry))
    return pairs


@frozen
class SessionDispatch:
    """A ``VariantDispatch`` by function and by entry or return.

    The attach cookie is the number of the return's variant.

    Attributes:
        pairs: the requests that the program serves.
        pointer: location of the stack pointer at an entry.
    """

    pairs: tuple[EntryReturnPair, ...]
    pointer: Register

    @property
    def keys(self) -> list[tuple[int, int]]:
        """The dispatch keys: twice the cookie, plus one at a return."""
        found = []
        for one in self.pairs:
            number = one.returned.variant.number
            found.append((2 * number + 1, number))
            if one.entry is not None:
                found.append((2 * number, one.entry.variant.number))
        return list(dict.fromkeys(found))  # functions may share a variant

    def emit(self, asm: Assembler) -> None:
        """Emit code that stores or loads the entry's stack pointer, and leaves the key in r0."""
        is_return, cookie = features.kprobe_session()
        asm.mov(R1, R6)
        asm.call_kernel(is_return)
        asm.mov(R7, R0)
        asm.alu(Alu.AND, R7, 1)  # a bool: the other bits are undefined
        asm.mov(R1, R6)
        asm.call_kernel(cookie)
        asm.jump(Jump.NE, R7, 0, "returned")
        asm.load(R1, R6, self.pointer.offset, self.pointer.size)
        asm.store(R0, 0, R1)
        asm.goto("kept")
        asm.label("returned")
        asm.load(R1, R0, 0)
        asm.store(R10, ENTRY_POINTER_SLOT, R1)
        asm.label("kept")
        asm.mov(R1, R6)
        asm.call(Helper.GET_ATTACH_COOKIE)
        asm.alu(Alu.LSH, R0, 1)
        asm.alu(Alu.OR, R0, R7)
