"""Attaching uprobes: sites of files, by the newest attach method that the kernel has.

One program serves all variants of one attachment. If they do not fit one program (its jumps reach
32,767 instructions), several programs do. One link serves all sites of one file in one process.
This makes detaching fast: the kernel waits tens of milliseconds for each link. Without
uprobe_multi, many sites are one event of tracefs, and few are a perf event each.
"""

from __future__ import annotations

import contextlib
import errno
from itertools import groupby
from typing import TYPE_CHECKING

from usdt.base.closeable import allow_descriptors
from usdt.base.errors import NotSupported, SyscallError, TracingError
from usdt.base.machine import KERNEL_MACHINE
from usdt.base.terminal import progress
from usdt.base.text import plural
from usdt.bpf import features
from usdt.bpf._uapi import ENOTSUPP, AttachType
from usdt.bpf.link import (
    UprobeMethod,
    UprobeSite,
    attach_uprobe_multi,
    attach_uprobe_perf,
)
from usdt.engine.compiler.site_numbers import SharedCode
from usdt.engine.runtime.attach.requests import (
    MAX_VARIANTS,
    AttachFailure,
    AttachRequest,
    bisect_load,
    explain,
    halves,
    variants_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from usdt.bpf.program import Program
    from usdt.engine.runtime.attach.attach_points import AttachPoint
    from usdt.engine.runtime.attach.loader import ProgramLoader
    from usdt.engine.runtime.attach.places import DispatchByPlace

__all__ = ("UprobeAttacher",)

# Sites from which they are one event: to detach it, the kernel waits as long as for two sites.
_MANY = 8
_FEW = 8  # most sites whose places a program compares


class UprobeAttacher:
    """An attacher of sites of files.

    Args:
        loader: owns the programs and links.
        method: the attach method; None selects the newest that the kernel has.
        may_sleep: whether programs may take page faults, if the kernel allows it.
    """

    def __init__(
        self, loader: ProgramLoader, method: UprobeMethod | None, *, may_sleep: bool
    ) -> None:
        self._loader = loader
        self._method = method
        self._may_sleep = may_sleep
        self._fewest = 0  # sites that are an event of tracefs
        self._failures: list[AttachFailure] = []
        self._done = self._total = 0  # of the requests
        # By whether their links select the process, the numbers of their variants, and how these
        # are told apart.
        self._programs: dict[tuple[bool, tuple[int, ...], DispatchByPlace | None], Program] = {}
        self._shared = SharedCode(())  # of one file

    def attach(self, requests: Sequence[AttachRequest]) -> list[AttachFailure]:
        """Attach to every site; return the failures."""
        self._select_method()
        self._failures = []
        self._done, self._total = 0, len(requests)
        for _, group in groupby(sorted(requests, key=_file), key=_file):
            self._attach_file(list(group))
        progress.erase()
        return self._failures

    def _select_method(self) -> None:
        # Leave the method of few sites in _method, and in _fewest how many sites are an event.
        if self._method is UprobeMethod.UPROBE_EVENTS:
            self._method, self._fewest = features.best_perf_method(), 1
        elif self._method is None:
            self._method = features.best_uprobe_method()
            if self._method is not UprobeMethod.UPROBE_MULTI and _can_define_uprobes():
                self._fewest = _MANY

    def _attach_file(self, requests: list[AttachRequest]) -> None:
        by_event = self._fits_event(requests)
        # Without cookies, a program cannot identify the site: each variant has its own program.
        limit = MAX_VARIANTS if by_event or self._cookies else 1
        if limit == 1:
            requests.sort(key=_number)
        self._shared = self._loader.shared_code(variants_of(requests) if limit > 1 else ())
        for part in _parts(requests, limit, self._shared):
            for one in _apart(part) if by_event else [part]:
                bisect_load(one, self._attach, _probe)
                self._done += len(one)

    @property
    def _cookies(self) -> bool:
        return self._method is not UprobeMethod.PERF_EVENT

    def _fits_event(self, requests: Sequence[AttachRequest]) -> bool:
        # At a return, the instruction pointer is that of the caller.
        return 0 < self._fewest <= len(requests) and not requests[0].on_return

    def _attach(self, requests: Sequence[AttachRequest]) -> None:
        progress.report("attaching", self._done, self._total)
        by_event = self._fits_event(requests)
        if not (by_event or self._cookies) and len(variants_of(requests)) > 1:
            for _, group in groupby(sorted(requests, key=_number), key=_number):
                bisect_load(list(group), self._attach, _probe)
            return
        try:
            self._link(requests, by_event=by_event)
        except (SyscallError, NotSupported) as err:
            denied = isinstance(err, SyscallError) and err.errno in (errno.EPERM, errno.EACCES)
            if by_event and self._fewest > 1 and (denied or isinstance(err, NotSupported)):
                # --drop has given up the privilege, or the kernel is Linux 5.3 or older.
                self._fewest = 0
                self._attach(requests)
                return
            if denied:
                raise
            if len(requests) > 1 and not (isinstance(err, OSError) and err.errno == errno.ESRCH):
                for half in halves(requests):
                    bisect_load(half, self._attach, lambda request: request.point.probe)
                return
            points = tuple(request.point for request in requests)
            self._failures.append(AttachFailure(points, _explained(err, points[0])))

    def _program(
        self, requests: Sequence[AttachRequest], select: DispatchByPlace | None
    ) -> Program:
        variants = variants_of(requests)
        multi = self._method is UprobeMethod.UPROBE_MULTI
        filtered = multi and requests[0].point.pid != 0 and features.links_filter_processes()
        key = filtered, tuple(variant.number for variant in variants), select
        if key not in self._programs:
            table = None
            if select is not None or self._cookies:
                table = self._shared.table(variants)
            if table is not None and select is not None:
                table = select.rows_of(table)
            faultable = any(variant.faultable for variant in variants)
            sleepable = faultable and self._may_sleep and features.have_sleepable_uprobes()
            note = "sleepable " if sleepable else ""
            if faultable and not sleepable:
                note = "non-sleepable (memory not paged in will be unreadable) "
            kind = AttachType.TRACE_UPROBE_MULTI if multi else AttachType.NONE
            program = self._loader.load_for_uprobes(
                *(variants, kind),
                sleepable=sleepable,
                note=note,
                table=table,
                filtered=filtered,
                select=select,
            )
            self._programs[key] = program
        return self._programs[key]

    def _link(self, requests: Sequence[AttachRequest], *, by_event: bool) -> None:
        point = requests[0].point
        select = _by_place(requests) if by_event or _are_apart(requests) else None
        program = self._program(requests, select)
        # The kernel runs uprobes at one place in reverse order of their registration.
        sites = list(dict.fromkeys(_site(request) for request in requests))[::-1]
        on_return = requests[0].on_return
        what = plural(len(sites), "return" if on_return else "site")
        where = f"{what} of {point.path}" + (f" in {point.pid}" if point.pid else "")
        optimized = {
            one.point.offset for one in requests if one.point.fastest_offset > one.point.offset
        }
        fast = f", {len(optimized)} on a nop10, which this kernel optimizes" if optimized else ""
        if self._method is UprobeMethod.UPROBE_MULTI:
            link = attach_uprobe_multi(
                program, point.open_path, sites, pid=point.pid, on_return=on_return
            )
            self._loader.add_link(link)
            self._loader.attach_log.append(f"{where}: one uprobe_multi link{fast}")
            return
        if by_event:
            from usdt.tracefs.uprobe_event import attach_uprobe_event  # noqa: PLC0415 - old kernels

            event = attach_uprobe_event(program, point.open_path, sites, pid=point.pid)
            self._loader.add_link(event)
            self._loader.attach_log.append(f"{where}: one event of tracefs{fast}")
            return
        allow_descriptors(2 * len(sites))
        cookies = self._method is UprobeMethod.PERF_LINK
        with contextlib.ExitStack() as stack:  # on a failure, closes the links made so far
            made = [
                stack.enter_context(
                    attach_uprobe_perf(
                        program,
                        point.open_path,
                        site,
                        pid=point.pid,
                        on_return=on_return,
                        cookies=cookies,
                    )
                )
                for site in sites
            ]
            stack.pop_all()
        for link in made:
            self._loader.add_link(link)
        kind = "with links and cookies" if cookies else "without cookies"
        self._loader.attach_log.append(f"{where}: {plural(len(sites), 'perf event')} {kind}{fast}")


def _file(request: AttachRequest) -> tuple[str, int, bool, int]:
    # Sorts returns first, so that no entry is traced whose return would be missed.
    role = request.variant.call
    size = 0 if role is None else role.size
    return request.point.open_path, request.point.pid, not request.on_return, size


def _number(request: AttachRequest) -> int:
    return request.variant.number


def _probe(request: AttachRequest) -> str:
    return request.point.probe


def _site(request: AttachRequest) -> UprobeSite:
    point = request.point
    return UprobeSite(point.fastest_offset, point.ref_ctr_offset, request.variant.number)


def _can_define_uprobes() -> bool:
    from usdt.tracefs.uprobe_event import can_define_uprobes  # noqa: PLC0415 - for old kernels

    return can_define_uprobes()


def _apart(requests: list[AttachRequest]) -> list[list[AttachRequest]]:
    from usdt.engine.runtime.attach.places import apart  # noqa: PLC0415 - for several sites

    return apart(requests, _site)


def _by_place(requests: Sequence[AttachRequest]) -> DispatchByPlace:
    from usdt.engine.runtime.attach.places import DispatchByPlace  # noqa: PLC0415 - for several sites

    return DispatchByPlace.of(map(_site, requests))


def _are_apart(requests: Sequence[AttachRequest]) -> bool:
    # Whether the places of a few sites tell their variants apart, which takes no helper call, as
    # cookies do. At a return, the instruction pointer is that of the caller. What it is at an
    # optimized nop10 is up to kernels to come.
    few = 1 < len(requests) <= _FEW and len(variants_of(requests)) > 1
    if KERNEL_MACHINE != "x86_64" or not few or requests[0].on_return:
        return False
    nop10 = any(one.point.fastest_offset != one.point.offset for one in requests)
    return not nop10 and len(_apart([*requests])) == 1


def _parts(
    requests: list[AttachRequest], limit: int, shared: SharedCode
) -> Iterator[list[AttachRequest]]:
    # Splits requests so that no part has more than ``limit`` bodies of code.
    part: list[AttachRequest] = []
    bodies: set[int] = set()
    for request in requests:
        body = shared.body_of(request.variant)
        if body not in bodies and len(bodies) == limit:
            yield part
            part, bodies = [], set()
        bodies.add(body)
        part.append(request)
    if part:
        yield part


def _explained(err: TracingError, point: AttachPoint) -> TracingError:
    invalid = (
        "another tracer may have attached here with a semaphore, or no instruction begins here"
    )
    if point.ref_ctr_offset:
        invalid = (
            "another tracer may have attached here with a different semaphore, or none, as bcc's "
            "USDT class does: stop it and try again"
        )
    hints = {
        errno.EINVAL: invalid,
        errno.ESRCH: f"process {point.pid} has ended",
        ENOTSUPP: f"the kernel refuses probes on the instruction there, {_code_at(point)}",
    }
    return explain(err, f"{point.probe} in {point.path} at offset {point.offset:#x}", hints)


def _code_at(point: AttachPoint) -> str:
    # The bytes at an attach point, for a message; its instruction may end before the last one.
    try:
        with open(point.open_path, "rb") as file:  # noqa: PTH123
            file.seek(point.offset)
            return f"{file.read(10).hex(' ')} …"
    except OSError:
        return "whose bytes cannot be read"
