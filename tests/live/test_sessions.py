"""usdt.Session: aggregations as mappings, callbacks, and the end of it all."""

from __future__ import annotations

import functools
import gc
import os
import threading
from typing import TYPE_CHECKING

import pytest
from fixtures import build, start

import usdt

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def shop(providers: None) -> Iterator[usdt.Provider]:
    provider = usdt.Provider("kept")
    provider.probe("order", int, str)
    provider.probe("begin", int)
    provider.probe("end", int)
    with provider:
        yield provider


@pytest.fixture
def session(shop: usdt.Provider) -> Iterator[usdt.Session]:
    with usdt.Session(pid=os.getpid(), library_timeout=0) as made:
        yield made


def test_counts_are_a_mapping(shop: usdt.Provider, session: usdt.Session) -> None:
    order, *_ = shop.probes
    plain = session.count("kept:order")
    by_name = session.count("kept:order(arg0 > 0)", by="str(arg1)")
    by_two = session.count("kept:order", by="str(arg1), arg0 % 2")
    for number in range(10):
        order.fire(number, "even" if number % 2 == 0 else "odd")
    assert plain == {"kept:order": 10}
    assert by_name == {"even": 4, "odd": 5}
    assert by_name["odd"] == 5
    assert by_two == {("even", 0): 5, ("odd", 1): 5}
    assert plain.lost == 0
    session.close()
    order.fire(1, "odd")
    assert by_name == {"even": 4, "odd": 5}
    assert len(plain) == 1


def test_statistics_and_histograms(shop: usdt.Provider, session: usdt.Session) -> None:
    order, *_ = shop.probes
    stats = session.stats("kept:order(arg0)", by="str(arg1)")
    hist = session.hist("kept:order(arg0)")
    linear = session.hist("kept:order(arg0)", linear="0:10:5")
    fine = session.hist("kept:order(arg0 * 100)", resolution=1)
    for number in (0, 1, 3, 7, 12):
        order.fire(number, "x")
    value = stats["x"]
    assert (value.count, value.sum, value.min, value.max) == (5, 23, 0, 12)
    assert hist["kept:order"] == {(0, 1): 1, (1, 2): 1, (2, 4): 1, (4, 8): 1, (8, 16): 1}
    assert linear["kept:order"] == {(0, 5): 3, (5, 10): 1, (10, None): 1}
    assert hist["kept:order"].count == 5
    assert [value.percentile(percent) for percent in (0, 50, 99)] == [0, 3, 12]
    assert (value.error, hist["kept:order"].percentile(50)) == (1 / 64, 3)
    assert fine["kept:order"].error == 1 / 4
    assert [*fine["kept:order"]] == [(0, 1), (96, 128), (256, 384), (512, 768), (1024, 1536)]
    with pytest.raises(ValueError, match="expected 0 to 12"):
        session.stats("kept:order(arg0)", resolution=13)


def test_times_between_probes(shop: usdt.Provider, session: usdt.Session) -> None:
    _, begin, end = shop.probes
    times = session.latency("kept:begin", "kept:end", key="arg0")
    fine = session.latency("kept:begin", "kept:end", key="arg0", hist=True, resolution=9)
    parity = session.latency("kept:begin", "kept:end", by="arg0 % 2 + 7", at_start=True)
    for number in range(5):
        begin.fire(number)
    for number in reversed(range(5)):
        end.fire(number)
    (value,) = times.values()
    assert value.count == 5
    assert 0 < value.min <= value.average <= value.max
    assert value.min <= value.percentile(50) <= value.percentile(100) == value.max
    (histogram,) = fine.values()
    counts = {key: found.count for key, found in parity.items()}
    assert counts == {("kept:end", 7): 3, ("kept:end", 8): 2}
    assert histogram.count == 5
    assert histogram.error == 2**-10
    assert all((high - low) * 512 <= max(low, 1024) for low, high in histogram)


def test_callbacks_and_patterns(shop: usdt.Provider, session: usdt.Session) -> None:
    order, begin, end = shop.probes
    seen: list[tuple[int, str]] = []
    session.on("kept:order(arg0, str(arg1))", lambda event: seen.append((*event.args.values(),)))
    counts = session.count("kept:*")
    order.fire(1, "a")
    begin.fire(1)
    end.fire(1)
    order.fire(2, "b")
    session.run(0.3)
    assert seen == [(1, "a"), (2, "b")]
    assert counts == {"kept:order": 2, "kept:begin": 1, "kept:end": 1}


def test_callbacks_of_all_probes_are_one_stream_in_the_order_of_hits(
    shop: usdt.Provider, session: usdt.Session
) -> None:
    order, begin, end = shop.probes
    seen: list[tuple[str, int]] = []
    for probe in ("kept:order(arg0)", "kept:begin(arg0)", "syscall:getppid", "kept:end(arg0)"):
        session.on(probe, lambda event: seen.append((event.probe, event.time)))
    for number in range(100):
        begin.fire(number)
        os.getppid()
        order.fire(number, "x")
        end.fire(number)
    session.run(0.3)
    assert [name for name, _ in seen] == [
        "kept:begin",
        "syscall:getppid",
        "kept:order",
        "kept:end",
    ] * 100
    times = [time for _, time in seen]
    assert times == sorted(times)


def test_each_callback_gets_the_events_of_its_own_probe(
    shop: usdt.Provider, session: usdt.Session
) -> None:
    order, *_ = shop.probes
    seen: list[tuple[str, dict[str, object]]] = []
    session.on("kept:order(arg0)", lambda event: seen.append(("one", event.args)))
    session.on("kept:order(arg0)", lambda event: seen.append(("two", event.args)))
    session.on("kept:order(str(arg1), arg0 > 1)", lambda event: seen.append(("three", event.args)))
    with pytest.raises(usdt.LanguageError, match="arg9 was asked for"):
        session.on("kept:order(arg9)", lambda event: seen.append(("wrong", event.args)))
    order.fire(1, "a")
    order.fire(2, "b")
    session.run(0.3)
    # The kernel decides which of the probes at one place fires first.
    assert sorted(seen[:2]) == [("one", {"arg0": 1}), ("two", {"arg0": 1})]
    assert sorted(seen[2:]) == [
        ("one", {"arg0": 2}),
        ("three", {"str(arg1)": "b"}),
        ("two", {"arg0": 2}),
    ]


@pytest.mark.parametrize("follow", [False, True], ids=["one process", "with children"])
def test_callbacks_find_libraries_that_are_opened_before_and_after_them(*, follow: bool) -> None:
    seen: list[str] = []
    with (
        start(build("default", "dlopened"), "-w", "-n", 1) as fixture,
        usdt.Session(pid=fixture.wait_ready().pid, follow=follow) as session,
    ):
        listen = lambda event: seen.append(event.probe)  # noqa: E731
        session.on("dlopened:before", listen)
        session.on("plugin:counter", listen)  # opened later
        fixture.send("open")
        fixture.wait_line("opened")
        session.run(0.3)
        session.on("plugin:hit", listen)  # opened by now
        fixture.fire()
        expected = [hit["probe"] for hit in fixture.hits]
        session.run(0.3)
    assert len(set(expected)) == 3
    assert seen == expected


def test_a_probe_that_is_missing_is_said_beside_those_that_were_found(
    session: usdt.Session,
) -> None:
    session.on("kept:order", lambda event: None)
    session.on("kept:none_of_these", lambda event: None)  # it may come with a library
    with pytest.raises(usdt.ProbeNotFound, match="no probe kept:none_of_these"):
        session.run(10)


def test_stacks_are_keys() -> None:
    with start(build("default", "args"), "-w", "-n", 1) as fixture:
        fixture.wait_ready()
        with usdt.Session(pid=fixture.pid) as session:
            stacks = session.count("args:count3", by="ustack")
            fixture.fire()
            session.run(0.2)
            (stack,) = stacks
    assert isinstance(stack, tuple)
    assert "count3" in stack[0] or "[args]" in stack[0], stack


def test_close_in_another_thread_ends_run(session: usdt.Session) -> None:
    session.count("kept:order")
    timer = threading.Timer(0.2, session.close)
    timer.start()
    session.run(30)
    timer.join()
    with pytest.raises(usdt.TracingError, match="the session is closed"):
        session.count("kept:order")


def test_run_ends_with_its_processes() -> None:
    with start(build("default", "args"), "-w", "-n", 1) as fixture:
        fixture.wait_ready()
        with usdt.Session(pid=fixture.pid) as session:
            session.on("args:count3", lambda event: None)
            counts = session.count("args:count3")
            fixture.kill()
            session.run(30)
            assert counts.snapshot() == {}


def test_reading_does_not_wake_the_collector_of_garbage(
    shop: usdt.Provider, session: usdt.Session, request: pytest.FixtureRequest
) -> None:
    counts = session.count("kept:order", by="arg0")
    for number in range(2000):
        shop.probes[0].fire(number, "")
    woken: list[str] = []

    def note(phase: str, _info: dict[str, int]) -> None:
        woken.append(phase)

    request.addfinalizer(functools.partial(gc.set_threshold, *gc.get_threshold()))
    request.addfinalizer(lambda: gc.callbacks.remove(note))
    gc.callbacks.append(note)
    gc.set_threshold(100)
    assert len(counts.snapshot()) == 2000
    assert len(woken) < 20  # of hundreds
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        pytest.param(lambda s: s.count("kept:nothing"), "no probe kept:nothing", id="no probe"),
        pytest.param(lambda s: s.hist("kept:order"), "expected the value", id="no value"),
        pytest.param(lambda s: s.count("kept:order", by="arg0 > 1"), "comparison", id="no key"),
        pytest.param(lambda s: s.count("kept:order", by="nothing"), "nothing", id="no name"),
    ],
)
def test_what_is_wrong_is_said(session: usdt.Session, make: object, says: str) -> None:
    def both() -> None:
        make(session)  # type: ignore[operator]
        session.run(10)  # what is not there at once may come with a library

    with pytest.raises(usdt.TracingError, match=says):
        both()


def test_keys_come_in_the_order_of_their_hits(shop: usdt.Provider, session: usdt.Session) -> None:
    numbers = session.count("kept:order", by="arg0")
    texts = session.count("kept:order", by="str(arg1)")
    both = session.stats("kept:order(arg0)", by="arg0, str(arg1)")
    stacks = session.count("kept:order", by="arg0, ustack")
    for number, text in [(10, "ten"), (9, "nine"), (9, "nine"), (11, "")]:
        shop.probes[0].fire(number, text)
    assert list(numbers.items()) == [(10, 1), (11, 1), (9, 2)]
    assert list(texts.items()) == [("", 1), ("ten", 1), ("nine", 2)]
    assert [(key, one.sum) for key, one in both.items()] == [
        ((10, "ten"), 10),
        ((11, ""), 11),
        ((9, "nine"), 18),
    ]
    assert [(key[0], count) for key, count in stacks.items()] == [(10, 1), (11, 1), (9, 2)]
