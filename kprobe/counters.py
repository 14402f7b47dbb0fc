"""Timers, counters and watched memory as probes: ``profile:99hz``, ``software:page-faults:100``.

``profile`` fires on every CPU, in the task that it interrupts; ``interval`` on one CPU, whatever
runs there. ``software`` and ``hardware`` fire after so many events of the kernel or the CPU. The
names and default counts are those of bpftrace, which are those of perf in part. ``watchpoint``
fires when memory is accessed: ``watchpoint:0x601040:8:w``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from usdt.base.durations import UNITS, nanoseconds
from usdt.base.errors import LanguageError
from usdt.base.text import closest
from usdt.bpf.perf.breakpoints import EXECUTE, READ, WRITE, Breakpoint
from usdt.bpf.perf.counters import HARDWARE, SOFTWARE, Counter
from usdt.engine.runtime.attach.attach_points import AttachPoint, BreakpointTarget, CounterTarget

if TYPE_CHECKING:
    from usdt.engine.language.tree import ProbeText

__all__ = ("COUNTERS", "COUNTER_KINDS", "attach_point")

COUNTER_KINDS = ("interval", "profile", "software", "hardware", "watchpoint")

# Event → its number in enum perf_sw_ids or perf_hw_id (include/uapi/linux/perf_event.h), and the
# count after which a probe fires if none is given.
_CLOCK = 0  # PERF_COUNT_SW_CPU_CLOCK
_SOFTWARE = {
    "cpu-clock": (_CLOCK, 1_000_000),
    "task-clock": (1, 1_000_000),
    "page-faults": (2, 100),
    "context-switches": (3, 1000),
    "cpu-migrations": (4, 1),
    "minor-faults": (5, 100),
    "major-faults": (6, 1),
    "alignment-faults": (7, 1),
    "emulation-faults": (8, 1),
    "dummy": (9, 1),
    "bpf-output": (10, 1),
}
_HARDWARE = {
    "cpu-cycles": (0, 1_000_000),
    "instructions": (1, 1_000_000),
    "cache-references": (2, 1_000_000),
    "cache-misses": (3, 1_000_000),
    "branch-instructions": (4, 100_000),
    "branch-misses": (5, 100_000),
    "bus-cycles": (6, 100_000),
    "frontend-stalls": (7, 1_000_000),
    "backend-stalls": (8, 1_000_000),
    "ref-cycles": (9, 1_000_000),
}
#: Kind → short names of events, and the events.
SHORT = {
    "software": {"cpu": "cpu-clock", "faults": "page-faults", "cs": "context-switches"},
    "hardware": {"cycles": "cpu-cycles", "branches": "branch-instructions"},
}

#: Kind → names of events.
COUNTERS = {"software": _SOFTWARE, "hardware": _HARDWARE}

_SECOND = 1_000_000_000
_MOST = (1 << 63) - 1
_LEAST = 10_000  # nanoseconds: the kernel makes shorter periods of the clock as long
_MODES = {"r": READ, "w": WRITE, "x": EXECUTE}
_ADDRESS = re.compile(r"0[xX][0-9a-fA-F]{1,16}|[0-9]{1,20}")
_RATE = re.compile(r"([0-9]{1,10})(hz)?")


def attach_point(request: ProbeText) -> AttachPoint:
    """Return the attach point of a probe of one of :data:`COUNTER_KINDS`.

    Raises:
        LanguageError: it is not written as one of its kind, or out of range.
    """
    name = f"{request.kind}:{request.pattern}"
    target: CounterTarget | BreakpointTarget
    if request.kind == "watchpoint":
        target = BreakpointTarget(name, _breakpoint(request))
    else:
        counter = _counter(request) if request.kind in COUNTERS else _timer(request)
        target = CounterTarget(name, counter, any_task=request.kind == "interval")
    return AttachPoint(name, "", "", 0, 0, (), kernel_target=target)


def _error(request: ProbeText, reason: str) -> LanguageError:
    column = request.text.find(request.pattern)
    return LanguageError(request.text, max(column, 0), reason)


def _timer(request: ProbeText) -> Counter:
    every = request.kind == "profile"
    unit, number = request.provider, request.name
    usage = f"expected {request.kind}:{'99hz' if every else '1s'}, or {request.kind}:UNIT:NUMBER"
    if not unit:
        rate = _RATE.fullmatch(number)
        if rate is not None and (rate[2] or every):
            return _clock(request, frequency=int(rate[1]), every=every)
        period = nanoseconds(number)
        if period is None:
            raise _error(request, f"found {number!r}, which is no rate and no duration: {usage}")
        return _clock(request, period=period, every=every)
    if not number.isdecimal() or not number.isascii() or unit not in ("hz", *UNITS):
        raise _error(request, f"{usage} (hz, s, ms, us)")
    if unit == "hz":
        return _clock(request, frequency=int(number), every=every)
    period = int(number) * UNITS[unit]
    # Programs of bpftrace write interval:us:1, and get what the kernel makes of it.
    return _clock(request, period=max(period, _LEAST) if period else 0, every=every)


def _clock(request: ProbeText, *, period: int = 0, frequency: int = 0, every: bool) -> Counter:
    if frequency:
        if frequency > _SECOND // _LEAST:
            raise _error(request, f"{frequency} a second is too often: at most {_SECOND // _LEAST}")
        if every:  # each CPU at its own pace, so that they do not all stop at once
            return Counter(SOFTWARE, _CLOCK, frequency=frequency)
        period = _SECOND // frequency
    if not _LEAST <= period <= _MOST:
        most = f"at most {_MOST // _SECOND}s"
        wanted = f"{_LEAST // 1000}us or more" if period < _LEAST else most
        raise _error(request, f"found a period of {period} ns: expected {wanted}")
    return Counter(SOFTWARE, _CLOCK, period, every_cpu=every)


def _counter(request: ProbeText) -> Counter:
    kind = request.kind
    event, count = request.provider or request.name, request.name if request.provider else ""
    event = SHORT[kind].get(event, event)
    known = COUNTERS[kind]
    if event not in known:
        near = closest(event, [*known, *SHORT[kind]])
        hint = f"did you mean {near}?" if near else f"there are {', '.join(known)}"
        raise _error(request, f"no {kind} event {event!r}; {hint}")
    number, period = known[event]
    if count:
        if not (count.isdecimal() and count.isascii() and 0 < int(count) <= _MOST):
            reason = f"found {count!r}: expected a count from 1 on, as in {kind}:{event}:{period}"
            raise _error(request, reason)
        period = int(count)
    return Counter(SOFTWARE if kind == "software" else HARDWARE, number, period)


def _breakpoint(request: ProbeText) -> Breakpoint:
    address, length, mode = request.path or "", request.provider, request.name
    usage = "expected watchpoint:ADDRESS:LENGTH:MODE, as in watchpoint:0x601040:8:w"
    if _ADDRESS.fullmatch(address) is None:
        found = "no address" if not address else f"{address!r}, which is no number"
        hint = "; arguments of functions cannot be watched" if "+" in address else ""
        raise _error(request, f"found {found}: {usage}{hint}")
    number = int(address, 16 if address[1:2] in ("x", "X") else 10)
    if not 0 < number < 1 << 64:
        raise _error(request, f"found {address}, which is no address of 64 bits: {usage}")
    if length not in ("1", "2", "4", "8"):
        raise _error(request, f"found a length of {length!r}: expected 1, 2, 4 or 8 bytes")
    if len(set(mode)) != len(mode) or not set(mode) <= set(_MODES):
        raise _error(request, f"found the mode {mode!r}: expected r, w, x or several of them")
    return Breakpoint(number, int(length), sum(_MODES[letter] for letter in mode))
