"""What ``usdt run -lv`` shows: arguments of probes, and definitions of the kernel's types."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from usdt.base.errors import BtfError, NotSupported, ProbeNotFound
from usdt.base.text import printable, printable_lines
from usdt.btf.dump.declare import declaration
from usdt.btf.format import Kind
from usdt.btf.types import Composite, Function, FunctionProto
from usdt.engine.programs.check.site import kernel_types
from usdt.engine.programs.iterators import context_of

if TYPE_CHECKING:
    from usdt.btf.reader import Btf
    from usdt.engine.runtime.attach.attach_points import AttachPoint

__all__ = ("arguments_of", "fields_of", "types_of")

_TAGS = {
    "struct": (Kind.STRUCT,),
    "union": (Kind.UNION,),
    "enum": (Kind.ENUM, Kind.ENUM64),
}


def types_of(pattern: str, *, whole: bool) -> list[str] | None:
    """Return the kernel's types that a pattern such as ``struct task_*`` names.

    Args:
        pattern: what is listed.
        whole: whether types are defined, in C; otherwise they are only named.

    Returns:
        Their lines, or None: the pattern is not one of types.

    Raises:
        NotSupported: the kernel has no BTF.
        ProbeNotFound: there is no such type.
    """
    tag, _, name = " ".join(pattern.split()).partition(" ")
    if tag not in _TAGS or not name:
        return None
    from usdt.btf.dump.c_dump import definition  # noqa: PLC0415 - few lists are of types

    btf = _kernel_btf()
    found: dict[str, int] = {}
    for number, one in btf.named(*_TAGS[tag]):
        if fnmatchcase(one, name):
            found.setdefault(one, number)  # types of one name are mostly the same
    if not found:
        raise ProbeNotFound(f"the kernel has no type {pattern!r}")
    names = sorted(found)
    if not whole:
        return [printable(f"{tag} {one}") for one in names]
    texts = [definition(btf, found[one]) for one in names]
    return [line for text in texts for line in printable_lines(text).splitlines()]


def fields_of(kind: str, name: str) -> list[str]:
    """Return the arguments of a probe of the kernel, a line each; none where they are unknown.

    Args:
        kind: ``tracepoint``, ``kprobe`` and so on.
        name: its name without the kind.

    Raises:
        TracingError: the format of a tracepoint cannot be read.
    """
    if kind == "tracepoint":
        from usdt.tracefs.format import parse_format  # noqa: PLC0415 - few lists are of them
        from usdt.tracefs.mount import read_format  # noqa: PLC0415

        category, _, event = name.partition(":")
        fields = parse_format(read_format(category, event)).own
        # The name stands alone, as the kernel writes it: char * buf
        texts = (re.sub(r"\*(?=[^*]*$)", "* ", field.declaration) for field in fields)
        return [printable(f"    {text}") for text in texts]
    if kind == "rawtracepoint":
        return []
    if kind == "iter":
        return _members(context_of(name))
    return _parameters(name.rpartition(":")[2], returns=kind == "fexit")


def _kernel_btf() -> Btf:
    types = kernel_types()
    if types is None:
        raise NotSupported("BTF of the kernel", (5, 4))
    return types.btf


def _parameters(function: str, *, returns: bool) -> list[str]:
    try:
        btf = _kernel_btf()
    except NotSupported:
        return []
    found = [btf.type(number) for number in btf.find(function, Kind.FUNC)]
    prototype = btf.type(found[0].type_id) if found and isinstance(found[0], Function) else None
    if not isinstance(prototype, FunctionProto):
        return []
    lines = [f"{declaration(btf, one.type_id)} {one.name}" for one in prototype.parameters]
    if returns and prototype.return_type_id:
        lines.append(f"{declaration(btf, prototype.return_type_id)} retval")
    return [printable(f"    {line}") for line in lines]


def _members(number: int) -> list[str]:
    # Of the context of an iterator, without the first: each is alone in a union.
    btf = _kernel_btf()
    whole = btf.type(number)
    found = [*whole.members[1:]] if isinstance(whole, Composite) else []
    for index, one in enumerate(found):
        inner = btf.type(one.type_id)
        if not one.name and isinstance(inner, Composite):
            found[index] = inner.members[0]
    return [printable(f"    {declaration(btf, one.type_id)} {one.name}") for one in found]


def arguments_of(point: AttachPoint) -> list[str]:
    """Return the arguments of a function of a program, a line each, by its debug information."""
    btf: Btf | None = getattr(point.types, "btf", None)
    lines: list[str] = []
    if btf is None:
        return lines
    for argument in point.arguments:
        number = getattr(argument.type_ref, "id", None)
        if argument.hidden or number is None:
            continue
        try:
            text = declaration(btf, number)
        except BtfError:
            text = "void"  # nested too deeply to be written
        text = re.sub(r" (?=\*+$)", "", text)
        lines.append(printable(f"    {text} {argument.name}"))
    return lines
