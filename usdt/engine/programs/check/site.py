"""A probe of a program at one attach point: what its names and types mean there."""

from __future__ import annotations

import functools
import os
import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from usdt.base.errors import NotSupported
from usdt.base.frozen import field, frozen
from usdt.engine.compiler.scope import Scope
from usdt.engine.language.tree import TypeKind, TypeName
from usdt.engine.programs.integer_types import INTEGERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.engine.compiler.resolve.btf_types import BtfTypes
    from usdt.engine.compiler.scope import TypeProvider
    from usdt.engine.programs.definitions import Definitions
    from usdt.engine.programs.syntax.tree import NamedType
    from usdt.engine.runtime.attach.attach_points import AttachPoint

__all__ = ("Site", "enumerators", "full_name", "kernel_types", "process_types", "site_of")

_KINDS = {"struct": TypeKind.STRUCT, "union": TypeKind.UNION, "enum": TypeKind.ENUM}


@functools.cache
def kernel_types() -> BtfTypes | None:
    """Return the kernel's types; None if the kernel has no BTF."""
    from usdt.btf.reader import Btf  # noqa: PLC0415 - few programs need the kernel's types
    from usdt.engine.compiler.resolve import btf_types  # noqa: PLC0415

    try:
        Btf.from_kernel()
    except NotSupported:
        return None
    return btf_types.BtfTypes(Btf.from_kernel)


@functools.cache
def process_types() -> BtfTypes | None:
    """Return the kernel's types for what is in the memory of processes; None without BTF."""
    known = kernel_types()
    if known is None:
        return None
    from usdt.engine.compiler.resolve import btf_types  # noqa: PLC0415 - few programs need them

    return btf_types.BtfTypes(lambda: known.btf, kernel=False)


@functools.cache
def enumerators() -> dict[str, tuple[int, int]]:
    """Return the constants of the kernel's enumerations by name, each with the enumeration's ID."""
    types = kernel_types()
    if types is None:
        return {}
    from usdt.btf.format import Kind  # noqa: PLC0415 - few programs use such constants
    from usdt.btf.types import Enum  # noqa: PLC0415

    found: dict[str, tuple[int, int]] = {}
    btf = types.btf
    for number in btf.ids(Kind.ENUM, Kind.ENUM64):
        one = btf.type(number)
        for value in one.values if isinstance(one, Enum) else ():
            found.setdefault(value.name, (value.value, number))
    return found


@frozen
class Site:
    """A probe at one attach point.

    Attributes:
        index: the index of the probe in the program.
        scope: its arguments, types and registers.
        probe: the value of ``probe``: the attach point as bpftrace writes it.
        function: the value of ``func``.
        kind: the kind of the probe: ``uprobe``, ``begin``.
        kernel: whether addresses may be in the kernel.
        returns: whether it is the return of a function.
        defined: the types that the program defines.
    """

    index: int
    scope: Scope
    probe: str
    function: str
    kind: str
    kernel: bool
    returns: bool = False
    defined: Definitions | None = field(default=None, compare=False)

    def type_sources(self, *, kernels: bool = False) -> Iterator[TypeProvider]:
        """Yield what knows types here: the program, then the probe, then the kernel.

        Args:
            kernels: whether they are for an address that is known to be of the kernel.
        """
        kernel = kernels or self.kernel
        own = None if self.defined is None else self.defined.types(kernel=kernel)
        if own is not None:
            yield own
        if self.scope.types is not None:
            yield self.scope.types
        known = kernel_types()
        if known is not None:
            yield known

    def named_type(self, node: NamedType, pointers: int) -> TypeName:
        """Return a type with a name, as the language of probes has it."""
        if node.tag:
            return TypeName(_KINDS[node.tag], node.name, 0, signed=False, pointers=pointers)
        if node.name == "void":
            return TypeName(TypeKind.VOID, "void", 0, signed=False, pointers=pointers)
        if node.name in INTEGERS:
            size, signed = INTEGERS[node.name]
            return TypeName(TypeKind.INTEGER, node.name, size, signed, pointers)
        return TypeName(TypeKind.TYPEDEF, node.name, 0, signed=False, pointers=pointers)


def full_name(kind: str, written: str, point: AttachPoint | None) -> str:
    """Return the value of ``probe``: the name of what a pattern has found, with its file.

    Args:
        kind: the kind of the probe.
        written: the attach point as written.
        point: what it has found; None for probes such as ``begin``.
    """
    if point is None:
        return written
    rest = written.partition(":")[2]
    file = rest.partition(":")[0]
    path = file if "/" in file and not re.search(r"[*?\[]", file) else _path(file, point.path)
    pattern = re.search(r"[*?\[]", rest) is not None
    match kind:
        case "usdt":
            return f"{kind}:{path}:{point.probe}"
        case "uprobe" | "uretprobe":
            last = rest.rpartition(":")[2]
            name = rest.partition(":")[2] if last.isdecimal() else last  # SOURCE:LINE
            name = point.function if pattern else name
            return f"{kind}:{path}:{name}"
        case "kprobe" | "kretprobe" | "fentry" | "fexit":
            return f"{kind}:{point.function if pattern else rest}"
        case "tracepoint" | "rawtracepoint" if pattern:
            return f"{kind}:{point.probe.partition(':')[2]}"
        case _:
            return f"{kind}:{rest}"


def _path(pattern: str, found: str) -> str:
    # The path of a file that a pattern has found: relative if the pattern is.
    if "/" not in pattern or pattern.startswith("/") or not found.startswith("/"):
        return found
    path = os.path.relpath(found)
    path = f"./{path}" if pattern.startswith("./") else path
    return path if fnmatchcase(path, pattern) else found


def site_of(
    index: int,
    text: str,
    probe: str,
    point: AttachPoint | None,
    *,
    kind: str,
    defined: Definitions | None = None,
) -> Site:
    """Return a probe at an attach point; None: one that has none, such as ``begin``."""
    if point is None:
        scope = Scope(text, probe, {}, 0)
        return Site(index, scope, probe, "", kind, kernel=True, defined=defined)
    kernel = point.kernel_target is not None
    # Of a function of a module, ``func`` is the name alone.
    function = point.function.rpartition(":")[2] if kernel else point.function
    named = {one.name: one for one in point.arguments}
    numbers = [name for name in named if name.startswith("arg") and name[3:].isdigit()]
    scope = Scope(
        text,
        point.probe,
        named,
        max((int(name[3:]) + 1 for name in numbers), default=0),
        function or point.probe,
        types=point.types,
        registers=point.registers,
    )
    return Site(
        index,
        scope,
        probe,
        function,
        kind,
        kernel=kernel,
        returns=kind in ("kretprobe", "uretprobe", "fexit"),
        defined=defined,
    )
