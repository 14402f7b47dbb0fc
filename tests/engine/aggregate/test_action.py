"""Programs that aggregate: run on a machine of our own, every path of them."""

from __future__ import annotations

from typing import Any

import pytest
from aggregatemachine import Programs
from hits import NUMBER, POINTER, TEXT, registers
from hypothesis import given
from hypothesis import strategies as st

from usdt.arch.locations import Register, ValueClass, ValueType
from usdt.base.errors import LanguageError
from usdt.engine.aggregate.codegen.pairs import THREADS
from usdt.engine.aggregate.codegen.values import NUMBERS
from usdt.engine.aggregate.keys import NO_FRAMES, Stack
from usdt.engine.aggregate.output.json import bucket_list
from usdt.engine.aggregate.spec import (
    Aggregation,
    Bounds,
    Buckets,
    Linear,
    Log2,
    LogLinear,
    parse_keys,
)
from usdt.engine.aggregate.values import Value
from usdt.engine.compiler.arguments import Argument
from usdt.engine.compiler.limits import MAX_RESOLUTION
from usdt.engine.compiler.record.columns import SymbolKind, stack_column
from usdt.engine.language.tree import StackKind

_UNSIGNED = Argument("arg1", ValueType(ValueClass.UNSIGNED, 8), Register(80, 8))
_S64 = st.integers(-(1 << 63), (1 << 63) - 1)
_EDGES = st.sampled_from([0, 1, -1, 2, 3, (1 << 63) - 1, -(1 << 63), 1 << 32, (1 << 32) - 1])


def by(text: str) -> Any:
    return parse_keys(text, "--by")


def on(argument: Argument, aggregation: Aggregation, *probes: str, **more: Any) -> Programs:
    """Programs of probes with a pointer (arg0) and a number (arg1)."""
    return Programs(aggregation, probes, arguments=(POINTER, argument), **more)


# ---------------------------------------------------------------- values


@pytest.mark.parametrize("argument", [NUMBER, _UNSIGNED], ids=["signed", "unsigned"])
@given(values=st.lists(_S64 | _EDGES, min_size=1, max_size=12))
def test_powers_of_two(argument: Argument, values: list[int]) -> None:
    programs = on(argument, Aggregation(buckets=Log2()), "p:q(arg1)")
    numbers = values if argument is NUMBER else [value % (1 << 64) for value in values]
    for value in values:
        programs.hit(context=registers(rax=value))
    (found,) = programs.values().values()
    assert _spread(found, Log2()) == _expected(numbers, Log2())


@pytest.mark.parametrize("argument", [NUMBER, _UNSIGNED], ids=["signed", "unsigned"])
@pytest.mark.parametrize(
    "linear",
    [
        Linear(0, 100, 10),
        Linear(-50, 33, 7),
        Linear(-100, -50, 5),
        Linear(5, 6, 1000),
        Linear(-(1 << 63), (1 << 63) - 1, 1 << 60),
        Linear(0, 1 << 40, 1 << 35),
    ],
    ids=str,
)
@given(values=st.lists(_S64 | st.integers(-120, 120), min_size=1, max_size=12))
def test_equal_steps(argument: Argument, linear: Linear, values: list[int]) -> None:
    programs = on(argument, Aggregation(buckets=linear), "p:q(arg1)")
    numbers = values if argument is NUMBER else [value % (1 << 64) for value in values]
    for value in values:
        programs.hit(context=registers(rax=value))
    (found,) = programs.values().values()
    assert _spread(found, linear) == _expected(numbers, linear)


@pytest.mark.parametrize("argument", [NUMBER, _UNSIGNED], ids=["signed", "unsigned"])
@given(
    values=st.lists(_S64 | _EDGES, min_size=1, max_size=12),
    highest=st.sets(st.integers(-(1 << 63), 1 << 64) | _EDGES, min_size=1, max_size=20),
)
def test_given_bounds(argument: Argument, values: list[int], highest: set[int]) -> None:
    bounds = Bounds(tuple(sorted(highest)))
    programs = on(argument, Aggregation(buckets=bounds), "p:q(arg1)")
    numbers = values if argument is NUMBER else [value % (1 << 64) for value in values]
    for value in values:
        programs.hit(context=registers(rax=value))
    (found,) = programs.values().values()
    assert _spread(found, bounds) == _expected(numbers, bounds)


def _spread(value: Value, buckets: Buckets) -> list[dict[str, Any]]:
    return [bucket for bucket in bucket_list(value.buckets, buckets) if bucket["count"]]


def _expected(numbers: list[int], buckets: Buckets) -> list[dict[str, Any]]:
    found = []
    for index in range(buckets.number):
        low, high = buckets.edges(index)
        count = sum((low is None or n >= low) and (high is None or n < high) for n in numbers)
        if count:
            found.append({"low": low, "high": high, "count": count})
    return found


@pytest.mark.parametrize("atomics", [True, False])
@pytest.mark.parametrize("keys", ["", "tid"])
@given(values=st.lists(_S64 | _EDGES, min_size=1, max_size=12))
def test_statistics(atomics: bool, keys: str, values: list[int]) -> None:
    aggregation = Aggregation(stats=True, keys=by(keys or None))
    for argument in (NUMBER, _UNSIGNED):
        numbers = values if argument is NUMBER else [value % (1 << 64) for value in values]
        programs = on(argument, aggregation, "p:q(arg1)", atomics=atomics)
        for value in values:
            programs.hit(context=registers(rax=value))
        (found,) = programs.values().values()
        assert found == Value(len(numbers), sum(numbers), min(numbers), max(numbers))


@pytest.mark.parametrize("atomics", [True, False])
@pytest.mark.parametrize("keys", ["", "tid"])
@given(
    values=st.lists(_S64 | _EDGES | st.integers(-200, 200), min_size=1, max_size=8),
    resolution=st.integers(0, MAX_RESOLUTION),
    argument=st.sampled_from([NUMBER, _UNSIGNED]),
)
def test_distributions(
    atomics: bool, keys: str, values: list[int], resolution: int, argument: Argument
) -> None:
    aggregation = Aggregation(stats=True, resolution=resolution, keys=by(keys or None))
    numbers = values if argument is NUMBER else [value % (1 << 64) for value in values]
    programs = on(argument, aggregation, "p:q(arg1)", atomics=atomics)
    for value in values:
        programs.hit(context=registers(rax=value))
    (found,) = programs.values().values()
    assert found.distribution is not None
    for bucket, hits in found.distribution.counts.items():
        low, high = LogLinear(resolution).edges(bucket)
        assert hits == sum(low <= number < high for number in numbers)
    assert sum(found.distribution.counts.values()) == len(numbers)
    assert (found.count, found.sum) == (len(numbers), sum(numbers))


def test_a_histogram_with_a_distribution_has_both() -> None:
    aggregation = Aggregation(buckets=Log2(), resolution=3, keys=by("arg1 % 2"))
    programs = on(NUMBER, aggregation, "p:q(arg1)")
    for value in (100, 101, 100, 103, -100):
        programs.hit(context=registers(rax=value))
    even, odd = (programs.values()[0, number] for number in (0, 1))
    assert _spread(even, Log2()) == _expected([100, 100, -100], Log2())
    assert _spread(odd, Log2()) == _expected([101, 103], Log2())
    assert [even.percentile(p) for p in (0, 50, 100)] == [-99, 99, 99]  # [96, 104): 99
    assert sum(programs.spread()[1].values()) == 3


def test_hits_without_space_for_a_bucket_are_counted() -> None:
    programs = on(NUMBER, Aggregation(stats=True, resolution=5), "p:q(arg1)", places=2)
    for value in (7, 1000, 9, 7, 10**6, 1001, 10**9):
        programs.hit(context=registers(rax=value))
    found = programs.values()[()]
    assert found.distribution is not None
    assert (found.count, found.distribution.unplaced) == (7, 2)
    assert found.sum == 7 + 1000 + 9 + 7 + 10**6 + 1001 + 10**9
    assert programs.machine.counters == {}


def test_a_value_that_two_hits_number_at_once_has_one_number() -> None:
    # The exchange fails: another hit has given the value the number 1 meanwhile.
    aggregation = Aggregation(buckets=Log2(), resolution=5)
    programs = on(NUMBER, aggregation, "p:q(arg1)", spurious=1)
    programs.machine.tables[NUMBERS].rows[bytes(4)][1][0] = 7
    for value in (40, 50):
        programs.hit(context=registers(rax=value))
    assert programs.spread() == {1: {40: 1, 50: 1}}


def test_an_exchange_that_is_lost_is_tried_again() -> None:
    programs = on(NUMBER, Aggregation(stats=True), "p:q(arg1)", spurious=5)
    programs.hit(context=registers(rax=100))
    assert programs.values()[()].count == 1
    assert programs.machine.counters == {}


def test_one_that_is_lost_again_and_again_is_counted_as_lost() -> None:
    programs = on(NUMBER, Aggregation(stats=True), "p:q(arg1)", spurious=1000)
    programs.hit(context=registers(rax=100))
    assert programs.values() == {}
    assert programs.machine.counters == {0: (1, 0)}


# ---------------------------------------------------------------- keys


def test_keys_of_every_kind() -> None:
    text = "arg1, str(arg0, 7), buf(arg0, 3), comm, hex(arg1), tid, func, ustack, usym(arg0)"
    programs = on(NUMBER, Aggregation(keys=by(text)), "p:q", user={TEXT: b"a text that is long\0"})
    programs.hit(context=registers(rdi=TEXT, rax=-5))
    ((key, value),) = programs.values().items()
    assert value == Value(1)
    assert key[:8] == (0, -5, "a text ", "a t", "comm", hex((1 << 64) - 5), 11, "p:q")
    assert key[8] == Stack(stack_column(StackKind.USER), 3, 10)
    assert (key[9].kind, key[9].address, key[9].pid) == (SymbolKind.USER, TEXT, 10)


def test_what_lay_on_the_stack_before_is_in_no_key() -> None:
    aggregation = Aggregation(keys=by("str(arg0)"))
    programs = on(NUMBER, aggregation, "p:q", user={TEXT: b"long enough\0", TEXT + 99: b"x\0"})
    for address in (TEXT, TEXT + 99, TEXT, TEXT + 99):
        programs.hit(context=registers(rdi=address))
    assert programs.values() == {(0, "long enough"): Value(2), (0, "x"): Value(2)}


@pytest.mark.parametrize(("length", "shown"), [(-1, ""), (0, ""), (2, "ab"), (20, "ab" * 10)])
def test_a_buffer_of_a_length_found_at_the_hit(length: int, shown: str) -> None:
    aggregation = Aggregation(keys=by("buf(arg0, arg1)"))
    programs = on(NUMBER, aggregation, "p:q", user={TEXT: b"ab" * 50})
    programs.hit(context=registers(rdi=TEXT, rax=length))
    assert programs.values() == {(0, shown): Value(1)}


def test_strings_that_are_compared_leave_room_for_a_key() -> None:
    text = '(str(arg0) == "yes") + 0, str(arg0, 40), tid'
    programs = on(NUMBER, Aggregation(keys=by(text)), "p:q", user={TEXT: b"yes\0"})
    programs.hit(context=registers(rdi=TEXT))
    assert programs.values() == {(0, 1, "yes", 11): Value(1)}


@pytest.mark.parametrize(
    ("text", "room"),
    [
        pytest.param("str(arg0, 200), str(arg0, 100)", 272, id="strings"),
        pytest.param('(str(arg0) == "a") + 0, str(arg0, 160)', 152, id="beside a comparison"),
    ],
)
def test_keys_that_do_not_fit(text: str, room: int) -> None:
    with pytest.raises(LanguageError, match=f"at most {room} fit"):
        on(NUMBER, Aggregation(keys=by(text)), "p:q")


def test_what_cannot_be_read_is_counted() -> None:
    for aggregation, probe in (
        (Aggregation(keys=by("str(arg0)")), "p:q"),
        (Aggregation(keys=by("buf(arg0, 4)")), "p:q"),
        (Aggregation(keys=by("*(int *)arg0")), "p:q"),
        (Aggregation(buckets=Log2()), "p:q(*(int *)arg0)"),
        (Aggregation(), "p:q(*(int *)arg0 > 1)"),
        (Aggregation(keys=by("arg1 / 0")), "p:q"),
    ):
        for sleepable in (False, True):
            programs = on(NUMBER, aggregation, probe, sleepable=sleepable)
            programs.hit(context=registers(rdi=TEXT, rax=1))
            assert programs.values() == {}
            assert programs.machine.counters == {0: (0, 1)}


@pytest.mark.parametrize("text", ["str(arg0)", "buf(arg0, 4)", "*(u8 *)arg0"])
def test_what_is_absent_is_faulted_in_where_that_is_allowed(text: str) -> None:
    for sleepable in (False, True):
        programs = on(
            NUMBER,
            Aggregation(keys=by(text)),
            "p:q",
            sleepable=sleepable,
            user={TEXT: b"text\0"},
            absent={TEXT},
        )
        programs.hit(context=registers(rdi=TEXT))
        assert sum(value.count for value in programs.values().values()) == sleepable
        assert programs.machine.counters == ({} if sleepable else {0: (0, 1)})


def test_stacks() -> None:
    programs = on(NUMBER, Aggregation(keys=by("kstack")), "p:q")
    programs.hit()
    for number, counted in ((-14, {}), (-17, {0: (1, 0)}), (-12, {0: (2, 0)})):
        programs.machine.stack = number
        programs.hit()
        assert programs.machine.counters == counted
    kept = {key[1].number for key in programs.values()}
    assert kept == {3, NO_FRAMES}


def test_keys_without_room_are_lost_and_known_ones_go_on() -> None:
    programs = on(NUMBER, Aggregation(keys=by("arg1")), "p:q", entries=2)
    for value in (1, 2, 3, 4, 1, 3, 2):
        programs.hit(context=registers(rax=value))
    assert programs.values() == {(0, 1): Value(2), (0, 2): Value(2)}
    assert programs.machine.counters == {0: (3, 0)}


def test_an_interval_has_keys_of_its_own() -> None:
    aggregation = Aggregation(keys=by("tid"), intervals=True)
    programs = on(NUMBER, aggregation, "p:q")
    programs.hit()
    programs.machine.tables["interval"].rows[bytes(4)][1][:] = (7).to_bytes(8, "little")
    programs.hit()
    programs.hit()
    assert programs.values() == {(0, 11): Value(1), (7, 11): Value(2)}


# ---------------------------------------------------------------- pairs


def pairs(
    *, key: str = "tid", keys: str | None = None, at_start: bool = False, **more: Any
) -> Programs:
    """Programs of a start and an end, 10 nanoseconds from one look at the clock to the next."""
    aggregation = Aggregation(
        stats=True,
        buckets=Linear(0, 1000, 10),
        pair=parse_keys(key, "--key"),
        keys=by(keys),
        at_start=at_start,
    )
    return on(NUMBER, aggregation, "p:start", "p:end", step=10, **more)


@pytest.mark.parametrize("atomics", [True, False])
def test_a_pair(atomics: bool) -> None:
    programs = pairs(atomics=atomics)
    programs.hit(0)
    programs.hit(1)
    found = programs.values()[()]
    assert (found.count, found.sum, found.min, found.max) == (1, 10, 10, 10)
    assert [index for index, count in enumerate(found.buckets) if count] == [2]
    assert programs.odd == (0, 0)
    assert programs.depths() == []


def test_the_idle_tasks_of_two_processors_are_two() -> None:
    programs = pairs(thread=0, process=0)
    for index, cpu in ((0, 0), (0, 1), (1, 0), (1, 1)):  # as keys of one task: 10 and 30 ns
        programs.machine.cpu = cpu
        programs.hit(index)
    found = programs.values()[()]
    assert (found.count, found.min, found.max) == (2, 20, 20)
    assert programs.depths() == []


@pytest.mark.parametrize("atomics", [True, False])
def test_nested_starts_end_from_the_inside(atomics: bool) -> None:
    programs = pairs(atomics=atomics)
    for index in (0, 0, 1, 0, 1, 1):  # 1 (2 2) (3 3) 1: 10, 10 and 50 ns
        programs.hit(index)
    found = programs.values()[()]
    assert (found.count, found.sum, found.max) == (3, 70, 50)
    assert programs.depths() == []


@pytest.mark.parametrize("atomics", [True, False])
def test_of_what_is_nested_too_deeply_the_innermost_is_measured(atomics: bool) -> None:
    programs = pairs(atomics=atomics)
    for index in [0] * 20 + [1] * 19:
        programs.hit(index)
    found = programs.values()[()]
    assert (found.count, found.min, found.max) == (16, 10, 310)
    assert programs.odd == (0, 3)
    assert programs.depths() == [1]


@pytest.mark.parametrize("atomics", [True, False])
@pytest.mark.parametrize("key", ["tid", "arg1"])
@pytest.mark.parametrize("keys", [None, "arg1 % 2"])
def test_starts_without_an_end_keep_no_pair_from_being_measured(
    atomics: bool, key: str, keys: str | None
) -> None:
    programs = pairs(key=key, keys=keys, at_start=keys is not None, atomics=atomics)
    for index in [0] * 30 + [0, 1] * 5:
        programs.hit(index, registers(rax=1))
    (found,) = programs.values().values()
    assert (found.count, found.min, found.max) == (5, 10, 10)
    assert programs.odd == (0, 0)
    assert programs.depths() == [30]


@pytest.mark.parametrize("atomics", [True, False])
def test_ends_without_a_start(atomics: bool) -> None:
    programs = pairs(atomics=atomics)
    for index in (1, 0, 1, 1):
        programs.hit(index)
    assert programs.values()[()].count == 1
    assert programs.odd == (2, 0)


def test_what_hits_while_a_probe_of_the_pair_is_not_attached_is_ignored() -> None:
    programs = pairs()
    programs.set_gate(open_=False)
    for index in (0, 0, 1, 1, 1):
        programs.hit(index)
    programs.set_gate(open_=True)
    programs.hit(0)
    programs.hit(1)
    programs.hit(0)
    programs.set_gate(open_=False)
    programs.hit(1)
    assert programs.values()[()].count == 1
    assert programs.odd == (0, 0)
    assert programs.depths() == [1]


def test_keys_of_the_pair_and_of_the_result() -> None:
    programs = pairs(key="arg1, str(arg0)", keys="comm, arg1 % 2", user={TEXT: b"x\0", 5: b"y\0"})
    for number in (1, 2, 3):
        programs.hit(0, registers(rdi=TEXT, rax=number))
    programs.hit(1, registers(rdi=5, rax=1))  # the same number, another string
    for number in (1, 3):
        programs.hit(1, registers(rdi=TEXT, rax=number))
    assert {key: value.count for key, value in programs.values().items()} == {(0, "comm", 1): 2}
    assert programs.odd == (1, 0)
    assert programs.depths() == [1]


def test_threads_that_share_a_place_are_told_apart() -> None:
    programs = pairs()
    for index, thread in ((0, 7), (0, 7 + THREADS), (0, 7 + THREADS)):
        programs.machine.thread = thread
        programs.hit(index)
    assert sorted(programs.depths()) == [1, 2]
    for thread in (7, 7 + THREADS, 7 + THREADS, 7 + THREADS):
        programs.machine.thread = thread
        programs.hit(1)
    assert [(value.count, value.sum) for value in programs.values().values()] == [(3, 90)]
    assert programs.odd[:2] == (1, 0)
    assert programs.depths() == []


def test_starts_without_room_are_lost() -> None:
    programs = pairs(key="arg1", entries=2)
    for number in (1, 2, 3):
        programs.hit(0, registers(rax=number))
    assert programs.machine.counters == {0: (1, 0)}
    assert programs.depths() == [1, 1]


@pytest.mark.parametrize("atomics", [True, False])
def test_keys_that_the_start_evaluates(atomics: bool) -> None:
    aggregation = Aggregation(
        stats=True, pair=parse_keys("tid", "--key"), keys=by("str(arg0), arg1"), at_start=True
    )
    user = {TEXT: b"first\0", TEXT + 64: b"second\0"}
    programs = on(NUMBER, aggregation, "p:start", "p:end", step=10, user=user, atomics=atomics)
    for index, address, number in [
        *((0, TEXT, 1), (0, TEXT + 64, 2), (1, 7, 7), (1, 7, 7)),  # 2 within 1: 10 and 30 ns
        *((0, TEXT, 1), (1, 8, 8)),
    ]:
        programs.hit(index, registers(rdi=address, rax=number))
    found = programs.values()
    assert {key: (value.count, value.sum) for key, value in found.items()} == {
        (0, "first", 1): (2, 40),
        (0, "second", 2): (1, 10),
    }
    assert programs.odd == (0, 0)
    assert programs.depths() == []


def test_keys_that_the_start_evaluates_belong_to_the_interval_of_the_end() -> None:
    aggregation = Aggregation(
        stats=True, pair=parse_keys("tid", "--key"), keys=by("arg1"), at_start=True, intervals=True
    )
    programs = on(NUMBER, aggregation, "p:start", "p:end", step=10)
    programs.hit(0, registers(rax=5))
    programs.machine.tables["interval"].rows[bytes(4)][1][:] = (3).to_bytes(8, "little")
    programs.hit(1)
    assert {key: value.count for key, value in programs.values().items()} == {(3, 5): 1}


def test_keys_of_starts_without_room_are_lost() -> None:
    aggregation = Aggregation(
        stats=True, pair=parse_keys("tid", "--key"), keys=by("arg1"), at_start=True
    )
    programs = on(NUMBER, aggregation, "p:start", "p:end", step=10, entries=2)
    for number in (1, 2, 3, 1):
        programs.hit(0, registers(rax=number))
        programs.hit(1)
    assert {key: value.count for key, value in programs.values().items()} == {(0, 1): 2, (0, 2): 1}
    assert programs.machine.counters == {0: (1, 0)}
    assert programs.odd == (1, 0)
