"""Find the sites of a probe, and describe their arguments as libbpf's specs.

Files, probes, sites and arguments are found as the tracer finds them
(:mod:`usdt.targets.search.target_files`, :mod:`usdt.probes.probe`, :mod:`usdt.probes.sites`).
This module adds the specs and the checks of libbpf.
"""

from __future__ import annotations

import errno
import sys
from typing import TYPE_CHECKING

from usdt.base.errors import ProbeNotFound, SyscallError, TargetError
from usdt.base.frozen import frozen, replace
from usdt.elf.file import ElfFile
from usdt.libbpf.usdt_spec import Problem, Spec, UsdtSpecLayout, make_spec
from usdt.probes.matching import missing_probe
from usdt.probes.probe import read_probes
from usdt.probes.sites import points_of, unsupported_code_reason
from usdt.procfs.mapped_files import file_identity, mapped_files
from usdt.procfs.maps import Mapping, read_maps
from usdt.targets.search.target_files import resolve_target

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from usdt.engine.runtime.attach.attach_points import AttachPoint
    from usdt.probes.probe import Probe, Site

__all__ = ("AttachSite", "AttachSpec", "Collection", "addresses_of", "collect", "files_of")

ET_EXEC = 2  # e_type, elf.h: the file is mapped at its link-time addresses
MAX_NOTICES = 16


@frozen
class AttachSite:
    """One site to attach to.

    Attributes:
        point: the attach point.
        site: the site, from its note.
        spec: its arguments as a libbpf spec.
        key: (argument string, address if an argument is relative to the site, else 0). Sites of
            one attachment with equal keys share a spec.
        fixed: True if the file is mapped at its link-time addresses (ET_EXEC).
    """

    point: AttachPoint
    site: Site
    spec: Spec
    key: tuple[str, int]
    fixed: bool


@frozen
class AttachSpec:
    """A request to attach to a probe.

    Attributes:
        provider: the exact provider of the probe.
        name: the exact name of the probe.
        pid: the only process to attach in; 0 for every process.
        cookie: the cookie of every spec.
        layout: structure layout of the spec map.
        strict: True to raise an error if a site or an argument must be omitted.
    """

    provider: str
    name: str
    pid: int = 0
    cookie: int = 0
    layout: UsdtSpecLayout = UsdtSpecLayout.CLASSIC
    strict: bool = False

    @property
    def probe(self) -> str:
        """``provider:name``."""
        return f"{self.provider}:{self.name}"


@frozen
class Collection:
    """The sites to attach to.

    Attributes:
        path: the file, or ``process PID``, for messages.
        sites: the sites.
        notices: messages about omitted sites and arguments.
    """

    path: str
    sites: tuple[AttachSite, ...]
    notices: tuple[str, ...]


class _Notices:
    # Collects problems as messages; in strict mode, raises the first one.
    def __init__(self, where: str, *, strict: bool) -> None:
        self._where = where
        self._strict = strict
        self._seen: dict[str, int] = {}

    def add(self, problem: Problem) -> None:
        if self._strict:
            raise SyscallError(problem.errno, f"attach to {self._where}", problem.text)
        self._seen[problem.text] = self._seen.get(problem.text, 0) + 1

    def lines(self) -> list[str]:
        rows = [
            f"{self._where}: {text}" + (f" ({number} sites)" if number > 1 else "")
            for text, number in self._seen.items()
        ]
        more = len(rows) - MAX_NOTICES
        return rows if more <= 0 else [*rows[:MAX_NOTICES], f"{self._where}: {more} more of these"]


def collect(target: str | None, wanted: AttachSpec) -> Collection:
    """Find every site of a probe, and make its spec.

    Args:
        target: a TARGET argument; None for every file that the process has mapped.
        wanted: the probe.

    Raises:
        ProbeNotFound: there is no such probe.
        TargetError: there is no such file or process, or neither is given.
        ElfError: the file is damaged.
        SyscallError: a problem in strict mode, with libbpf's errno.
    """
    sites: list[AttachSite] = []
    notices: list[str] = []
    names: dict[str, None] = {}
    paths: list[str] = []
    for path, open_path in files_of(target, wanted.pid):
        found = read_probes(path, open_path=open_path)
        paths.append(path)
        for probe in found.probes:
            names[probe.full_name] = None
            if (probe.provider, probe.name) == (wanted.provider, wanted.name):
                mine = _Notices(f"{probe.full_name} in {path}", strict=wanted.strict)
                _check(probe, mine)
                sites += _attach_sites(probe, open_path, wanted, mine)
                notices += mine.lines()
    where = paths[0] if target is not None else f"process {wanted.pid}"
    if not sites:
        raise _not_found(wanted.probe, where, names, notices)
    return Collection(where, tuple(sites), tuple(notices))


def files_of(target: str | None, pid: int) -> Iterator[tuple[str, str]]:
    """Yield the path and the path to open of a TARGET argument, or of all files of a process.

    Raises:
        TargetError: there is no such file or process, or neither is given.
    """
    if target is not None:
        found = resolve_target(target, pid=pid or None)
        yield found.path, found.open_path
        return
    if not pid:
        raise TargetError("which file? Give a target, or a process whose files are meant")
    for file in mapped_files(pid):
        if file.open_path is not None and ElfFile.is_elf(file.open_path):
            yield file.path, file.open_path


def _check(probe: Probe, notices: _Notices) -> None:
    # libbpf accepts only files of its own ELF class and byte order, and fails if a site or a
    # semaphore is unusable.
    if probe.byteorder != sys.byteorder or probe.bits != (64 if sys.maxsize >> 32 else 32):
        text = f"a program for {probe.machine}: its memory cannot be read by libbpf's specs"
        notices.add(Problem(text, errno.EBADF))
    for site in probe.sites:
        if site.dead is not None:
            notices.add(Problem(f"site {site.address:#x} left out: {site.dead}", errno.ESRCH))
        if site.semaphore and not site.semaphore_offset:
            text = f"the semaphore at {site.semaphore:#x} cannot be raised: it may stay off"
            notices.add(Problem(text, errno.ESRCH))


def _attach_sites(
    probe: Probe, open_path: str, wanted: AttachSpec, notices: _Notices
) -> Iterator[AttachSite]:
    live: list[Site] = []
    with ElfFile(open_path, name=probe.path) as elf:
        fixed = elf.type == ET_EXEC
        for site in probe.sites:
            if reason := unsupported_code_reason(elf, probe, site):
                text = f"site {site.address:#x} left out: {reason}"
                notices.add(Problem(text, errno.EOPNOTSUPP))
            elif site.dead is None:
                live.append(site)
    known: dict[tuple[str, int], Spec] = {}
    traceable = replace(probe, sites=tuple(live))
    # No name for the generator: with an error's frames, it would live on and keep the file open.
    for point, site in zip(points_of(traceable, open_path, pid=wanted.pid), live, strict=True):
        operands = probe.operands(site)
        relative = any(operand.symbol for operand in operands)
        key = (site.args if operands else "", site.address if relative else 0)
        if key not in known:
            texts = [operand.text for operand in operands]
            spec, problems = make_spec(
                point.arguments, texts, cookie=wanted.cookie, layout=wanted.layout
            )
            for problem in problems:
                notices.add(problem)
            known[key] = spec
        yield AttachSite(point, site, known[key], key, fixed)


def addresses_of(sites: Sequence[AttachSite]) -> Iterator[tuple[AttachSite, int]]:
    """Yield each site with its address in memory, which a program sees as its instruction pointer.

    A file that a process has mapped several times yields several addresses.

    Raises:
        SyscallError: EOPNOTSUPP if the address depends on the process and no process is given.
        TargetError: the process has ended, or has not mapped a site.
    """
    known: dict[str, list[Mapping]] = {}
    for site in sites:
        if site.fixed:
            yield site, site.site.address
            continue
        point = site.point
        if point.open_path not in known:
            known[point.open_path] = _code(point)
        found = [
            mapping.start + point.offset - mapping.offset
            for mapping in known[point.open_path]
            if mapping.offset <= point.offset < mapping.offset + mapping.end - mapping.start
        ]
        if not found:
            raise TargetError(
                f"process {point.pid} has not mapped {point.path} at offset {point.offset:#x}"
            )
        for address in found:
            yield site, address


def _code(point: AttachPoint) -> list[Mapping]:
    # The executable mappings of an attach point's file in its process.
    if not point.pid:
        raise SyscallError(
            errno.EOPNOTSUPP,
            "addresses of a position-independent file",
            "without BPF cookies (Linux 5.15) these are known in one process only: give a pid",
        )
    identity = file_identity(point.open_path)
    return [
        mapping
        for mapping in read_maps(point.pid)
        if mapping.executable and (mapping.device, mapping.inode) == identity
    ]


def _not_found(wanted: str, where: str, names: Iterable[str], notices: list[str]) -> ProbeNotFound:
    if notices:
        return ProbeNotFound(f"{where}: no site of {wanted} can be attached: {notices[0]}")
    return ProbeNotFound(missing_probe(where, wanted, list(names)))
