"""The context that a record begins with: when, which thread, where, which variant."""

from __future__ import annotations

import struct

import bpfmachine
import pytest
from bpfmachine import Machine
from planning import plan

from usdt.bpf._uapi import Helper
from usdt.engine.compiler.codegen import current_task
from usdt.engine.compiler.codegen.current_task import TaskOffsets
from usdt.engine.compiler.codegen.model import ProgramVariant, TaskFilter
from usdt.engine.compiler.codegen.program import generate
from usdt.engine.compiler.record.layout import HEADER_SIZE
from usdt.engine.output.decode import CONTEXT

OFFSETS = TaskOffsets(1752, 1264, 1268)


@pytest.mark.parametrize("offsets", [None, OFFSETS], ids=["by helpers", "loaded"])
@pytest.mark.parametrize(
    ("tasks", "ids"),
    [
        pytest.param(TaskFilter(), None, id="all"),
        pytest.param(TaskFilter((0x7FFFFFFF,)), Helper.GET_CURRENT_PID_TGID, id="one"),
        pytest.param(
            TaskFilter(namespace=(4, 0xF0000001)), Helper.GET_NS_CURRENT_PID_TGID, id="a namespace"
        ),
    ],
)
def test_the_context_of_a_record(
    offsets: TaskOffsets | None,
    tasks: TaskFilter,
    ids: Helper | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (bpfmachine, current_task):
        monkeypatch.setattr(module, "task_offsets", lambda: offsets)
    machine = Machine(
        process=0x7FFFFFFF, thread=5, comm=b"fifteen-bytes-x", namespace=(4, 0xF0000001)
    )
    machine.run(generate([ProgramVariant(9, 0, plan("", ()))], tasks, sleepable=False))
    if ids is None and offsets is None:
        ids = Helper.GET_CURRENT_PID_TGID
    assert [one for one in machine.calls if one.name.endswith("PID_TGID")] == [ids] * bool(ids)
    (record,) = machine.records
    assert len(record) == HEADER_SIZE
    assert struct.unpack_from("=Q", record) == (123456789,)
    assert CONTEXT.unpack(record[8:]) == (5, 0x7FFFFFFF, 3, 9, b"fifteen-bytes-x\0")
