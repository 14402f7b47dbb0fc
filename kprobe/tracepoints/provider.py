"""Attach probes on tracepoints, raw tracepoints and system calls to a session."""

from __future__ import annotations

import fnmatch
import functools
from typing import TYPE_CHECKING

from usdt.base.errors import LanguageError, ProbeNotFound, TracingError
from usdt.base.frozen import replace
from usdt.engine.language.needs_types import untyped_names
from usdt.engine.language.tree import BUILTINS, RESULT_OF_BPFTRACE, names_in
from usdt.engine.run.protocols import AttachResult
from usdt.engine.runtime.attach.attach_points import (
    AttachPoint,
    EventTarget,
    KernelTarget,
    RawTracepointTarget,
    SyscallTarget,
)
from usdt.tracefs.definitions import EVENT_FILES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from kprobe.functions.kernel_types import KernelTypes
    from kprobe.tracepoints.catalog import Event
    from usdt.engine.compiler.arguments import Argument
    from usdt.engine.compiler.entry_return import EntryReturnMatch
    from usdt.engine.language.tree import Item, ProbeText
    from usdt.engine.runtime.session import BpfSession

__all__ = ("attach",)

_MANY = 256  # show fields by default up to this many events: each takes 50 ms to detach


def attach(
    session: BpfSession,
    requests: Sequence[ProbeText],
    keys: Sequence[Item] = (),
    *,
    counts: bool,
    calls: bool = False,
    missing: Callable[[ProbeText, ProbeNotFound], object] | None = None,
) -> AttachResult:
    """Attach probes.

    Args:
        session: the session.
        requests: probes of the kinds ``tracepoint``, ``rawtp`` and ``syscall``.
        keys: items of ``--by`` and ``--key``.
        counts: True if a probe without items shows no fields, as when hits are counted.
        calls: True if items of system calls are taken at their entry and their return.
        missing: takes a probe that does not exist, and the error; None: the error is raised.

    Raises:
        ProbeNotFound: there is no such probe.
        TracingError: none of a probe's attach points could be attached.
    """
    notices: list[str] = []
    there: list[ProbeText] = []
    found: list[list[AttachPoint]] = []
    for request in requests:
        try:
            found.append(
                _whole_calls(request)
                if calls and request.kind == "syscall"
                else _points(
                    request, keys, counts=counts, by_tracefs=session.by_tracefs, notices=notices
                )
            )
        except ProbeNotFound as err:
            if missing is None:
                raise
            missing(request, err)
        else:
            there.append(request)
    total = 0
    for request, points in zip(there, _in_one_way(found), strict=True):
        total += _attach(session, request, points, keys, notices)
    return AttachResult(total, tuple(notices))


def _attach(
    session: BpfSession,
    request: ProbeText,
    points: list[AttachPoint],
    keys: Sequence[Item],
    notices: list[str],
) -> int:
    # Returns the number of attached points.
    if not points:
        raise ProbeNotFound(f"{request.pattern}: nothing that could be attached")
    if request.kind == "syscall":
        _check_words(session.pids)
    points = _with_variables(points, [*request.items, *keys])
    points = _fitting(session, request, points, [*keys])
    failures = session.attach(request, points)
    failed = sum(len(failure.points) for failure in failures)
    if failures and failed == len(points):
        raise failures[0].error
    notices += [f"not attached: {failure.error}" for failure in failures]
    return len(points) - failed


def _in_one_way(found: list[list[AttachPoint]]) -> list[list[AttachPoint]]:
    # The kernel runs programs on an event's record and those on its tracepoint alone in an order of
    # its own. Where one probe needs the record, the others of this event take it, too: they fire in
    # the order in which they were given.
    records = {
        point.probe: point.kernel_target
        for points in found
        for point in points
        if isinstance(point.kernel_target, EventTarget)
    }
    return [
        [
            replace(point, kernel_target=records.get(point.probe, point.kernel_target))
            for point in points
        ]
        for points in found
    ]


def _with_variables(points: list[AttachPoint], items: Sequence[Item]) -> list[AttachPoint]:
    if not untyped_names(items):
        return points
    from kprobe.functions.variables import with_variables  # noqa: PLC0415 - only for names

    return with_variables(points, items)


def _fitting(
    session: BpfSession, request: ProbeText, points: list[AttachPoint], keys: Sequence[Item]
) -> list[AttachPoint]:
    # Drop attach points of a pattern that lack the names in items. Keep a single point: attaching
    # it reports the error.
    if len(points) == 1 or not (request.items or keys):
        return points
    misfits = [session.check_items(request, point) for point in points]
    fitting = [point for point, why in zip(points, misfits, strict=True) if why is None]
    if not fitting and misfits[0] is not None:
        raise misfits[0]
    return fitting


def _names(items: Iterable[Item]) -> Iterator[str]:
    for item in items:
        yield from names_in(item.expression)


def _points(
    request: ProbeText,
    keys: Sequence[Item],
    *,
    counts: bool,
    by_tracefs: bool,
    notices: list[str],
) -> list[AttachPoint]:
    names = {*_names(request.items), *_names(keys)}
    if request.kind == "syscall":
        return _syscalls(request, returns="return" in names, timed="duration" in names)
    if "return" in names and RESULT_OF_BPFTRACE not in names:
        raise LanguageError(
            request.text, 0, f"a {request.kind} has no return value; a syscall: has"
        )
    if request.kind == "rawtp":
        return _raw(request)
    values = any(not item.is_predicate for item in request.items)
    shown = by_tracefs or not (counts or values)
    return _events(request, names, shown=shown, by_tracefs=by_tracefs, notices=notices)


def _syscalls(request: ProbeText, *, returns: bool, timed: bool) -> list[AttachPoint]:
    from kprobe.tracepoints import syscalls  # noqa: PLC0415 - only for them

    returns = returns or timed
    calls = syscalls.matching(request.name)
    if returns and len(calls) == 1 and syscalls.never_returns(calls[0]):
        raise TracingError(f"syscall:{calls[0].name} does not return")
    return [
        _point(
            f"syscall:{call.name}",
            syscalls.arguments_of(call, returns=returns),
            SyscallTarget(call.number, returns),
            syscalls.call_stack(call, timed=timed) if returns else None,
        )
        for call in calls
        if not (returns and syscalls.never_returns(call))
    ]


def _whole_calls(request: ProbeText) -> list[AttachPoint]:
    # Calls whose items are taken at both ends, as those of functions.
    from kprobe.tracepoints import syscalls  # noqa: PLC0415 - only for them

    return [
        _point(
            f"syscall:{call.name}",
            syscalls.arguments_of(call, returns=True, kept=True),
            SyscallTarget(call.number, returns=True),
            syscalls.KEPT_CALL,
        )
        for call in syscalls.matching(request.name)
        if not syscalls.never_returns(call)
    ]


def _check_words(pids: Sequence[int]) -> None:
    from kprobe.tracepoints.syscalls import narrow_program  # noqa: PLC0415 - only for them

    narrow = [pid for pid in pids if narrow_program(pid)]
    if narrow and len(narrow) == len(pids):
        raise TracingError(
            f"process {narrow[0]} runs a program of 32 bits: on a 64-bit kernel the system calls "
            "of those have other numbers, and are not traced"
        )


def _raw(request: ProbeText) -> list[AttachPoint]:
    from kprobe.tracepoints import raw  # noqa: PLC0415 - only for them

    module = request.provider
    if module and not fnmatch.fnmatchcase("vmlinux", module):
        raise ProbeNotFound(
            f"no raw tracepoint {module}:{request.name}: only those of vmlinux are known"
        )
    return [
        _point(f"rawtp:{name}", raw.arguments_of(name), RawTracepointTarget(name))
        for name in raw.matching(request.name)
    ]


def _events(
    request: ProbeText,
    names: AbstractSet[str],
    *,
    shown: bool,
    by_tracefs: bool,
    notices: list[str],
) -> list[AttachPoint]:
    from kprobe.tracepoints.catalog import matching  # noqa: PLC0415 - only for them

    found = matching(request.provider, request.name)
    if found[0].file and not by_tracefs:
        raise TracingError(
            f"tracepoint:{found[0].full_name}: somebody defined this event; only trace reads it "
            "(attach() in Python). Probe what it probes: kprobe event list"
        )
    needed = bool(names - BUILTINS)
    if shown and not (needed or by_tracefs) and len(found) > _MANY:
        notices.append(
            f"{request.pattern}: {len(found)} tracepoints, shown without their fields, as they are "
            f"more than {_MANY}"
        )
        shown = False
    # A field hides the built-in of the same name, unless a pattern matches several tracepoints.
    hidden = names & BUILTINS if len(found) > 1 else set()
    points = [_event(event, names - hidden, hidden, shown=shown) for event in found]
    slow = sum(isinstance(point.kernel_target, EventTarget) for point in points)
    if slow > _MANY and not by_tracefs:
        notices.append(f"detaching {slow} tracepoints takes about {slow // 20} s")
    return points


def _event(
    event: Event,
    names: AbstractSet[str] = frozenset(),
    hidden: AbstractSet[str] = frozenset(),
    *,
    shown: bool,
) -> AttachPoint:
    from kprobe.tracepoints.catalog import format_of, record_size  # noqa: PLC0415
    from kprobe.tracepoints.fields import arguments_of  # noqa: PLC0415

    name = f"tracepoint:{event.full_name}"
    form = format_of(event)
    target = EventTarget(event.full_name, form.number, record_size(form))
    if not (shown or names - BUILTINS or names & {field.name for field in form.own}):
        return _point(name, (), _quick(event, target))
    arguments = arguments_of(form, in_kernel=event.file != EVENT_FILES["user"])
    return _point(name, tuple(one for one in arguments if one.name not in hidden), target)


def _quick(event: Event, target: EventTarget) -> KernelTarget:
    # The cheapest attach point if no field is needed.
    if event.category != "syscalls":
        return RawTracepointTarget(event.name, target)
    from kprobe.tracepoints.syscalls import by_event  # noqa: PLC0415 - only for them

    call = by_event(event)
    return SyscallTarget(call[0].number, call[1]) if call is not None else target


def _point(
    name: str,
    arguments: tuple[Argument, ...],
    target: KernelTarget,
    call: EntryReturnMatch | None = None,
) -> AttachPoint:
    return AttachPoint(
        name, "", "", 0, 0, arguments, call=call, kernel_target=target, types=_types()
    )


@functools.cache
def _types() -> KernelTypes:
    # Read the kernel's BTF only once.
    from kprobe.functions.kernel_types import KernelTypes  # noqa: PLC0415 - BTF, only if needed
    from usdt.btf.reader import Btf  # noqa: PLC0415

    return KernelTypes(Btf.from_kernel)
