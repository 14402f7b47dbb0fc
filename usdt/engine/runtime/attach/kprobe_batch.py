"""Attaching to thousands of kernel functions without kprobe_multi, by multi-probe trace events.

All probes are defined before any is armed: defining further probes is slow in a kernel in which
every function has one.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

from usdt.arch.pt_regs import PT_REGS
from usdt.base.errors import NotSupported, TracingError
from usdt.base.frozen import frozen
from usdt.base.machine import KERNEL_MACHINE
from usdt.base.text import plural
from usdt.bpf._uapi import Helper, MapType, ProgType
from usdt.bpf.asm.insn import R0, R6, R10, Jump
from usdt.bpf.maps import MapSpec
from usdt.engine.compiler.codegen.map_calls import emit_map_call
from usdt.engine.compiler.codegen.model import EXIT
from usdt.engine.compiler.codegen.stack_slots import STRING_SLOT
from usdt.engine.runtime.attach.attach_points import FunctionTarget
from usdt.engine.runtime.attach.requests import bisect_load, variants_of
from usdt.tracefs.multi_probe_events import MultiProbeEvents, multi_probe_supported

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from usdt.bpf.asm.assembler import Assembler
    from usdt.bpf.program import Program
    from usdt.engine.runtime.attach.loader import ProgramLoader
    from usdt.engine.runtime.attach.requests import AttachRequest
    from usdt.tracefs.multi_probe_events import MultiProbeEvent

__all__ = ("MAX_DEFINITIONS", "DispatchByIp", "KprobeBatch", "emit_find_variant")

POINTERS = "pointers"  # hash: instruction pointer → u32 number of the variant
_POINTER, _NUMBER = struct.Struct("=Q"), struct.Struct("=I")

#: Maximum definitions in tracefs with an event each; every event is a directory of files.
MAX_DEFINITIONS = 64


@frozen
class DispatchByIp:
    """A dispatch that compares the instruction pointer in pt_regs to select the variant.

    Attributes:
        keys: (pointer, variant number); pointers are negative, because comparisons sign-extend 32
            bits.
    """

    keys: tuple[tuple[int, int], ...]

    def emit(self, asm: Assembler) -> None:
        """Emit a load of the instruction pointer into r0."""
        asm.load(R0, R6, PT_REGS[KERNEL_MACHINE]["rip"])


def emit_find_variant(asm: Assembler) -> None:
    """Emit a lookup of the variant number in ``POINTERS``: leave it in r0, or jump to ``EXIT``."""
    asm.load(R0, R6, PT_REGS[KERNEL_MACHINE]["rip"])
    asm.store(R10, STRING_SLOT, R0)
    emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, POINTERS, STRING_SLOT)
    asm.jump(Jump.EQ, R0, 0, EXIT)
    asm.load(R0, R0, 0, 4)


class KprobeBatch:
    """An attacher of function entries, hundreds per trace event.

    Args:
        loader: owns the programs and links.
        tell: called with the number of further requests that are done.
        fail: called with a request that cannot be attached, and the error.
    """

    def __init__(
        self,
        loader: ProgramLoader,
        tell: Callable[[int], object],
        fail: Callable[[AttachRequest, TracingError], object],
    ) -> None:
        self._loader = loader
        self._tell = tell
        self._fail = fail
        self._made: MultiProbeEvents | None = None
        self._groups: list[dict[int, AttachRequest]] = []
        self._waiting: list[tuple[MultiProbeEvent, Program, Sequence[AttachRequest]]] = []
        self._indexed: list[tuple[MultiProbeEvent, dict[int, AttachRequest]]] = []

    def add(self, requests: Sequence[AttachRequest]) -> None:
        """Add requests as the probes of one trace event."""
        first: dict[int, AttachRequest] = {}
        again: list[AttachRequest] = []
        for request in requests:
            why = _unfit(request)
            if why:
                self._fail(request, NotSupported(why, None))
                self._tell(1)
            elif first.setdefault(_address(request), request) is not request:
                again.append(request)  # an alias: another symbol of the same address
        if first:
            self._groups.append(first)
        if again:
            self.add(again)

    @property
    def _set(self) -> MultiProbeEvents:
        if self._made is None:
            self._made = MultiProbeEvents()
            self._loader.add_link(self._made)
        return self._made

    def _define(self) -> None:
        groups, self._groups = self._groups, []
        if not groups:
            return
        for group in groups:
            self._set.names.update((at, request.point.function) for at, request in group.items())
        try:
            events = self._set.define([list(group) for group in groups], self._tell)
        except NotSupported as err:
            for request in (request for group in groups for request in group.values()):
                self._fail(request, err)
            return
        for event, group in zip(events, groups, strict=True):
            for address, error in event.refused.items():
                self._fail(group[address], error)
            rest = {at: request for at, request in group.items() if at not in event.refused}
            if rest and self._loader.can_index([request.variant for request in rest.values()]):
                self._indexed.append((event, rest))
            elif rest:
                self._load_bisected(event, rest)

    def _load_bisected(self, event: MultiProbeEvent, requests: dict[int, AttachRequest]) -> None:
        # Attaches several programs to the event if one would be too large.
        bisect_load(
            list(requests.items()),
            lambda pairs: self._load(event, pairs),
            lambda pair: pair[1].point.probe,
        )

    def _load(self, event: MultiProbeEvent, pairs: Sequence[tuple[int, AttachRequest]]) -> None:
        requests = dict(pairs)
        keys = tuple(
            (pointer - (1 << 64), requests[address].variant.number)
            for pointer, address in event.pointers.items()
            if address in requests
        )
        variants = variants_of(list(requests.values()))
        program = self._loader.load(
            variants, ProgType.KPROBE, DispatchByIp(keys), excluded=os.getpid()
        )
        self._waiting.append((event, program, list(requests.values())))

    def _load_indexed(self) -> None:
        # Loads one program, which looks up the variant number by the instruction pointer.
        indexed, self._indexed = self._indexed, []
        if not indexed:
            return
        numbers = [
            (_POINTER.pack(pointer), _NUMBER.pack(items[address].variant.number))
            for event, items in indexed
            for pointer, address in event.pointers.items()
            if address in items
        ]
        table = MapSpec(MapType.HASH, 8, 4, len(numbers), POINTERS).create()
        self._loader.own_map(table)
        self._loader.add_maps({POINTERS: table})
        table.set_many(numbers)
        variants = [request.variant for _, items in indexed for request in items.values()]
        program = self._loader.load_indexed(variants, emit_find_variant, excluded=os.getpid())
        if program is None:
            raise TypeError("variants that differ in more than their number")
        self._waiting += [(event, program, list(items.values())) for event, items in indexed]

    def attach(self) -> None:
        """Define and attach all added requests.

        Raises:
            TracingError: the items of a probe make too large a program.
        """
        self._define()
        self._load_indexed()
        waiting, self._waiting = self._waiting, []
        number = 0
        for event, program, requests in waiting:
            try:
                self._set.arm(event, program)
            except TracingError as err:
                for request in requests:
                    self._fail(request, err)
            else:
                number += len(requests)
        if number:
            events = len({event.name for event, _, _ in waiting})
            self._loader.attach_log.append(
                f"{plural(number, 'kprobe')} in {plural(events, 'tracefs event')}"
            )


def _address(request: AttachRequest) -> int:
    target = request.point.kernel_target
    return target.address if isinstance(target, FunctionTarget) else 0


def _unfit(request: AttachRequest) -> str:
    target = request.point.kernel_target
    if not multi_probe_supported():
        return f"more than {MAX_DEFINITIONS} definitions in tracefs at a time, on this CPU"
    if request.on_return:
        return f"returns of more than {MAX_DEFINITIONS} functions, by tracefs"
    if not isinstance(target, FunctionTarget) or target.offset or not target.address:
        return "kprobe in a tracefs event, at an offset that is not known to be a function's entry"
    return ""
