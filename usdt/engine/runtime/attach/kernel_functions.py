"""Attaching to functions of the kernel, each point by the way that its target names.

One program serves many functions where a cookie says which was hit. Programs on returns come
first, so that no entry is followed whose return would be missed; where a return is refused, its
entry is left out.
"""

from __future__ import annotations

import errno
import os
import time
from itertools import groupby, islice
from typing import TYPE_CHECKING

from usdt.base.closeable import allow_descriptors
from usdt.base.errors import NotSupported, SyscallError, TracingError, VerifierError
from usdt.bpf import features
from usdt.bpf._uapi import AttachType, ProgType
from usdt.bpf.asm.assembler import CodeTooLarge
from usdt.bpf.kprobes import (
    KprobeMethod,
    KprobeSite,
    attach_kprobe,
    attach_kprobe_multi,
    attach_tracing,
)
from usdt.bpf.link import attach_tracepoint
from usdt.bpf.objects import open_module_btf
from usdt.engine.runtime.attach.attach_points import FunctionTarget
from usdt.engine.runtime.attach.kprobe_batch import MAX_DEFINITIONS, KprobeBatch
from usdt.engine.runtime.attach.kprobe_session import SessionDispatch, pair_returns
from usdt.engine.runtime.attach.requests import AttachFailure, AttachRequest, program_too_large
from usdt.tracefs.kprobe_events import define_kprobe

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from usdt.bpf.link import Link
    from usdt.bpf.program import Program
    from usdt.engine.runtime.attach.attach_points import AttachPoint
    from usdt.engine.runtime.attach.kprobe_session import EntryReturnPair
    from usdt.engine.runtime.attach.loader import ProgramLoader

__all__ = ("attach_kernel_functions",)

_CASES = 256  # in one program
_ALIKE = 4096  # places that are attached by one call, if one short program serves them
_MANY = 256  # places whose progress is told
_ENOTSUPP = 524
_NAMES = {
    KprobeMethod.FENTRY: ("fentry", "fexit"),
    KprobeMethod.KPROBE_MULTI: (
        "functions by a kprobe_multi link",
        "returns by a kprobe_multi link",
    ),
    KprobeMethod.PERF_LINK: ("kprobes as perf events", "kretprobes as perf events"),
    KprobeMethod.PERF_EVENT: (
        "kprobes as perf events without cookies",
        "kretprobes as perf events without cookies",
    ),
    KprobeMethod.KPROBE_EVENTS: ("kprobe events of tracefs", "kretprobe events of tracefs"),
}


def attach_kernel_functions(
    loader: ProgramLoader, placed: Sequence[AttachRequest]
) -> list[AttachFailure]:
    """Attach points whose target is a function.

    Raises:
        SyscallError: EPERM without CAP_BPF and CAP_PERFMON.
    """
    allow_descriptors(2 * len(placed))
    began = time.monotonic()
    failures = _Functions(loader, len(placed)).all(placed)
    number = len(placed) - len(failures)
    loader.attach_log.append(f"attaching {number} places took {time.monotonic() - began:.2f} s")
    return failures


def _target_of(item: AttachRequest) -> FunctionTarget:
    target = item.point.kernel_target
    if not isinstance(target, FunctionTarget):
        raise TypeError(f"no function: {target}")
    return target


def _keeps(item: AttachRequest) -> bool:
    # Whether it goes by kprobe_multi, and the kernel keeps something of the call.
    call = item.point.call
    return (
        _target_of(item).way is KprobeMethod.KPROBE_MULTI
        and call is not None
        and call.kernel_keeps_sp
    )


class _Functions:
    def __init__(self, loader: ProgramLoader, total: int) -> None:
        self.loader = loader
        self.total = total
        self.done = 0
        self.failed: set[int] = set()  # identities of points
        self.failures: list[AttachFailure] = []
        self.many = KprobeBatch(loader, self._tell, self._fail)

    def all(self, placed: Sequence[AttachRequest]) -> list[AttachFailure]:
        """Attach them; what could not be attached."""
        placed = self._sessions(placed)
        times: dict[tuple[FunctionTarget, bool], int] = {}
        keyed = []
        for item in placed:
            # One program is attached to a place once: what is there again goes into another.
            place = _target_of(item), item.returns
            times[place] = times.get(place, 0) + 1
            size = 0 if item.case.call is None else item.case.call.size
            key = not item.returns, _target_of(item).way, size, times[place]
            shares = _shares(_target_of(item)) or self._are_many(_target_of(item))
            alone = () if shares else (item.case.number, *_itself(_target_of(item)))
            keyed.append(((*key, *alone), item))
        keyed.sort(key=lambda one: one[0])
        for _, group in groupby(keyed, key=lambda one: one[0]):
            items = [item for _, item in group]
            for part in _chunks(items, self._most(items)):
                self._part([item for item in part if id(item.point) not in self.failed])
        self.many.arm()
        return self.failures

    def _sessions(self, placed: Sequence[AttachRequest]) -> list[AttachRequest]:
        # Attach the returns by kprobe_multi that need to know of their entries; what is left.
        ends = pair_returns([item for item in placed if _keeps(item)])
        times: dict[FunctionTarget, int] = {}
        groups: dict[tuple[int, int], list[EntryReturnPair]] = {}
        for one in ends:
            target = _target_of(one.returned)
            times[target] = times.get(target, 0) + 1
            groups.setdefault((one.size, times[target]), []).append(one)
        for group in groups.values():
            for start in range(0, len(group), _CASES // 2):
                self._session(group[start : start + _CASES // 2])
        taken = {id(item) for one in ends for item in (one.returned, one.entry)} | self.failed
        return [item for item in placed if not {id(item), id(item.point)} & taken]

    def _session(self, ends: list[EntryReturnPair]) -> None:
        pairs = [(one.entry, one.returned) for one in ends]
        cases = [item.case for pair in pairs for item in pair if item is not None]
        first = ends[0].returned
        stack = first.point.call
        if stack is None or stack.pointer is None:
            raise TypeError("a call without a stack pointer")
        try:
            program = self.loader.load(
                list(dict.fromkeys(cases)),
                ProgType.KPROBE,
                SessionDispatch(tuple(ends), stack.pointer),
                excluded=os.getpid(),
                attach_type=AttachType.TRACE_KPROBE_SESSION,
            )
            sites = [_site(one.returned) for one in ends]
            self.loader.add_link(attach_kprobe_multi(program, sites, session=True))
        except (CodeTooLarge, NotSupported, SyscallError) as err:
            if len(ends) > 1:
                self._session(ends[: len(ends) // 2])
                self._session(ends[len(ends) // 2 :])
            elif isinstance(err, CodeTooLarge):
                raise program_too_large(first) from err
            else:
                self._fail(first, err)
        else:
            self._tell(len(cases))
            self.loader.attach_log.append(f"{len(ends)} entries and returns by a kprobe_multi link")

    def _most(self, placed: list[AttachRequest]) -> int:
        # How many go together: of those that one short program serves, more.
        many = len(placed) > _CASES and _target_of(placed[0]).way is KprobeMethod.KPROBE_MULTI
        alike = many and self.loader.can_index([item.case for item in placed])
        return _ALIKE if alike else _CASES

    def _are_many(self, target: FunctionTarget) -> bool:
        return target.way is KprobeMethod.KPROBE_EVENTS and self.total > MAX_DEFINITIONS

    def _part(self, placed: list[AttachRequest]) -> None:
        if not placed:
            return
        try:
            self._attach(placed)
        except CodeTooLarge as err:
            if len(placed) == 1:
                raise program_too_large(placed[0]) from err
            self._halves(placed)

    def _halves(self, placed: list[AttachRequest]) -> None:
        middle = len(placed) // 2
        self._part(placed[:middle])
        self._part(placed[middle:])

    def _attach(self, placed: list[AttachRequest]) -> None:
        way = _target_of(placed[0]).way
        if self._are_many(_target_of(placed[0])):
            self.many.add(placed)
            return
        before = len(self.failed)
        match way:
            case KprobeMethod.FENTRY:
                self._traced(placed)
            case KprobeMethod.KPROBE_MULTI:
                if not self._multi(placed):
                    return
            case _:
                self._each(placed)
        number = len(placed) - (len(self.failed) - before)
        if way in (KprobeMethod.FENTRY, KprobeMethod.KPROBE_MULTI):
            self._tell(len(placed))
        if number:
            self.loader.attach_log.append(f"{number} {_NAMES[way][placed[0].returns]}")

    def _tell(self, more: int) -> None:
        self.done += more
        if self.loader.progress is not None and self.total >= _MANY:
            self.loader.progress(self.done, self.total)

    def _fail(self, item: AttachRequest, err: TracingError) -> None:
        if isinstance(err, SyscallError) and err.errno == errno.EPERM:
            raise err
        self.failed.add(id(item.point))
        self.failures.append(AttachFailure((item.point,), _explained(err, item.point)))

    def _traced(self, placed: list[AttachRequest]) -> None:
        for item in placed:
            target = _target_of(item)
            module = open_module_btf(target.module) if target.module else None
            try:
                program = self.loader.load(
                    [item.case],
                    ProgType.TRACING,
                    excluded=os.getpid(),
                    attach_type=AttachType.TRACE_FEXIT if item.returns else AttachType.TRACE_FENTRY,
                    function=target.number,
                    module=module.fileno() if module is not None else 0,
                )
                self.loader.add_link(attach_tracing(program))
            except (NotSupported, SyscallError) as err:
                self._fail(item, err)
            finally:
                if module is not None:
                    module.close()

    def _multi(self, placed: list[AttachRequest]) -> bool:
        # Whether it was done; else it was done in halves.
        cannot = "values of a function's entry at its return" if placed[0].case.call else ""
        if any(_target_of(item).offset for item in placed):
            cannot = "an instruction within a function"
        if cannot:
            for item in placed:
                self._fail(item, NotSupported(f"{cannot}, by kprobe_multi"))
            return True
        cases = list(dict.fromkeys(item.case for item in placed))
        kind, own = AttachType.TRACE_KPROBE_MULTI, os.getpid()
        program = None
        if len(cases) > 1:
            program = self.loader.load_indexed(cases, excluded=own, attach_type=kind)
        if program is None:
            program = self.loader.load(cases, ProgType.KPROBE, excluded=own, attach_type=kind)
        sites = [_site(item) for item in placed]
        try:
            link = attach_kprobe_multi(program, sites, on_return=placed[0].returns)
        except (NotSupported, SyscallError) as err:
            if len(placed) > 1:
                self._halves(placed)
                return False
            self._fail(placed[0], err)
        else:
            self.loader.add_link(link)
        return True

    def _each(self, placed: list[AttachRequest]) -> None:
        cases = list(dict.fromkeys(item.case for item in placed))
        program = self.loader.load(cases, ProgType.KPROBE, excluded=os.getpid())
        for item in placed:
            try:
                link = self._link(program, item)
            except TracingError as err:
                self._fail(item, err)
            else:
                self.loader.add_link(link)
            self._tell(1)

    def _link(self, program: Program, item: AttachRequest) -> Link:
        way, site = _target_of(item).way, _site(item)
        cookies = way is not KprobeMethod.PERF_EVENT and features.have_cookies()
        if way is not KprobeMethod.KPROBE_EVENTS:
            return attach_kprobe(program, site, on_return=item.returns, cookies=cookies)
        event = define_kprobe(_target(site), on_return=item.returns)
        try:
            cookie = site.cookie if cookies else None
            event.link = attach_tracepoint(program, event.number, cookie=cookie)
        except BaseException:
            event.close()
            raise
        return event


def _target(site: KprobeSite) -> str:
    # As a definition names it.
    if site.address:
        return f"{site.address:#x}"
    return f"{site.symbol}+{site.offset}" if site.offset else site.symbol


def _shares(target: FunctionTarget) -> bool:
    # Whether a cookie tells its case, so that one program serves several.
    if target.way is KprobeMethod.FENTRY or target.way is KprobeMethod.PERF_EVENT:
        return False
    return features.have_cookies()


def _itself(target: FunctionTarget) -> tuple[object, ...]:
    return (target.name, target.address) if target.way is KprobeMethod.FENTRY else ()


def _site(item: AttachRequest) -> KprobeSite:
    target = _target_of(item)
    return KprobeSite(target.address, target.symbol, target.offset, item.case.number)


def _chunks(items: list[AttachRequest], most: int) -> Iterator[list[AttachRequest]]:
    ahead = iter(items)
    while part := list(islice(ahead, most)):
        yield part


def _explained(err: TracingError, point: AttachPoint) -> TracingError:
    if isinstance(err, VerifierError) or not isinstance(err, SyscallError):
        return TracingError(f"{point.probe}: {err}")
    number = err.errno or 0
    hints = {
        errno.EINVAL: "the kernel allows no probe there (notrace, or on its blacklist)",
        errno.ENOENT: "the kernel has no such symbol",
        errno.ESRCH: "the kernel has no such symbol, or not once",
        errno.EADDRNOTAVAIL: "several functions have this name",
        errno.EILSEQ: "no instruction begins there",
        errno.EBUSY: "something else holds the function's entry",
        errno.EOPNOTSUPP: "the kernel cannot probe this instruction",
        _ENOTSUPP: "this CPU's trampolines cannot carry its arguments",
    }
    call = f"attach to {point.probe}"
    if number == _ENOTSUPP:
        return TracingError(f"{call}: {hints[number]}")
    return SyscallError(number, call, hints.get(number, err.hint))
