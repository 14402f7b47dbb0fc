"""Attaching uprobes: sites of files, by the newest attach method that the kernel has.

One program serves all variants of one attachment. If they do not fit one program (its jumps reach
32,767 instructions), several programs do. One link serves all sites of one file in one process.
This makes detaching fast: the kernel waits tens of milliseconds for each link.
"""

from __future__ import annotations

import contextlib
import errno
from itertools import groupby
from typing import TYPE_CHECKING

from usdt.base.closeable import allow_descriptors
from usdt.base.errors import NotSupported, SyscallError, TracingError
from usdt.base.terminal import progress
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
    from usdt.engine.compiler.codegen.model import ProgramVariant
    from usdt.engine.runtime.attach.attach_points import AttachPoint
    from usdt.engine.runtime.attach.loader import ProgramLoader

__all__ = ("UprobeAttacher",)


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
        self._failures: list[AttachFailure] = []
        self._done = self._total = 0  # of the requests
        # By whether their links select the process, and the numbers of their variants.
        self._programs: dict[tuple[bool, tuple[int, ...]], Program] = {}
        self._shared = SharedCode(())  # of one file

    def attach(self, requests: Sequence[AttachRequest]) -> list[AttachFailure]:
        """Attach to every site; return the failures."""
        if self._method is None:
            self._method = features.best_uprobe_method()
        # Without cookies, a program cannot identify the site: each variant has its own program.
        limit = 1 if self._method is UprobeMethod.PERF_EVENT else MAX_VARIANTS
        ordered = sorted(requests, key=_file if limit > 1 else _file_and_variant)
        self._failures = []
        self._done, self._total = 0, len(requests)
        for _, group in groupby(ordered, key=_file):
            in_file = list(group)
            self._shared = self._loader.shared_code(variants_of(in_file) if limit > 1 else ())
            for part in _parts(in_file, limit, self._shared):
                bisect_load(part, self._attach, lambda request: request.point.probe)
                self._done += len(part)
        progress.erase()
        return self._failures

    def _attach(self, requests: Sequence[AttachRequest]) -> None:
        progress.report("attaching", self._done, self._total)
        program = self._program(variants_of(requests), requests[0].point.pid)
        try:
            self._link(program, requests)
        except (SyscallError, NotSupported) as err:
            if isinstance(err, SyscallError) and err.errno in (errno.EPERM, errno.EACCES):
                raise
            if len(requests) > 1 and not (isinstance(err, OSError) and err.errno == errno.ESRCH):
                for half in halves(requests):
                    bisect_load(half, self._attach, lambda request: request.point.probe)
                return
            points = tuple(request.point for request in requests)
            self._failures.append(AttachFailure(points, _explained(err, points[0])))

    def _program(self, variants: Sequence[ProgramVariant], pid: int) -> Program:
        multi = self._method is UprobeMethod.UPROBE_MULTI
        filtered = multi and pid != 0 and features.links_filter_processes()
        key = filtered, tuple(variant.number for variant in variants)
        if key not in self._programs:
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
                table=self._shared.table(variants),
                filtered=filtered,
            )
            self._programs[key] = program
        return self._programs[key]

    def _link(self, program: Program, requests: Sequence[AttachRequest]) -> None:
        point = requests[0].point
        # The kernel runs uprobes at one place in reverse order of their registration.
        sites = list(dict.fromkeys(_site(request) for request in requests))[::-1]
        on_return = requests[0].on_return
        what = f"{len(sites)} {'returns' if on_return else 'sites'}"
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
        self._loader.attach_log.append(f"{where}: {len(sites)} perf events {kind}{fast}")


def _file(request: AttachRequest) -> tuple[str, int, bool, int]:
    # Sorts returns first, so that no entry is traced whose return would be missed.
    role = request.variant.call
    size = 0 if role is None else role.size
    return request.point.open_path, request.point.pid, not request.on_return, size


def _file_and_variant(request: AttachRequest) -> tuple[str, int, bool, int, int]:
    return *_file(request), request.variant.number


def _site(request: AttachRequest) -> UprobeSite:
    point = request.point
    return UprobeSite(point.fastest_offset, point.ref_ctr_offset, request.variant.number)


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
