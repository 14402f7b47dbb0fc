"""Find the kernel functions that a probe names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from usdt.base.errors import LanguageError, NotSupported, ProbeNotFound, TracingError
from usdt.base.frozen import frozen
from usdt.base.machine import KERNEL_MACHINE
from usdt.btf.format import Kind
from usdt.btf.types import Function

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kprobe.functions.prototypes import FunctionInfo, Functions
    from usdt.btf.reader import Btf
    from usdt.engine.language.tree import ProbeText

__all__ = ("KernelFunction", "find_functions", "is_pattern")

_OFFSET = re.compile(r"(.+)\+(0[xX][0-9a-fA-F]+|[0-9]+)")
_GLOB = re.compile(r"[*?[]")


@frozen
class KernelFunction:
    """A kernel function, or an instruction inside one.

    Attributes:
        name: name of the function.
        module: its module; "" for the kernel itself.
        address: address of the instruction; 0 if the kernel looks it up by name.
        offset: offset of the instruction in the function.
        btf: the BTF with its prototype, or None.
        number: ID of the function in ``btf``.
        prototype: ID of its prototype in ``btf``.
        traceable: False if ftrace cannot reach it.
    """

    name: str
    module: str
    address: int
    offset: int = 0
    btf: Btf | None = None
    number: int = 0
    prototype: int = 0
    traceable: bool = True

    @property
    def symbol(self) -> str:
        """The function in the syntax of the kernel's interfaces: ``[MODULE:]FUNCTION``."""
        return f"{self.module}:{self.name}" if self.module else self.name

    @property
    def shown(self) -> str:
        """``[MODULE:]FUNCTION[+OFFSET]``."""
        return f"{self.symbol}+{self.offset:#x}" if self.offset else self.symbol


def find_functions(
    request: ProbeText, functions: Functions, *, typed: bool, notices: list[str]
) -> list[KernelFunction]:
    """Return the functions that a probe names.

    Args:
        request: a probe of kind ``kprobe`` or ``fentry``.
        functions: the kernel's functions.
        typed: True to look up prototypes.
        notices: a list to which messages for the user are added.

    Raises:
        ProbeNotFound: there is no such function, or the kernel lets nobody probe it; the message
            says why.
        LanguageError: the probe has an offset and a pattern.
    """
    base, offset = request.name, 0
    match = _OFFSET.fullmatch(base)
    if match:
        base, offset = match[1], int(match[2], 0)
        if _GLOB.search(base):
            raise LanguageError(request.text, 0, f"{request.pattern}: an offset needs one function")
    if is_pattern(request):
        return _matching(request, functions, typed=typed, notices=notices)
    return _exact(request, functions, base, offset)


def is_pattern(request: ProbeText) -> bool:
    """Return whether a probe names functions by a pattern."""
    return bool(_GLOB.search(request.name) or _GLOB.search(request.provider))


def _exact(
    request: ProbeText, functions: Functions, base: str, offset: int
) -> list[KernelFunction]:
    module = f"{request.provider}:" if request.provider else ""
    try:
        found = functions.find(f"{module}{base}")
    except NotSupported:  # a kernel without BTF: only names and addresses are known
        return _untyped(request, functions, base, offset)
    infos = [one for one in found if one.name == base and one.addresses]
    if not infos:
        raise ProbeNotFound(f"{request.pattern}: {found[0].problem or 'no such function'}")
    problem = functions.why_not_traceable(base)
    if problem:
        raise ProbeNotFound(f"{request.pattern}: cannot be attached: {problem}")
    by_address: dict[tuple[str, int], KernelFunction] = {}
    # A prototype may occur twice with different type IDs: deduplication is not perfect.
    infos = list({(one.module, one.declaration): one for one in reversed(infos)}.values())
    for info in infos:
        several = len(info.addresses) > 1 or len(infos) > 1
        for address in info.addresses:
            known = by_address.get((info.module, address))
            if (
                known is not None
            ):  # several prototypes: it is unknown which belongs to which address
                by_address[info.module, address] = KernelFunction(
                    base, info.module, known.address, offset
                )
                continue
            at = address + offset if several and address else 0
            by_address[info.module, address] = _kernel_function(info, at, offset, alone=not several)
    return list(by_address.values())


def _untyped(
    request: ProbeText, functions: Functions, base: str, offset: int
) -> list[KernelFunction]:
    found = functions.named(request.provider, base)
    if not found:
        hint = functions.hint(base)
        raise ProbeNotFound(f"no kernel function {request.pattern}{hint} (see: kprobe list)")
    problem = functions.why_not_traceable(base)
    if problem:
        raise ProbeNotFound(f"{request.pattern}: cannot be attached: {problem}")
    several = len(found) > 1
    return [
        KernelFunction(base, one.module, one.address + offset if several else 0, offset)
        for one in found
    ]


def _kernel_function(
    info: FunctionInfo, address: int, offset: int, *, alone: bool
) -> KernelFunction:
    number = _number_of(info) if alone else 0
    return KernelFunction(info.name, info.module, address, offset, info.btf, number, info.prototype)


def _number_of(info: FunctionInfo) -> int:
    # The ID of the BTF_KIND_FUNC, if the kernel knows it.
    if info.btf is not None and not info.btf.has_kernel_ids:
        return 0
    for number in info.btf.find(info.name, Kind.FUNC) if info.btf else ():
        function = info.btf.type(number) if info.btf else None
        if isinstance(function, Function) and function.type_id == info.prototype:
            return number
    return 0


def _matching(
    request: ProbeText, functions: Functions, *, typed: bool, notices: list[str]
) -> list[KernelFunction]:
    wanted = functions.addresses_by_name(request.provider or "*", request.name)
    if not wanted:
        raise ProbeNotFound(f"no kernel function {request.pattern} (see: kprobe list)")
    made: list[KernelFunction] = []
    hidden: list[str] = []
    forbidden: list[str] = []
    for (module, name), found in wanted.items():
        if not found:
            hidden.append(name)
        for address in dict.fromkeys(found):
            if functions.blacklist.has(address):
                forbidden.append(name)
                continue
            at = 0 if KERNEL_MACHINE.startswith("ppc64") and len(found) == 1 else address
            made.append(KernelFunction(name, module, at))
    for names, why in ((hidden, "not in kallsyms"), (forbidden, "on the blacklist of kprobes")):
        if names:
            notices.append(f"{request.pattern}: {len(names)} left out, {why}: {_some(names)}")
    if not made:
        raise TracingError(f"{request.pattern}: none of {len(wanted)} functions can be attached")
    return [_with_types(one, functions) for one in made] if typed else made


def _with_types(untyped: KernelFunction, functions: Functions) -> KernelFunction:
    try:
        btf = functions.btf_of(untyped.module)
    except NotSupported:
        return untyped
    ids = btf.find(untyped.name, Kind.FUNC) if btf else []
    if btf is None or len(ids) != 1:
        return untyped
    function = btf.type(ids[0])
    target = function.type_id if isinstance(function, Function) else 0
    number = ids[0] if btf.has_kernel_ids else 0
    return KernelFunction(untyped.name, untyped.module, untyped.address, 0, btf, number, target)


def _some(names: Iterable[str]) -> str:
    found = list(names)
    return ", ".join(found[:3]) + (", …" if len(found) > 3 else "")
