"""One program at both ends of functions: which case runs, and what is kept from entry to return."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from bpfmachine import Machine
from planning import plan

from usdt.arch.locations import Register
from usdt.bpf import features
from usdt.engine.compiler.codegen.model import ProgramVariant, TaskFilter
from usdt.engine.compiler.codegen.program import generate
from usdt.engine.compiler.codegen.stack_slots import ENTRY_POINTER_SLOT
from usdt.engine.compiler.entry_return import EntryReturnMatch, EntryReturnRole
from usdt.engine.runtime.attach.attach_points import AttachPoint
from usdt.engine.runtime.attach.kprobe_session import EntryReturnPair, SessionDispatch, pair_returns
from usdt.engine.runtime.attach.requests import AttachRequest

_IS_RETURN, _COOKIE = 1001, 1002
_STACK, _CONTEXT, _KEPT = (n << 56 for n in (1, 2, 9))
_POINTER = Register(152, 8)
_WHERE = 0xFFFF888100001234
_CALL = EntryReturnMatch(_POINTER, kernel_keeps_sp=True)


class _Kernel(Machine):
    # With two functions of the kernel that know which end this is, and what was kept.
    at_return = False
    kept = 0
    result = -1

    def _step(self, insn: Any) -> int:
        if insn.opcode != 0x85 or insn.src != 2:
            return super()._step(insn)
        assert self._read(1) == _CONTEXT
        self._areas.setdefault(_KEPT, bytearray(struct.pack("=Q", self.kept)))
        # Of a bool the upper bits mean nothing.
        found = {_COOKIE: _KEPT, _IS_RETURN: 0xAB00 | self.at_return}[insn.immediate]
        self._registers[:6] = [found, None, None, None, None, None]
        return 1

    def _exit(self) -> None:
        self.result = self._read(0)

    def word(self, address: int) -> int:
        """Eight bytes that the program left."""
        return int.from_bytes(self._get(address, 8), "little")


@pytest.fixture
def selector(monkeypatch: pytest.MonkeyPatch) -> SessionDispatch:
    monkeypatch.setattr(features, "kprobe_session", lambda: (_IS_RETURN, _COOKIE))
    return SessionDispatch(
        (EntryReturnPair(_placed(7), _placed(8)), EntryReturnPair(_placed(9), None)), _POINTER
    )


def _placed(number: int, **more: Any) -> AttachRequest:
    return AttachRequest(_point(), ProgramVariant(number, 0, plan("", ()), **more))


def _point() -> AttachPoint:
    return AttachPoint("kprobe:f", "", "", 0, 0, (), call=_CALL)


def _run(selector: SessionDispatch, accept: TaskFilter | None = None, **state: Any) -> _Kernel:
    cases = [item.variant for one in selector.pairs for item in (one.returned, one.entry) if item]
    machine = _Kernel(context=struct.pack("=Q", _WHERE).rjust(160, b"\0").ljust(168, b"\0"))
    for name, value in state.items():
        setattr(machine, name, value)
    machine.run(
        generate(
            cases, accept or TaskFilter(), sleepable=False, dispatch=selector, reject_result=1
        ),
    )
    return machine


def _shown(machine: _Kernel) -> list[int]:
    return [struct.unpack_from("=I", record, 20)[0] for record in machine.records]


def test_an_entry_keeps_where_the_stack_is(selector: SessionDispatch) -> None:
    machine = _run(selector, cookie=7)
    assert (_shown(machine), machine.result) == ([8], 0)
    assert machine.word(_KEPT) == _WHERE


def test_an_entry_of_which_nothing_is_asked_keeps_it_all_the_same(
    selector: SessionDispatch,
) -> None:
    machine = _run(selector, cookie=9)
    assert (_shown(machine), machine.result) == ([], 0)
    assert machine.word(_KEPT) == _WHERE


@pytest.mark.parametrize("number", [7, 9])
def test_a_return_has_what_was_kept(selector: SessionDispatch, number: int) -> None:
    machine = _run(selector, cookie=number, at_return=True, kept=4711)
    assert (_shown(machine), machine.result) == ([number], 0)
    assert machine.word(_KEPT) == 4711
    assert machine.word(_STACK + ENTRY_POINTER_SLOT) == 4711


def test_returns_of_others_are_left_out(selector: SessionDispatch) -> None:
    machine = _run(selector, TaskFilter(pids=(99,)), cookie=7)
    assert (_shown(machine), machine.result) == ([], 1)


def test_ends_of_a_call_are_found_by_their_number() -> None:
    point, other = _point(), _point()
    made = plan("", ())
    pairs = [
        AttachRequest(
            where,
            ProgramVariant(
                number, 0, made, EntryReturnRole(entry=entry, pair=pair, size=64, stack=_CALL)
            ),
            on_return=not entry,
        )
        for where, number, entry, pair in (
            (point, 1, False, 1), (point, 2, True, 1), (other, 3, False, 1), (point, 4, False, 2)
        )
    ]  # fmt: skip
    plain = AttachRequest(point, ProgramVariant(5, 0, made), on_return=True)
    ends = pair_returns([*pairs, plain])
    variants = [(one.returned.variant, one.entry and one.entry.variant) for one in ends]
    numbers = [(returned.number, entry and entry.number) for returned, entry in variants]
    assert numbers == [(1, 2), (3, None), (4, None)]
    assert {one.size for one in ends} == {64}
