"""Raw tracepoints: arguments from the kernel's BTF, with the names that its sources use.

Each tracepoint has a type ``btf_trace_NAME``. The function ``__traceiter_NAME`` has the same
parameters, with names.
"""

from __future__ import annotations

import fnmatch
import functools

from kprobe.tracepoints.catalog import no_match
from usdt.arch.locations import Register, Unreadable, ValueClass, ValueType
from usdt.base.machine import BIG_ENDIAN, KERNEL_MACHINE
from usdt.btf import types as btf_types
from usdt.btf.format import Kind as BtfKind
from usdt.btf.reader import Btf
from usdt.engine.compiler.arguments import Argument, Display
from usdt.engine.compiler.ir import BtfType
from usdt.engine.compiler.resolve.btf_types import enum_names, value_type

__all__ = ("arguments_of", "matching", "raw_tracepoints")

_TYPEDEF, _FUNCTION = "btf_trace_", "__traceiter_"
_MAX_ARGUMENTS = 12  # MAX_BPF_FUNC_ARGS
_WORD = ValueType(ValueClass.UNSIGNED, 8)
_SHOWN = 20


@functools.cache
def raw_tracepoints() -> tuple[str, ...]:
    """Return the names of all raw tracepoints, without those of modules.

    Raises:
        NotSupported: the kernel has no BTF.
    """
    btf = Btf.from_kernel()
    return tuple(
        sorted(
            name.removeprefix(_TYPEDEF)
            for _, name in btf.named(BtfKind.TYPEDEF)
            if name.startswith(_TYPEDEF)
        )
    )


def matching(pattern: str) -> list[str]:
    """Return the raw tracepoints that match a pattern.

    Raises:
        ProbeNotFound: no raw tracepoint matches; the message names the most similar one.
    """
    found = fnmatch.filter(raw_tracepoints(), pattern)
    if not found:
        raise no_match("raw tracepoint", "rawtp", pattern, raw_tracepoints())
    return found


@functools.cache
def _callers() -> dict[str, int]:
    # Raw tracepoint → ID of the function that runs its programs.
    named = Btf.from_kernel().named(BtfKind.FUNC)
    return {
        name.removeprefix(_FUNCTION): number for number, name in named if name.startswith(_FUNCTION)
    }


@functools.cache
def _caller(name: str) -> list[int]:
    # One lookup takes some milliseconds; a pass over all functions takes as long as a few lookups.
    if _caller.cache_info().misses > _SHOWN:
        return [_callers()[name]] if name in _callers() else []
    return Btf.from_kernel().find(f"{_FUNCTION}{name}", BtfKind.FUNC)


def _prototype(btf: Btf, name: str) -> btf_types.FunctionProto | None:
    for number in _caller(name):
        function = btf.type(number)
        if isinstance(function, btf_types.Function):
            found = btf.type(function.type_id)
            if isinstance(found, btf_types.FunctionProto):
                return found
    for number in btf.find(f"{_TYPEDEF}{name}", BtfKind.TYPEDEF):  # has no parameter names
        pointer = btf.resolve(number)
        if isinstance(pointer, btf_types.Pointer):
            found = btf.resolve(pointer.type_id)
            if isinstance(found, btf_types.FunctionProto):
                return found
    return None


def arguments_of(name: str) -> tuple[Argument, ...]:
    """Return the arguments of a raw tracepoint, by name and as ``arg0``…; () if unknown."""
    btf = Btf.from_kernel()
    prototype = _prototype(btf, name)
    if prototype is None:
        return ()
    named, numbered = [], []
    for index, parameter in enumerate(prototype.parameters[1 : _MAX_ARGUMENTS + 1]):
        made = _argument(btf, parameter.name or f"arg{index}", parameter.type_id, 8 * index)
        named.append(made)
        if parameter.name:
            word = Register(8 * index, 8)
            numbered.append(Argument(f"arg{index}", _WORD, word, hidden=True))
    return (*named, *numbered)


def _argument(btf: Btf, name: str, number: int, offset: int) -> Argument:
    found = btf.resolve(number)
    if isinstance(found, btf_types.Pointer):
        return Argument(
            name, _WORD, Register(offset, 8), display=Display.HEX, type_ref=BtfType(number)
        )
    kind = value_type(btf, number)
    if kind is None:
        return Argument(name, _WORD, Unreadable("a structure that is passed by value"))
    names = enum_names(found)
    # The kernel casts each argument to u64 (CAST_TO_U64, include/trace/bpf_probe.h).
    register = Register(offset + (8 - kind.size if KERNEL_MACHINE in BIG_ENDIAN else 0), kind.size)
    return Argument(name, kind, register, names=names, type_ref=BtfType(number))
