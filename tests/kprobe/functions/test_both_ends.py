"""Functions without items: one plan for the entry, one for the return; no kprobes are needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kprobe.functions.arguments import CallContextAbi, arguments_of
from kprobe.functions.kernel_types import KernelTypes
from kprobe.functions.lookup import find_functions, is_pattern
from kprobe.functions.prototypes import current_functions
from usdt.base.errors import NotSupported
from usdt.bpf.kprobes import KprobeMethod
from usdt.engine.compiler.record.columns import IntColumn, StructColumn, StructForm
from usdt.engine.language import parse_probe
from usdt.engine.runtime.attach.attach_points import AttachPoint, FunctionTarget
from usdt.engine.runtime.planner import AttachPlanner

if TYPE_CHECKING:
    from usdt.btf.reader import Btf
    from usdt.engine.runtime.attach.requests import AttachRequest

pytestmark = [pytest.mark.root]  # addresses of functions are for root only


def _planned(name: str, *, traced: bool, both_ends: bool = True) -> list[AttachRequest]:
    request = parse_probe(name, default="kprobe")
    (function,) = find_functions(request, current_functions(), typed=True, notices=[])
    context = CallContextAbi(traced=traced)

    def types() -> Btf:
        if function.btf is None:
            raise NotSupported("BTF of the kernel", (5, 2))
        return function.btf

    point = AttachPoint(
        f"kprobe:{name}",
        "",
        "",
        0,
        0,
        arguments_of(function.btf, function.prototype, context),
        call=context.stack,
        kernel_target=FunctionTarget(name, name, 0, 0, KprobeMethod.FENTRY),
        types=KernelTypes(types),
        both_ends=both_ends,
    )
    planner = AttachPlanner(lambda *_: None, max_string=128, max_struct=4096)
    return planner.plan(request, [point], 0)


@pytest.mark.parametrize("traced", [False, True])
def test_entry_and_return_are_two_events(traced: bool) -> None:
    entry, returned = _planned("ip_send_skb", traced=traced)
    assert (entry.on_return, returned.on_return) == (False, True)
    assert returned.variant.plan.returns
    net, skb = entry.variant.plan.outputs
    assert (net.key, skb.key) == ("net", "skb")
    for column in (net.column, skb.column):
        assert isinstance(column, StructColumn)
        assert column.by_pointer
        assert column.form is StructForm.SHORT
    (result,) = returned.variant.plan.outputs
    assert result.key == "return"
    assert isinstance(result.column, IntColumn)


def test_a_function_that_returns_nothing_has_a_return() -> None:
    entry, returned = _planned("wake_up_new_task", traced=False)
    assert [output.key for output in entry.variant.plan.outputs] == ["p"]
    assert returned.on_return
    assert returned.variant.plan.returns
    assert returned.variant.plan.outputs == ()


def test_a_structure_that_is_returned_is_in_short_too() -> None:
    _, returned = _planned("fget", traced=False)
    (result,) = returned.variant.plan.outputs
    assert isinstance(result.column, StructColumn)
    assert result.column.form is not StructForm.WHOLE


def test_other_commands_have_one_event_with_addresses() -> None:
    (entry,) = _planned("ip_send_skb", traced=False, both_ends=False)
    assert not entry.on_return
    assert all(isinstance(one.column, IntColumn) for one in entry.variant.plan.outputs)


@pytest.mark.parametrize(
    ("text", "pattern"),
    [("ip_send_skb", False), ("tcp_*", True), ("nf_*:nf_hook", True), ("ext4:ext4_sync", False)],
)
def test_patterns_are_told_from_names(text: str, pattern: bool) -> None:
    assert is_pattern(parse_probe(text, default="kprobe")) is pattern
