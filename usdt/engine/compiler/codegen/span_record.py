"""The action that writes the record of a span: the start's image, and the values of the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.bpf._uapi import Helper
from usdt.bpf.asm.insn import R1, R2, R3, R7, R10, Alu
from usdt.bpf.rings.groups import ONE_RING
from usdt.engine.compiler.codegen.current_task import emit_comm
from usdt.engine.compiler.codegen.model import ActionEmitter
from usdt.engine.compiler.codegen.record import RecordEmitter
from usdt.engine.compiler.codegen.stack_slots import ENTRY_STATE_SLOT
from usdt.engine.compiler.entry_return import TIME_OFFSET
from usdt.engine.compiler.record.layout import END_BIT

if TYPE_CHECKING:
    from usdt.bpf.asm.assembler import Assembler
    from usdt.bpf.rings.groups import RingGroups
    from usdt.engine.compiler.codegen.model import Labels, ProgramVariant

__all__ = ("SPAN_ACTION", "SpanAction")

_NUMBER = 20  # offset of the number of the variant in a record
_COMM = 24  # of the name of the thread


class SpanAction(ActionEmitter):
    """The action of the end of a span."""

    writes_to_arrays = True

    def __init__(self, groups: RingGroups = ONE_RING) -> None:
        self._groups = groups

    def emit(
        self, asm: Assembler, variant: ProgramVariant, labels: Labels, *, sleepable: bool
    ) -> None:
        """Emit the code that writes the record."""
        _SpanEmitter(asm, variant, labels, sleepable=sleepable, groups=self._groups).emit()

    def into(self, groups: RingGroups) -> SpanAction:
        """Return the action that writes to this ring buffer."""
        return SpanAction(groups)


SPAN_ACTION = SpanAction()


class _SpanEmitter(RecordEmitter):
    def _fill(self) -> None:
        asm = self.asm
        asm.mov(R1, R7)
        asm.mov(R2, self.plan.image)
        asm.load(R3, R10, ENTRY_STATE_SLOT)
        asm.add(R3, TIME_OFFSET)
        asm.call(Helper.PROBE_READ_KERNEL)
        asm.load(R1, R7, _NUMBER, 4)
        asm.alu(Alu.LSH, R1, 16)
        asm.mov(R2, self.variant.number)
        asm.alu(Alu.OR, R1, R2)
        asm.store(R7, _NUMBER, R1, 4)
        if self.variant.same_thread:
            emit_comm(asm, R7, _COMM)
        for index, output in enumerate(self.plan.outputs):
            self._output(END_BIT - index, output)
