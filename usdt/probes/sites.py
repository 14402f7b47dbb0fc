"""From the probes of a file to attach points: select probes, resolve arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.context_registers import ContextRegisters
from usdt.arch.foreign_code import foreign_machine_reason
from usdt.arch.locations import Unreadable, ValueClass, ValueType
from usdt.arch.operands import arch_of
from usdt.base.errors import TargetError, TracingError
from usdt.base.terminal import progress
from usdt.elf.file import ElfFile
from usdt.elf.symbol_resolver import SymbolResolver
from usdt.engine.compiler.arguments import Argument
from usdt.engine.runtime.attach.attach_points import AttachPoint
from usdt.probes.nops import has_nop10
from usdt.probes.program_names import ProgramNames

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from usdt.engine.language.tree import Item
    from usdt.probes.probe import Probe, Site

__all__ = (
    "arguments_of",
    "attachable",
    "declared_arguments",
    "foreign_reason",
    "points_of",
    "unsupported_code_reason",
)

_THUMB_NOPS = (b"\x00\xbf", b"\xbf\x00", b"\xaf\xf3\x00\x80", b"\xf3\xaf\x80\x00")

_LONGEST_X86 = 15  # bytes of an instruction

_MAX_REFUSED = 20  # sites of a file that are reported one by one


def foreign_reason(probe: Probe) -> str | None:
    """Return why this machine never executes a probe's code natively, or None."""
    return foreign_machine_reason(probe.machine)


def unsupported_code_reason(elf: ElfFile, probe: Probe, site: Site) -> str | None:
    """Return why a breakpoint at a live site would break the program, or is refused; or None.

    Uprobes on 32-bit ARM treat all code as 4-byte ARM instructions and do not refuse Thumb code
    (arch/arm/probes/uprobes/core.c): the program would execute garbage. For x86, see
    :mod:`usdt.uprobes.unsafe_instructions`.
    """
    if site.offset is None:
        return None
    if probe.machine in ("x86_64", "i386"):
        return _x86_reason(elf.bytes_at(site.offset, _LONGEST_X86), probe.machine)
    if probe.machine not in ("arm", "armeb"):
        return None
    if site.address % 4 == 0 and not elf.bytes_at(site.offset, 4).startswith(_THUMB_NOPS):
        return None
    return "Thumb code, for which Linux has no uprobes"


def _x86_reason(code: bytes, machine: str) -> str | None:
    if code[:1] == b"\x90":  # the usual nop
        return None
    from usdt.uprobes.unsafe_instructions import is_unsafe, refused_reason  # noqa: PLC0415 - few

    reason = refused_reason(code, machine)
    if reason:
        return f"Linux cannot probe {reason}; the code there is {code[:10].hex(' ')} …"
    if is_unsafe(code, machine):
        return f"Linux mistakes the vector instruction {code[:10].hex(' ')} … for a jump"
    return None


def declared_arguments(probes: Iterable[Probe]) -> int:
    """Return the largest number of arguments at any site."""
    return max((len(p.operands(site)) for p in probes for site in p.sites), default=0)


def points_of(
    probe: Probe,
    open_path: str,
    *,
    pid: int = 0,
    items: Sequence[Item] = (),
    refused: list[TracingError] | None = None,
) -> Iterator[AttachPoint]:
    """Yield the attach points of a probe's live sites in the file at ``open_path``.

    Args:
        probe: the probe.
        open_path: the path to open.
        pid: the only process to attach in; 0 for all.
        items: items, which may name types and variables of the program.
        refused: receives the errors of sites in code that the kernel cannot trace; without it, the
            first one is raised.

    Raises:
        ElfError: the file's symbols are needed and cannot be read.
        TargetError: a site is in code that the kernel cannot trace.
        TracingError: the debug information is needed and damaged.
    """
    registers = ContextRegisters(probe.machine)
    with (
        ElfFile(open_path, name=probe.path) as elf,
        SymbolResolver(elf) as symbols,
        ProgramNames(probe.path, open_path, probe.machine, pid, items) as names,
    ):
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
            # Locations relative to a symbol differ from site to site; all others are shared.
            key = site.args, site.address if _symbolic(probe, site) else 0
            if key not in known:
                known[key] = tuple(arguments_of(probe, site, elf.type, symbols))
            passed = known[key]
            yield AttachPoint(
                probe.full_name,
                probe.path,
                open_path,
                site.offset,
                site.semaphore_offset,
                (*names.variables(passed, site.address), *passed),
                pid,
                types=names.types,
                registers=registers,
                nop10=has_nop10(elf, site),
            )


def attachable(
    probes: Sequence[Probe], path: str, open_path: str, pid: int, items: Sequence[Item]
) -> tuple[list[AttachPoint], list[TracingError]]:
    """Return the attach points of several probes of a file, and the errors of the other sites.

    Raises:
        ElfError: as :func:`points_of`.
    """
    points: list[AttachPoint] = []
    refused: list[TracingError] = []
    elsewhere = foreign_reason(probes[0])
    what = f"reading probes of {path}"
    for probe in progress.through(probes if elsewhere is None else (), what, len(probes)):
        points += points_of(probe, open_path, pid=pid, items=items, refused=refused)
    if not points and not refused:
        reason = elsewhere or next(site.dead for probe in probes for site in probe.sites)
        refused.append(TracingError(f"{probes[0].full_name} in {path}: {reason}"))
    if more := refused[_MAX_REFUSED:]:
        refused[_MAX_REFUSED:] = [TracingError(f"{path}: {len(more)} more sites cannot be traced")]
    return points, refused


def arguments_of(
    probe: Probe, site: Site, elf_type: int, symbols: SymbolResolver
) -> Iterator[Argument]:
    """Yield the arguments of a site with their locations: arg0, arg1, …."""
    arch = arch_of(probe.machine)
    for index, operand in enumerate(probe.operands(site)):
        name = f"arg{index}"
        if arch is None:
            reason = operand.error or f"arguments of {probe.machine} are not supported"
            yield Argument(name, _integer(operand.size), Unreadable(reason))
            continue
        fetch = arch.fetch(
            operand,
            symbol_address=symbols.address,
            location=site.address,
            machine=probe.machine,
            elf_type=elf_type,
        )
        part_of = 0 if operand.low_part is None else operand.size
        yield Argument(name, arch.value_type(operand), fetch, part_of=part_of)


def _integer(size: int) -> ValueType:
    return ValueType(ValueClass.UNSIGNED, size)


def _symbolic(probe: Probe, site: Site) -> bool:
    return any(operand.symbol for operand in probe.operands(site))
