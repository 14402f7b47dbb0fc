"""Attaching uprobes: sites of files, the newest way the kernel has.

One program serves all cases of one attachment; where they do not fit one program (its jumps
reach 32,767 instructions), several do. One link serves all sites of one file in one process,
which matters when it is closed: the kernel waits tens of milliseconds for each link.
"""

from __future__ import annotations

import contextlib
import errno
from itertools import groupby
from typing import TYPE_CHECKING

from usdt.base.closeable import allow_descriptors
from usdt.base.errors import NotSupported, SyscallError, TracingError
from usdt.bpf import features
from usdt.bpf._uapi import AttachType
from usdt.bpf.asm.assembler import CodeTooLarge
from usdt.bpf.link import (
    UprobeMethod,
    UprobeSite,
    attach_uprobe_ioctl,
    attach_uprobe_multi,
    attach_uprobe_perf,
)
from usdt.engine.runtime.attach.requests import AttachFailure, program_too_large

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from usdt.bpf.program import Program
    from usdt.engine.compiler.codegen.model import ProgramVariant
    from usdt.engine.runtime.attach.attach_points import AttachPoint
    from usdt.engine.runtime.attach.loader import ProgramLoader
    from usdt.engine.runtime.attach.requests import AttachRequest

__all__ = ("UprobeAttacher",)

_CASES = 256  # in one program at most: the verifier's work grows with each


class UprobeAttacher:
    """Attaches to sites of files.

    Args:
        loader: whose programs and links these are.
        via: how to attach; None asks the kernel for its newest way.
        may_sleep: whether programs may take page faults, where the kernel lets them.
    """

    def __init__(self, loader: ProgramLoader, via: UprobeMethod | None, *, may_sleep: bool) -> None:
        self._loader = loader
        self._via = via
        self._may_sleep = may_sleep
        self._programs: dict[tuple[ProgramVariant, ...], Program] = {}

    def attach(self, placed: Sequence[AttachRequest]) -> list[AttachFailure]:
        """Attach every point; what fails is reported and does not keep the rest from it."""
        if self._via is None:
            self._via = features.best_uprobe_method()
        # Without cookies a program cannot know which site was hit: each case has its own.
        limit = 1 if self._via is UprobeMethod.PERF_EVENT else _CASES
        ordered = sorted(placed, key=_file if limit > 1 else _case)
        failures: list[AttachFailure] = []
        for _, group in groupby(ordered, key=_file):
            for part in _parts(list(group), limit):
                failures += self._attach_part(part)
        return failures

    def _attach_part(self, placed: list[AttachRequest]) -> list[AttachFailure]:
        cases = tuple(dict.fromkeys(item.case for item in placed))
        try:
            program = self._program(cases)
        except CodeTooLarge as err:
            if len(placed) == 1:
                raise program_too_large(placed[0]) from err
            return self._halves(placed)
        try:
            self._link(program, placed)
        except (SyscallError, NotSupported) as err:
            if isinstance(err, SyscallError) and err.errno in (errno.EPERM, errno.EACCES):
                raise
            if len(placed) > 1 and not (isinstance(err, OSError) and err.errno == errno.ESRCH):
                return self._halves(placed)
            return [
                AttachFailure(
                    tuple(item.point for item in placed), _explained(err, placed[0].point)
                )
            ]
        return []

    def _halves(self, placed: list[AttachRequest]) -> list[AttachFailure]:
        middle = len(placed) // 2
        return self._attach_part(placed[:middle]) + self._attach_part(placed[middle:])

    def _program(self, cases: tuple[ProgramVariant, ...]) -> Program:
        if cases not in self._programs:
            faultable = any(case.plan.faultable for case in cases)
            sleepable = faultable and self._may_sleep and features.have_sleepable_uprobes()
            note = "sleepable " if sleepable else ""
            if faultable and not sleepable:
                note = "non-sleepable (memory not paged in will be unreadable) "
            multi = self._via is UprobeMethod.UPROBE_MULTI
            kind = AttachType.TRACE_UPROBE_MULTI if multi else AttachType.NONE
            program = self._loader.load_for_uprobes(cases, kind, sleepable=sleepable, note=note)
            self._programs[cases] = program
        return self._programs[cases]

    def _link(self, program: Program, placed: list[AttachRequest]) -> None:
        point = placed[0].point
        sites = list(dict.fromkeys(_site(item) for item in placed))
        on_return = placed[0].returns
        what = f"{len(sites)} {'returns' if on_return else 'sites'}"
        where = f"{what} of {point.path}" + (f" in {point.pid}" if point.pid else "")
        if self._via is UprobeMethod.UPROBE_MULTI:
            link = attach_uprobe_multi(
                program, point.open_path, sites, pid=point.pid, on_return=on_return
            )
            self._loader.add_link(link)
            self._loader.attach_log.append(f"{where}: one uprobe_multi link")
            return
        allow_descriptors(2 * len(sites))
        attach = attach_uprobe_perf if self._via is UprobeMethod.PERF_LINK else attach_uprobe_ioctl
        with contextlib.ExitStack() as stack:  # closes what was made, if one fails
            made = [
                stack.enter_context(
                    attach(program, point.open_path, site, pid=point.pid, on_return=on_return)
                )
                for site in sites
            ]
            stack.pop_all()
        for link in made:
            self._loader.add_link(link)
        kind = (
            "with links and cookies" if self._via is UprobeMethod.PERF_LINK else "without cookies"
        )
        self._loader.attach_log.append(f"{where}: {len(sites)} perf events {kind}")


def _file(item: AttachRequest) -> tuple[str, int, bool, int]:
    # Returns first: so no entry is followed whose return would be missed.
    frame = 0 if item.case.call is None else item.case.call.size
    return item.point.open_path, item.point.pid, not item.returns, frame


def _case(item: AttachRequest) -> tuple[str, int, bool, int, int]:
    return *_file(item), item.case.number


def _site(item: AttachRequest) -> UprobeSite:
    return UprobeSite(item.point.offset, item.point.ref_ctr_offset, item.case.number)


def _parts(placed: list[AttachRequest], limit: int) -> Iterator[list[AttachRequest]]:
    # Split so that no part has more cases than one program should.
    part: list[AttachRequest] = []
    cases: set[int] = set()
    for item in placed:
        if item.case.number not in cases and len(cases) == limit:
            yield part
            part, cases = [], set()
        cases.add(item.case.number)
        part.append(item)
    if part:
        yield part


def _explained(err: TracingError, point: AttachPoint) -> TracingError:
    where = f"{point.probe} in {point.path} at offset {point.offset:#x}"
    if not isinstance(err, SyscallError):
        return TracingError(f"{where}: {err}")
    number = err.errno or 0
    if number == errno.EINVAL and point.ref_ctr_offset:
        hint = (
            "another tracer may hold this place with a different semaphore, or none, as bcc's "
            "USDT class does: stop it and try again"
        )
    elif number == errno.EINVAL:
        hint = "another tracer may hold this place with a semaphore, or it is no instruction"
    elif number == errno.ESRCH:
        hint = f"process {point.pid} has ended"
    else:
        hint = err.hint
    return SyscallError(number, f"attach to {where}", hint)
