"""Attaching to kernel functions, each by the method of its target.

One program serves several functions if a cookie identifies the function. Programs at returns are
attached first, so that no entry is traced whose return would be missed. If attaching to a return
fails, its entry is not attached.
"""

from __future__ import annotations

import errno
import os
import time
from itertools import groupby
from typing import TYPE_CHECKING

from usdt.base.closeable import allow_descriptors
from usdt.base.errors import NotSupported, SyscallError, TracingError
from usdt.base.terminal import progress
from usdt.base.text import plural
from usdt.bpf import features
from usdt.bpf._uapi import ENOTSUPP, AttachType, ProgType
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
from usdt.engine.runtime.attach.requests import (
    MAX_VARIANTS,
    AttachFailure,
    bisect_load,
    chunks,
    explain,
    halves,
    variants_of,
)
from usdt.tracefs.kprobe_events import define_kprobe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.bpf.link import Link
    from usdt.bpf.program import Program
    from usdt.engine.runtime.attach.attach_points import AttachPoint
    from usdt.engine.runtime.attach.kprobe_session import EntryReturnPair
    from usdt.engine.runtime.attach.loader import ProgramLoader
    from usdt.engine.runtime.attach.requests import AttachRequest

__all__ = ("attach_kernel_functions",)

_MAX_INDEXED = 4096  # functions attached by one call, if one short program serves them all
_HINTS = {
    errno.EINVAL: "the kernel allows no probe there (notrace, or on its blacklist)",
    errno.ENOENT: "the kernel has no such symbol",
    errno.ESRCH: "the kernel has no such symbol, or not once",
    errno.EADDRNOTAVAIL: "several functions have this name",
    errno.EILSEQ: "no instruction begins there",
    errno.EBUSY: "something else holds the function's entry",
    errno.EOPNOTSUPP: "the kernel cannot probe this instruction",
}
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
    loader: ProgramLoader, requests: Sequence[AttachRequest]
) -> list[AttachFailure]:
    """Attach to kernel functions; return the failures.

    Raises:
        SyscallError: EPERM without CAP_BPF and CAP_PERFMON.
    """
    allow_descriptors(2 * len(requests))
    began = time.monotonic()
    failures = _FunctionAttacher(loader, len(requests)).attach(requests)
    number = len(requests) - len(failures)
    loader.attach_log.append(
        f"attaching {plural(number, 'function')} took {time.monotonic() - began:.2f} s"
    )
    return failures


def _target_of(request: AttachRequest) -> FunctionTarget:
    target = request.point.kernel_target
    if not isinstance(target, FunctionTarget):
        raise TypeError(f"no function: {target}")
    return target


def _uses_session(request: AttachRequest) -> bool:
    # Whether kprobe_multi attaches it and the kernel preserves the entry's stack pointer.
    match = request.point.call
    is_multi = _target_of(request).method is KprobeMethod.KPROBE_MULTI
    return is_multi and match is not None and match.kernel_keeps_sp


class _FunctionAttacher:
    # Groups the requests that can share a program, then loads and attaches each group.
    def __init__(self, loader: ProgramLoader, total: int) -> None:
        self.loader = loader
        self.total = total
        self.done = 0
        self.failed: set[int] = set()  # identities of attach points
        self.failures: list[AttachFailure] = []
        self.batch = KprobeBatch(loader, self._progress, self._fail)

    def attach(self, requests: Sequence[AttachRequest]) -> list[AttachFailure]:
        """Attach all requests; return the failures."""
        requests = self._attach_sessions(requests)
        times: dict[tuple[FunctionTarget, bool], int] = {}
        keyed = []
        for request in requests:
            target = _target_of(request)
            # A program attaches to a target once: a second request for it needs another program.
            attach_point = target, request.on_return
            times[attach_point] = times.get(attach_point, 0) + 1
            role = request.variant.call
            size = 0 if role is None else role.size
            key = not request.on_return, target.method, size, times[attach_point]
            shares = _cookie_tells_variant(target) or self._in_batch(target)
            alone = () if shares else (request.variant.number, *_identity(target))
            keyed.append(((*key, *alone), request))
        keyed.sort(key=lambda pair: pair[0])
        for _, group in groupby(keyed, key=lambda pair: pair[0]):
            together = [request for _, request in group]
            for part in chunks(together, self._max_together(together)):
                self._attach_part([one for one in part if id(one.point) not in self.failed])
        self.batch.attach()
        return self.failures

    def _attach_sessions(self, requests: Sequence[AttachRequest]) -> list[AttachRequest]:
        # Attaches returns together with their entries where kprobe sessions can. Returns the
        # remaining requests.
        pairs = pair_returns([request for request in requests if _uses_session(request)])
        times: dict[FunctionTarget, int] = {}
        groups: dict[tuple[int, int], list[EntryReturnPair]] = {}
        for pair in pairs:
            target = _target_of(pair.returned)
            times[target] = times.get(target, 0) + 1
            groups.setdefault((pair.size, times[target]), []).append(pair)
        for group in groups.values():
            for part in chunks(group, MAX_VARIANTS // 2):
                bisect_load(part, self._attach_session, lambda pair: pair.returned.point.probe)
        taken = {id(one) for pair in pairs for one in (pair.returned, pair.entry)} | self.failed
        return [one for one in requests if not {id(one), id(one.point)} & taken]

    def _attach_session(self, pairs: Sequence[EntryReturnPair]) -> None:
        both = [one for pair in pairs for one in (pair.entry, pair.returned) if one is not None]
        first = pairs[0].returned
        match = first.point.call
        if match is None or match.pointer is None:
            raise TypeError("a call without a stack pointer")
        try:
            program = self.loader.load(
                variants_of(both),
                ProgType.KPROBE,
                SessionDispatch(tuple(pairs), match.pointer),
                excluded=os.getpid(),
                attach_type=AttachType.TRACE_KPROBE_SESSION,
            )
            sites = [_site(pair.returned) for pair in pairs]
            self.loader.add_link(attach_kprobe_multi(program, sites, session=True))
        except (NotSupported, SyscallError) as err:
            if len(pairs) == 1:
                self._fail(first, err)
                return
            for half in halves(pairs):
                bisect_load(half, self._attach_session, lambda pair: pair.returned.point.probe)
        else:
            self._progress(len(both))
            self.loader.attach_log.append(
                f"{plural(len(pairs), 'pair')} of entry and return by a kprobe_multi link"
            )

    def _max_together(self, requests: list[AttachRequest]) -> int:
        # Returns the maximum number of requests for one program; larger if a short program serves
        # them.
        is_multi = _target_of(requests[0]).method is KprobeMethod.KPROBE_MULTI
        many = is_multi and len(requests) > MAX_VARIANTS
        indexed = many and self.loader.can_index([one.variant for one in requests])
        return _MAX_INDEXED if indexed else MAX_VARIANTS

    def _in_batch(self, target: FunctionTarget) -> bool:
        return target.method is KprobeMethod.KPROBE_EVENTS and self.total > MAX_DEFINITIONS

    def _attach_part(self, requests: Sequence[AttachRequest]) -> None:
        if requests:
            bisect_load(requests, self._attach, lambda request: request.point.probe)

    def _attach(self, requests: Sequence[AttachRequest]) -> None:
        target = _target_of(requests[0])
        if self._in_batch(target):
            self.batch.add(requests)
            return
        before = len(self.failed)
        match target.method:
            case KprobeMethod.FENTRY:
                self._attach_fentry(requests)
            case KprobeMethod.KPROBE_MULTI:
                if not self._attach_multi(requests):
                    return
            case _:
                self._attach_each(requests)
        number = len(requests) - (len(self.failed) - before)
        if target.method in (KprobeMethod.FENTRY, KprobeMethod.KPROBE_MULTI):
            self._progress(len(requests))
        if number:
            name = _NAMES[target.method][requests[0].on_return]
            self.loader.attach_log.append(f"{number} {name}")

    def _progress(self, more: int) -> None:
        self.done += more
        progress.report("attaching", self.done, self.total)
        if self.done >= self.total:
            progress.erase()

    def _fail(self, request: AttachRequest, err: TracingError) -> None:
        if isinstance(err, SyscallError) and err.errno == errno.EPERM:
            raise err
        self.failed.add(id(request.point))
        self.failures.append(AttachFailure((request.point,), _explained(err, request.point)))

    def _attach_fentry(self, requests: Sequence[AttachRequest]) -> None:
        for request in requests:
            target = _target_of(request)
            kind = AttachType.TRACE_FEXIT if request.on_return else AttachType.TRACE_FENTRY
            module = open_module_btf(target.module) if target.module else None
            try:
                program = self.loader.load(
                    [request.variant],
                    ProgType.TRACING,
                    excluded=os.getpid(),
                    attach_type=kind,
                    function=target.btf_id,
                    module=module.fileno() if module is not None else 0,
                )
                self.loader.add_link(attach_tracing(program))
            except (NotSupported, SyscallError) as err:
                self._fail(request, err)
            finally:
                if module is not None:
                    module.close()

    def _attach_multi(self, requests: Sequence[AttachRequest]) -> bool:
        # Returns False if the requests were split and attached as two halves, which count
        # themselves.
        cannot = "values of a function's entry at its return" if requests[0].variant.call else ""
        if any(_target_of(request).offset for request in requests):
            cannot = "an instruction within a function"
        if cannot:
            for request in requests:
                self._fail(request, NotSupported(f"kprobe_multi for {cannot}"))
            return True
        variants = variants_of(requests)
        kind, own = AttachType.TRACE_KPROBE_MULTI, os.getpid()
        program = None
        if len(variants) > 1:
            program = self.loader.load_indexed(variants, excluded=own, attach_type=kind)
        if program is None:
            program = self.loader.load(variants, ProgType.KPROBE, excluded=own, attach_type=kind)
        sites = [_site(request) for request in requests]
        try:
            link = attach_kprobe_multi(program, sites, on_return=requests[0].on_return)
        except (NotSupported, SyscallError) as err:
            if len(requests) == 1:
                self._fail(requests[0], err)
                return True
            for half in halves(requests):
                self._attach_part(half)
            return False
        self.loader.add_link(link)
        return True

    def _attach_each(self, requests: Sequence[AttachRequest]) -> None:
        program = self.loader.load(variants_of(requests), ProgType.KPROBE, excluded=os.getpid())
        for request in requests:
            try:
                link = self._link(program, request)
            except TracingError as err:
                self._fail(request, err)
            else:
                self.loader.add_link(link)
            self._progress(1)

    def _link(self, program: Program, request: AttachRequest) -> Link:
        method, site = _target_of(request).method, _site(request)
        cookies = method is not KprobeMethod.PERF_EVENT and features.have_cookies()
        if method is not KprobeMethod.KPROBE_EVENTS:
            return attach_kprobe(program, site, on_return=request.on_return, cookies=cookies)
        event = define_kprobe(_attach_point_text(site), on_return=request.on_return)
        try:
            cookie = site.cookie if cookies else None
            event.link = attach_tracepoint(program, event.number, cookie=cookie)
        except BaseException:
            event.close()
            raise
        return event


def _attach_point_text(site: KprobeSite) -> str:
    # Returns the location as definitions in tracefs write it.
    if site.address:
        return f"{site.address:#x}"
    return f"{site.symbol}+{site.offset}" if site.offset else site.symbol


def _cookie_tells_variant(target: FunctionTarget) -> bool:
    # Whether one program can serve several variants.
    if target.method is KprobeMethod.FENTRY or target.method is KprobeMethod.PERF_EVENT:
        return False
    return features.have_cookies()


def _identity(target: FunctionTarget) -> tuple[object, ...]:
    return (target.name, target.address) if target.method is KprobeMethod.FENTRY else ()


def _site(request: AttachRequest) -> KprobeSite:
    target = _target_of(request)
    return KprobeSite(target.address, target.symbol, target.offset, request.variant.number)


def _explained(err: TracingError, point: AttachPoint) -> TracingError:
    if isinstance(err, SyscallError) and err.errno == ENOTSUPP:  # unknown to libc
        hint = "this CPU's trampolines cannot carry its arguments"
        return TracingError(f"attach to {point.probe}: {hint}")
    return explain(err, point.probe, _HINTS)
