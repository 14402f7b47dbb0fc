"""Prototypes of the running kernel's BTF → arguments; no kprobes are needed for that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kprobe.functions.arguments import CallContextAbi, arguments_of
from kprobe.functions.kernel_types import KernelTypes
from kprobe.functions.lookup import KernelFunction, find_functions
from kprobe.functions.prototypes import Functions, current_functions
from usdt.arch.locations import (
    AtFunctionReturn,
    Memory,
    Register,
    TypedContextWord,
    Unreadable,
    ValueClass,
    ValueType,
)
from usdt.base.errors import LanguageError, NotSupported, ProbeNotFound
from usdt.base.machine import KERNEL_MACHINE
from usdt.btf.reader import Btf
from usdt.engine.compiler.ir import ArgumentValue, Node, children
from usdt.engine.compiler.plan import make_plan
from usdt.engine.compiler.record.columns import StructColumn
from usdt.engine.language import parse_probe

if TYPE_CHECKING:
    from usdt.engine.compiler.arguments import Argument

pytestmark = [pytest.mark.root]  # addresses of functions are for root only
_on_x86 = pytest.mark.skipif(KERNEL_MACHINE != "x86_64", reason="registers of x86-64")
_REGISTERS, _TRACED = CallContextAbi(traced=False), CallContextAbi(traced=True)
_INT, _LONG = ValueType(ValueClass.SIGNED, 4), ValueType(ValueClass.SIGNED, 8)


def _places(text: str, *, typed: bool = True) -> list[KernelFunction]:
    notices: list[str] = []
    request = parse_probe(text, default="kprobe")
    return find_functions(request, current_functions(), typed=typed, notices=notices)


def _arguments(name: str, context: CallContextAbi) -> dict[str, Argument]:
    (place,) = _places(name)
    return {one.name: one for one in arguments_of(place.btf, place.prototype, context)}


def test_the_words_of_fentry_are_copied() -> None:
    found = _arguments("inet_bind", _TRACED)
    assert list(found) == ["sock", "uaddr", "addr_len", "arg0", "arg1", "arg2", "return"]
    assert found["addr_len"].type == _INT
    assert found["addr_len"].fetch == TypedContextWord(16, 4)
    assert found["return"].fetch == AtFunctionReturn(TypedContextWord(24, 4))
    assert [one.name for one in found.values() if not one.hidden] == ["sock", "uaddr", "addr_len"]


@pytest.mark.parametrize("context", [_REGISTERS, _TRACED])
def test_a_number_names_the_same_argument_with_the_same_type(context: CallContextAbi) -> None:
    """arg1 shows what skb shows: the structure, as docs/kernel.md says."""
    found = _arguments("ip_send_skb", context)
    plans = [
        make_plan(
            parse_probe(f"ip_send_skb({name})", default="kprobe").items,
            tuple(found.values()),
            text=f"ip_send_skb({name})",
            probe="kprobe:ip_send_skb",
            declared=2,
            max_struct=4096,
            types=KernelTypes(Btf.from_kernel),
            kernel=True,
        )
        for name in ("skb", "arg1")
    ]
    columns = [output.column for plan in plans for output in plan.outputs]
    assert isinstance(columns[0], StructColumn)
    assert columns[0] == columns[1]


@_on_x86
def test_registers_are_read_at_their_width() -> None:
    found = _arguments("inet_bind", _REGISTERS)
    assert found["addr_len"].fetch == Register(96, 4)  # rdx
    assert found["arg2"].fetch == found["addr_len"].fetch
    assert found["return"].type == _INT
    assert found["return"].fetch == AtFunctionReturn(Register(80, 4))  # eax


@_on_x86
def test_arguments_beyond_the_registers_are_on_the_stack() -> None:
    found = _arguments("do_mmap", _REGISTERS)
    later = [one for one in found.values() if isinstance(one.fetch, Memory) and not one.hidden]
    assert [one.fetch.displacement for one in later if isinstance(one.fetch, Memory)] == [
        8 * (1 + index) for index in range(len(later))
    ]
    assert later[-1].name == "uf"
    assert all(isinstance(one.fetch, Memory) and one.fetch.kernel for one in later)


@_on_x86
def test_a_structure_in_two_registers_shifts_what_follows() -> None:
    found = _arguments("tcp_setsockopt", _REGISTERS)
    assert found["optval"].type == ValueType(ValueClass.BYTES, 16)
    assert found["optlen"].fetch == Register(64, 4)  # r9: rcx and r8 hold the structure
    traced = _arguments("tcp_setsockopt", _TRACED)
    assert traced["optlen"].fetch == TypedContextWord(40, 4)


@_on_x86
@pytest.mark.parametrize(
    ("probe", "nodes"),
    [
        pytest.param("tcp_setsockopt(optval.user)", {(88, 8, False)}, id="the first: rcx"),
        pytest.param("tcp_setsockopt(optval.is_kernel)", {(72, 1, False)}, id="a bit of r8"),
        pytest.param("tcp_setsockopt(optval)", {(88, 8, False), (72, 8, False)}, id="both"),
        pytest.param("ns_to_timespec64(return)", {(80, 8, True), (96, 8, True)}, id="returned"),
        pytest.param("ns_to_timespec64(return.tv_nsec)", {(96, 8, True)}, id="half of it: rdx"),
    ],
)
def test_members_of_structures_in_registers(probe: str, nodes: set[tuple[int, int, bool]]) -> None:
    request = parse_probe(probe, default="kprobe")
    (place,) = _places(probe)
    plan = make_plan(
        request.items,
        arguments_of(place.btf, place.prototype, _REGISTERS),
        text=probe,
        probe=probe,
        declared=0,
        max_string=20,
        max_struct=64,
        types=KernelTypes(Btf.from_kernel),
        kernel=True,
    )
    assert _registers(plan.outputs[0].node) == nodes


def _registers(node: Node) -> set[tuple[int, int, bool]]:
    # Offsets and sizes of those that a value is made of, and whether they are a return's.
    if isinstance(node, ArgumentValue):
        fetch = node.fetch
        returned = isinstance(fetch, AtFunctionReturn)
        register = fetch.register if isinstance(fetch, AtFunctionReturn) else fetch
        assert isinstance(register, Register)
        return {(register.offset, register.size, returned)}
    return {one for child in children(node) for one in _registers(child)}


@pytest.mark.parametrize("context", [_REGISTERS, _TRACED], ids=["kprobe", "fentry"])
def test_args_are_the_parameters_of_the_prototype(context: CallContextAbi) -> None:
    probe = "inet_bind(args, pid, return == -EINVAL)"
    (found,) = _places(probe)
    plan = make_plan(
        parse_probe(probe, default="kprobe").items,
        arguments_of(found.btf, found.prototype, context),
        text=probe,
        probe=probe,
        declared=0,
        types=KernelTypes(Btf.from_kernel),
        kernel=True,
    )
    assert [output.key for output in plan.outputs] == ["sock", "uaddr", "addr_len", "pid"]
    (compare,) = plan.predicates
    assert "value=-22" in str(compare)


def test_void_returns_nothing() -> None:
    fetch = _arguments("inet_sock_destruct", _TRACED)["return"].fetch
    assert fetch == AtFunctionReturn(Unreadable("void: nothing is returned"))


def test_without_types_there_are_words() -> None:
    found = arguments_of(None, 0, _REGISTERS)
    assert [one.name for one in found] == [*(f"arg{number}" for number in range(16)), "return"]
    assert all(one.hidden for one in found)


def test_a_pattern_finds_what_can_be_reached() -> None:
    found = _places("inet_*bind")
    assert "inet_bind" in {place.name for place in found}
    assert all(place.address for place in found)
    typed = next(place for place in found if place.name == "inet_bind")
    assert typed.prototype
    assert not any(place.prototype for place in _places("inet_*bind", typed=False))


def test_an_instruction_within() -> None:
    (place,) = _places("inet_bind+0x10")
    assert (place.name, place.offset, place.shown) == ("inet_bind", 16, "inet_bind+0x10")


def test_a_kernel_without_types_has_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_functions: Functions, _module: str) -> None:
        raise NotSupported("BTF of the kernel")

    monkeypatch.setattr(Functions, "btf_of", none)
    (place,) = _places("inet_bind(arg2)")
    assert (place.name, place.btf, place.offset) == ("inet_bind", None, 0)
    with pytest.raises(ProbeNotFound, match="no kernel function inet_bnid"):
        _places("inet_bnid")


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        pytest.param(
            *("inet_bnid", ProbeNotFound, "no kernel function inet_bnid; nearest is inet_bind"),
            id="a misspelt name",
        ),
        pytest.param(
            *("no_such_mod:inet_bind", ProbeNotFound, "no kernel function no_such_mod:inet_bind"),
            id="another module's",
        ),
        pytest.param(*("inet_*+4", LanguageError, "an offset needs one function"), id="offset"),
        pytest.param(*("zzz_*", ProbeNotFound, "no kernel function zzz_"), id="a pattern"),
    ],
)
def test_what_is_not_found(text: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        _places(text)


def test_returns_are_matched_where_the_kernel_keeps_the_stack_pointer() -> None:
    for machine in ("x86_64", "aarch64", "i386", "riscv64"):
        match = CallContextAbi(traced=False, machine=machine).stack
        assert match.required() is match
    with pytest.raises(NotSupported, match="32-bit ARM"):
        CallContextAbi(traced=False, machine="arm").stack.required()
