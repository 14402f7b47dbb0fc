"""Timers and counters as probes: how they are written, and what they count."""

from __future__ import annotations

import pytest

from kprobe.counters import COUNTERS, attach_point
from kprobe.probe_names import probe_names
from usdt.base.errors import LanguageError
from usdt.bpf.perf.breakpoints import EXECUTE, READ, WRITE, Breakpoint
from usdt.bpf.perf.counters import HARDWARE, SOFTWARE, Counter
from usdt.engine.language import parse_probe
from usdt.engine.runtime.attach.attach_points import BreakpointTarget, CounterTarget


def target(text: str) -> CounterTarget:
    """What a probe attaches to."""
    found = attach_point(parse_probe(text)).kernel_target
    assert isinstance(found, CounterTarget)
    return found


@pytest.mark.parametrize(
    ("texts", "counter"),
    [
        ("profile:99hz profile:99 profile:hz:99", Counter(SOFTWARE, 0, frequency=99)),
        ("profile:10ms profile:ms:10", Counter(SOFTWARE, 0, 10_000_000)),
        ("interval:1s interval:s:1", Counter(SOFTWARE, 0, 10**9, every_cpu=False)),
        ("interval:hz:10 interval:10hz", Counter(SOFTWARE, 0, 10**8, every_cpu=False)),
        ("interval:us:10", Counter(SOFTWARE, 0, 10_000, every_cpu=False)),
        ("interval:2.5ms", Counter(SOFTWARE, 0, 2_500_000, every_cpu=False)),
        ("software:faults software:page-faults", Counter(SOFTWARE, 2, 100)),
        ("software:cs:7", Counter(SOFTWARE, 3, 7)),
        ("hardware:cycles hardware:cpu-cycles:1000000", Counter(HARDWARE, 0, 1_000_000)),
        ("hardware:cache-misses:10", Counter(HARDWARE, 3, 10)),
    ],
)
def test_every_spelling(texts: str, counter: Counter) -> None:
    for text in texts.split():
        assert target(text).counter == counter


def test_only_a_timer_fires_in_any_task() -> None:
    assert target("interval:1s").any_task
    assert not target("profile:99hz").any_task
    assert not target("software:faults").any_task


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("interval:1", "found '1', which is no rate and no duration: expected interval:1s"),
        ("interval:s:x", "expected interval:1s, or interval:UNIT:NUMBER (hz, s, ms, us)"),
        ("interval:days:1", "expected interval:1s, or interval:UNIT:NUMBER (hz, s, ms, us)"),
        ("profile:0hz", "found a period of 0 ns: expected 10us or more"),
        ("profile:9us", "found a period of 9000 ns: expected 10us or more"),
        ("profile:100001hz", "100001 a second is too often: at most 100000"),
        (
            "interval:s:99999999999",
            "found a period of 99999999999000000000 ns: expected at most 9223372036s",
        ),
        ("software:pagefaults", "no software event 'pagefaults'; did you mean page-faults?"),
        ("hardware:xyz", "no hardware event 'xyz'; there are cpu-cycles, instructions"),
        ("software:faults:0", "found '0': expected a count from 1 on, as in software:page-faults"),
        ("software:faults:x", "found 'x': expected a count from 1 on"),
    ],
)
def test_what_is_refused(text: str, reason: str) -> None:
    with pytest.raises(LanguageError) as caught:
        target(text)
    assert caught.value.reason.startswith(reason)
    assert caught.value.column == text.index(":") + 1


def test_events_are_completed() -> None:
    assert [*probe_names("software", "cpu-", (), ())] == ["cpu-clock", "cpu-migrations"]
    assert [*probe_names("hardware", "branch-m", (), ())] == ["branch-misses"]
    assert [*probe_names("profile", "", (), ())] == []
    assert set(COUNTERS) == {"software", "hardware"}


@pytest.mark.parametrize(
    ("text", "watched"),
    [
        ("watchpoint:0x601040:8:w", Breakpoint(0x601040, 8, WRITE)),
        ("watchpoint:4096:1:rw", Breakpoint(4096, 1, READ | WRITE)),
        ("watchpoint:0xffffffff81000000:8:x", Breakpoint(0xFFFFFFFF81000000, 8, EXECUTE)),
    ],
)
def test_watched_memory(text: str, watched: Breakpoint) -> None:
    found = attach_point(parse_probe(text)).kernel_target
    assert isinstance(found, BreakpointTarget)
    assert found.breakpoint == watched
    assert watched.in_kernel == (watched.address > 1 << 63)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("watchpoint:8:w", "found no address"),
        ("watchpoint:main+arg1:4:w", "found 'main\\+arg1', .* cannot be watched"),
        ("watchpoint:0:8:w", "no address of 64 bits"),
        ("watchpoint:0x10:3:w", "a length of '3'"),
        ("watchpoint:0x10:8:ww", "the mode 'ww'"),
        ("watchpoint:0x10:8:q", "the mode 'q'"),
    ],
)
def test_what_cannot_be_watched(text: str, reason: str) -> None:
    with pytest.raises(LanguageError, match=reason):
        attach_point(parse_probe(text))
