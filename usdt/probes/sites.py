"""From probes of a file to points a session can attach to: arguments resolved, sites chosen."""

from __future__ import annotations

import fnmatch
import weakref
from functools import partial
from typing import TYPE_CHECKING

from usdt.arch.foreign_code import foreign_machine_reason
from usdt.arch.locations import Unreadable, ValueClass, ValueType
from usdt.arch.operands import arch_of
from usdt.base.errors import TargetError, TracingError
from usdt.base.text import closest
from usdt.elf.file import ElfFile
from usdt.elf.symbol_resolver import SymbolResolver
from usdt.engine.compiler.arguments import Argument
from usdt.engine.language.needs_types import needs_types
from usdt.engine.runtime.attach.attach_points import AttachPoint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from usdt.engine.language.tree import Item, ProbeText
    from usdt.probes.probe import Probe, Site
    from usdt.uprobes.dwarf_types import DwarfTypeProvider

__all__ = (
    "arguments_of",
    "attachable",
    "closest_match",
    "declared_arguments",
    "foreign_reason",
    "is_typo_of",
    "matching",
    "points_of",
    "unsupported_code_reason",
)

_THUMB_NOPS = (b"\x00\xbf", b"\xbf\x00", b"\xaf\xf3\x00\x80", b"\xf3\xaf\x80\x00")

_MAX_REFUSED = 20  # sites of a file that are told one by one


def matching(request: ProbeText, probes: Iterable[Probe]) -> list[Probe]:
    """The probes whose provider and name fit the request's patterns (``*``, ``?``, ``[…]``)."""
    return [probe for probe in probes if fits(request, probe.provider, probe.name)]


def fits(request: ProbeText, provider: str, name: str) -> bool:
    """Whether a probe is meant; ``a-b`` also stands for ``a__b``, as DTrace spells it."""
    return fnmatch.fnmatchcase(provider, request.provider) and any(
        fnmatch.fnmatchcase(name, form) for form in request.name_forms
    )


def foreign_reason(probe: Probe) -> str | None:
    """Why a probe cannot be hit by this machine's own instructions, or None."""
    return foreign_machine_reason(probe.machine)


def unsupported_code_reason(elf: ElfFile, probe: Probe, site: Site) -> str | None:
    """Why the kernel must not be asked for a breakpoint at a live site, or None.

    Uprobes on 32-bit ARM take every instruction for one of four bytes of the ARM set, and do not
    refuse Thumb code (arch/arm/probes/uprobes/core.c): the program would execute garbage.
    """
    if probe.machine not in ("arm", "armeb") or site.offset is None:
        return None
    if site.address % 4 == 0 and not elf.bytes_at(site.offset, 4).startswith(_THUMB_NOPS):
        return None
    return "Thumb code, for which Linux has no uprobes"


def declared_arguments(probes: Iterable[Probe]) -> int:
    """The largest number of arguments at any site."""
    return max((len(p.operands(site)) for p in probes for site in p.sites), default=0)


def points_of(
    probe: Probe,
    open_path: str,
    *,
    pid: int = 0,
    typed: bool = False,
    refused: list[TracingError] | None = None,
) -> Iterator[AttachPoint]:
    """The live sites of a probe in the file at ``open_path``.

    Args:
        probe: the probe.
        open_path: what to open.
        pid: the one process to attach in; 0: all.
        typed: whether items name types of the program's debug information.
        refused: takes what is wrong with sites in code that the kernel does not trace; without it
            the first such site is raised.

    Raises:
        ElfError: the file's symbols had to be read and cannot be.
        TargetError: a site is in code that the kernel does not trace.
    """
    types = _types_of(probe.path, open_path, probe.machine, pid) if typed else None
    with ElfFile(open_path, name=probe.path) as elf, SymbolResolver(elf) as symbols:
        known: dict[tuple[str, int], tuple[Argument, ...]] = {}
        for site in probe.sites:
            if site.offset is None:
                continue
            if reason := unsupported_code_reason(elf, probe, site):
                where = f"{probe.full_name} at {site.address:#x} in {probe.path}"
                error = TargetError(f"{where}: {reason}")
                if refused is None:
                    raise error
                refused.append(error)
                continue
            # Operands that name a symbol differ from site to site; all others are shared.
            key = site.args, site.address if _symbolic(probe, site) else 0
            if key not in known:
                known[key] = tuple(arguments_of(probe, site, elf.type, symbols))
            yield AttachPoint(
                probe.full_name,
                probe.path,
                open_path,
                site.offset,
                site.semaphore_offset,
                known[key],
                pid,
                types=types,
            )


_types: weakref.WeakValueDictionary[tuple[str, str, int], DwarfTypeProvider] = (
    weakref.WeakValueDictionary()
)


def _types_of(path: str, open_path: str, machine: str, pid: int) -> DwarfTypeProvider:
    # What knows the program's own types, in casts; its debug information is read if there are any.
    from usdt.uprobes.debug_info import required_debug  # noqa: PLC0415 - listing needs neither
    from usdt.uprobes.dwarf_types import DwarfTypeProvider  # noqa: PLC0415

    known = _types.get((path, open_path, pid))
    if known is None:
        roots = (f"/proc/{pid}/root", "") if pid else ("",)
        known = DwarfTypeProvider(partial(required_debug, path, open_path, roots), machine)
        _types[path, open_path, pid] = known
    return known


def attachable(
    probes: Sequence[Probe], path: str, open_path: str, pid: int, items: Sequence[Item]
) -> tuple[list[AttachPoint], list[TracingError]]:
    """The live sites of several probes of a file, for some items; and why there are no more.

    Raises:
        ElfError: as :func:`points_of`.
    """
    points: list[AttachPoint] = []
    refused: list[TracingError] = []
    typed, elsewhere = needs_types(items), foreign_reason(probes[0])
    for probe in probes if elsewhere is None else ():
        points += points_of(probe, open_path, pid=pid, typed=typed, refused=refused)
    if not points and not refused:
        reason = elsewhere or next(site.dead for probe in probes for site in probe.sites)
        refused.append(TracingError(f"{probes[0].full_name} in {path}: {reason}"))
    if more := refused[_MAX_REFUSED:]:
        refused[_MAX_REFUSED:] = [TracingError(f"{path}: {len(more)} more sites like that")]
    return points, refused


def arguments_of(
    probe: Probe, site: Site, elf_type: int, symbols: SymbolResolver
) -> Iterator[Argument]:
    """How each argument of a site is fetched: arg0, arg1, …."""
    arch = arch_of(probe.machine)
    for index, operand in enumerate(probe.operands(site)):
        name = f"arg{index}"
        if arch is None:
            reason = operand.error or f"arguments of {probe.machine} are not read"
            yield Argument(name, _integer(operand.size), Unreadable(reason))
            continue
        fetch = arch.fetch(
            operand,
            symbol_address=symbols.address,
            location=site.address,
            machine=probe.machine,
            elf_type=elf_type,
        )
        yield Argument(name, arch.value_type(operand), fetch)


def _integer(size: int) -> ValueType:
    return ValueType(ValueClass.UNSIGNED, size)


def _symbolic(probe: Probe, site: Site) -> bool:
    return any(operand.symbol for operand in probe.operands(site))


def closest_match(wanted: str, known: Iterable[str]) -> str | None:
    """The name that a misspelt one most likely stands for, or None."""
    return closest(wanted, known, 0.7) or None


def is_typo_of(one: str, other: str) -> bool:
    """Whether a name is a misspelling of the other in provider and name, each taken alone.

    Two letters changed places in a provider of four are.
    """
    from difflib import SequenceMatcher  # noqa: PLC0415 - only for a message

    pairs = zip(one.split(":", 1), other.split(":", 1), strict=True)
    return all(SequenceMatcher(None, a, b).ratio() >= 0.75 for a, b in pairs)
