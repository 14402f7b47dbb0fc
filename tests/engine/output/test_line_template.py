"""Many records as lines at once: the same bytes as record by record, whatever the records hold."""

from __future__ import annotations

import functools
import json
import struct
from array import array
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planning import EVERY_TYPE, plan
from recordings import record

from usdt.engine.output.decode import Decoder, record_format
from usdt.engine.output.formatters.json import JsonFormatter
from usdt.engine.output.formatters.text import TextFormatter
from usdt.engine.output.formatters.time_digits import fraction_digits
from usdt.engine.output.output_file import Lines, lines_in
from usdt.engine.output.wall_clock import TENTH, WallClock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from usdt.engine.compiler.plan import ProbePlan
    from usdt.engine.output.formatters.formatter import Formatter

SECOND = 1_000_000_000
NUMBERS = plan("arg0, arg3, arg5, arg6, arg7")
FORMS: dict[str, Callable[[], Formatter]] = {
    "JSON": JsonFormatter,
    "text": lambda: TextFormatter(offset=123_456_789),
    "dates": lambda: TextFormatter(offset=123_456_789, realtime=True),
    "JSON with dates": lambda: JsonFormatter(clock=WallClock(5)),
}
forms = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)

WORDS = st.one_of(st.integers(0, 20), st.integers(0, (1 << 64) - 1))
COMMS = st.sampled_from([b"plain", b"%d%s%", b'"\\{}\n\x1b', b"caf\xc3\xa9\xff", b"", b"x" * 16])
HITS = st.tuples(
    st.integers(0, 3 * SECOND)
    | st.integers(SECOND - 2000, SECOND + 2000)
    | st.integers(4 * TENTH - 123_458_789, 4 * TENTH - 123_454_789),  # of the text's clock
    st.integers(1, 3),
    COMMS,
    st.lists(WORDS, min_size=5, max_size=5),
)


def encoded_lines(batch: Any) -> bytes:
    """The lines of a batch as bytes."""
    if isinstance(batch, Lines):
        return b"".join(batch)
    return "".join(batch).encode("utf-8", "backslashreplace")


def both(
    form: Callable[[], Formatter], made: ProbePlan, data: bytes, probe: str = "p:q"
) -> tuple[bytes, bytes, list[Any]]:
    """The lines record by record, those of blocks, and the batches of the latter."""
    results = []
    batches: list[Any] = []
    for encoded in (False, True):
        decoder = Decoder(form(), encoded=encoded)
        decoder.add(1, probe, made)
        decoder.add(2, "another%s:one", made)
        batches = list(decoder.batches(data))
        results.append(b"".join(map(encoded_lines, batches)))
    return results[0], results[1], batches


def hit(values: Sequence[int], **more: Any) -> bytes:
    """A record of five numbers."""
    return record(struct.pack(f"={len(values)}Q", *values), **more)


@forms
@given(hits=st.lists(HITS, min_size=1, max_size=30), times=st.integers(1, 30))
def test_lines_of_blocks_are_those_of_records(
    form: Callable[[], Formatter],
    hits: list[tuple[int, int, bytes, list[int]]],
    times: int,
) -> None:
    data = b"".join(
        hit(values, time=time, tid=tid, pid=tid, comm=comm) * times
        for time, tid, comm, values in hits
    )
    one_by_one, at_once, batches = both(form, NUMBERS, data, probe="pro%vider:hé\x1b")
    assert at_once == one_by_one
    assert sum(map(lines_in, batches)) == len(hits) * times


@forms
@pytest.mark.parametrize("threads", [1, 2, 3000], ids="{} threads".format)
def test_blocks_are_used(form: Callable[[], Formatter], threads: int) -> None:
    hits = [hit([n, 2, 3, 4, 5], time=SECOND + n * 99, tid=n % threads) for n in range(5000)]
    one_by_one, at_once, batches = both(form, NUMBERS, b"".join(hits))
    assert at_once == one_by_one
    assert all(isinstance(one, Lines) for one in batches)


@forms
def test_alternating_probes_and_turns_of_a_second(form: Callable[[], Formatter]) -> None:
    hits = [
        hit([n, 2, 3, 4, 5], time=n * SECOND // 50, case=1 + (n // width) % 2)
        for width in (1, 20, 100)
        for n in range(300)
    ]
    one_by_one, at_once, _ = both(form, NUMBERS, b"".join(hits))
    assert at_once == one_by_one


@pytest.mark.parametrize("encoded", [False, True])
@given(runs=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 40)), max_size=12))
def test_probes_of_one_layout_hidden_ones_and_one_of_another(
    runs: list[tuple[int, int]], encoded: bool
) -> None:
    decoder = Decoder(JsonFormatter(), encoded=encoded)
    for number, made, hidden in ((1, "arg7", 0), (2, "arg7", 0), (3, "arg7", 1), (4, "arg6", 0)):
        layout = plan(made).layout
        decoder.add_layout(number, f"p:q{number}", layout, hidden=bool(hidden))
    cases = [case for case, times in runs for _ in range(times)]
    data = b"".join(hit([9], case=case, time=n) for n, case in enumerate(cases))
    lines = b"".join(encoded_lines(one) for one in decoder.batches(data)).splitlines()
    found = [(one["time"], one["probe"], (*one["args"],)) for one in map(json.loads, lines)]
    assert found == [
        (n, f"p:q{case}", ("arg6" if case == 4 else "arg7",))
        for n, case in enumerate(cases)
        if case != 3
    ]


STRINGS = plan("arg6, str(arg7, 15), buf(arg7, 5), arg0, arg10", max_string=16)
TEXTS = st.sampled_from([b"", b"plain", b"%d%s%", b'"\\{}\n\x1b\r', b"caf\xc3\xa9\xff", b"x" * 16])


@forms
@given(
    hits=st.lists(st.tuples(TEXTS, st.integers(-20, 20), st.floats(width=32), COMMS), min_size=1),
    times=st.integers(1, 70),
)
def test_strings_and_floats(
    form: Callable[[], Formatter],
    hits: list[tuple[bytes, int, float, bytes]],
    times: int,
) -> None:
    assert STRINGS.layout.bitmap_offset is not None
    data = b"".join(
        packed(
            0, -number, max(number, -14), word, max(number, -14), word[:5], number, real, comm=comm
        )
        * times
        for word, number, real, comm in hits
    )
    one_by_one, at_once, batches = both(form, STRINGS, data)
    assert at_once == one_by_one
    assert sum(map(lines_in, batches)) == len(hits) * times


@forms
@pytest.mark.parametrize("threads", [1, 3])
def test_blocks_of_strings_are_used(form: Callable[[], Formatter], threads: int) -> None:
    data = b"".join(
        packed(0, n, 4, b"abc", 5, b"defgh", 1, 1.5, tid=n % threads, time=SECOND)
        for n in range(200)
    )
    one_by_one, at_once, batches = both(form, STRINGS, data)
    assert at_once == one_by_one
    assert all(isinstance(one, Lines) for one in batches)


def packed(*values: Any, **context: Any) -> bytes:
    """A record of STRINGS."""
    whole = record_format(STRINGS.layout).pack(0, bytes(32), *values)
    return record(whole[48:], **context)


@forms
@pytest.mark.parametrize("step", [1000, SECOND // 50], ids=["one second", "many seconds"])
def test_alternating_layouts(form: Callable[[], Formatter], step: int) -> None:
    hits = [
        hit([n, 2, 3, 4, 5], time=SECOND + n * step) if n % 3 else hit([n], case=2, time=SECOND)
        for n in range(3000)
    ]
    results = []
    for encoded in (False, True):
        decoder = Decoder(form(), encoded=encoded)
        decoder.add(1, "p:q", NUMBERS)
        decoder.add(2, "p:\n", plan("arg7"))
        batches = list(decoder.batches(b"".join(hits)))
        results.append(b"".join(map(encoded_lines, batches)))
        assert sum(map(lines_in, batches)) == len(hits)
    assert results[1] == results[0]
    assert results[0].count(b"\n") == len(hits)
    if form is FORMS["JSON"]:
        assert all(isinstance(one, Lines) for one in batches)


@pytest.mark.parametrize(
    ("items", "payload"),
    [
        ("arg8", struct.pack("=Qq", 0, -5)),
        ("arg8", struct.pack("=Qq", 1, -5)),
        ("arg7, comm, arg12", struct.pack("=Q", 7)),
        ("arg9, arg7", struct.pack("=QdQ", 0, 1.5, 7)),
        ("", b""),
    ],
    ids=["read", "not read", "name of the thread", "a float", "nothing"],
)
@forms
def test_other_values(form: Callable[[], Formatter], items: str, payload: bytes) -> None:
    made = plan(items, EVERY_TYPE if items else ())
    one_by_one, at_once, _ = both(form, made, record(payload) * 100)
    assert at_once == one_by_one
    assert one_by_one.count(b"\n") == 100


@forms
@pytest.mark.parametrize("items", ["comm", "arg7, comm", "comm, arg7", "hex(arg7), comm, arg6"])
@pytest.mark.parametrize("threads", [1, 2, 300], ids="{} threads".format)
def test_the_name_of_the_thread_is_a_value(
    form: Callable[[], Formatter], items: str, threads: int
) -> None:
    made = plan(items, EVERY_TYPE)
    words = sum(field.column.stored for field in made.layout.fields)
    hits = [
        hit(
            range(n, n + words), time=SECOND + n, tid=n % threads, comm=b"thread %d" % (n % threads)
        )
        for n in range(500)
    ]
    one_by_one, at_once, _ = both(form, made, b"".join(hits))
    assert at_once == one_by_one
    assert at_once.count(b"thread 0") == 2 * len(range(0, 500, threads))


@functools.cache
def _in_turns(run: int) -> bytes:
    # Records of three threads, so many in a row of each.
    return b"".join(
        hit([n % 7], time=SECOND + n, tid=n // run % 3, comm=b"thread %d" % (n // run % 3))
        for n in range(5000)
    )


@forms
@pytest.mark.parametrize("items", ["arg7", "arg7, comm", "hex(arg7)"])
@pytest.mark.parametrize("run", [1, 50, 700, 4095, 4096], ids="{} hits in a row".format)
def test_threads_that_take_turns(form: Callable[[], Formatter], items: str, run: int) -> None:
    one_by_one, at_once, batches = both(form, plan(items, EVERY_TYPE), _in_turns(run))
    assert at_once == one_by_one
    assert all(isinstance(one, Lines) for one in batches)


ITEMS = (
    *(f"arg{number}" for number in range(13)),
    *("hex(arg7)", "hex(arg3)", "comm", "pid", "tid", "uid", "cpu", "ppid", "cgroup", "func"),
    *("str(arg7, 15)", "str(arg6)", "buf(arg7, 5)", "arg7 + 1", "arg0 == 3", "arg5 & 7", "!arg6"),
)


@forms
@given(
    items=st.lists(st.sampled_from(ITEMS), min_size=1, max_size=4, unique=True),
    words=st.lists(st.integers(-20, 70) | WORDS, min_size=1, max_size=20),
    threads=st.sampled_from([1, 2, 100]),
    readable=st.booleans(),
)
def test_any_items(
    form: Callable[[], Formatter],
    items: list[str],
    words: list[int],
    threads: int,
    readable: bool,
) -> None:
    made = plan(", ".join(items), EVERY_TYPE, max_string=16)
    layout, hits = made.layout, []
    for n in range(100):
        size = (layout.size - 40) // 8
        values = [words[(n + at) % len(words)] & (1 << 64) - 1 for at in range(size)]
        if readable and layout.bitmap_offset is not None:
            values[(layout.bitmap_offset - 40) // 8] = 0
        context = {"time": SECOND + n, "tid": n % threads, "comm": b"thread %d" % (n % threads)}
        hits.append(hit(values, **context))
    one_by_one, at_once, _ = both(form, made, b"".join(hits))
    assert at_once == one_by_one


@forms
@pytest.mark.parametrize(
    "texts",
    [
        pytest.param([b"plain", b"caf\xc3\xa9"], id="no escape in text"),
        pytest.param([b"plain", b"two\nlines"], id="a newline"),
        pytest.param([b"plain", b'"', b"\\"], id="quotes"),
        pytest.param([b"plain", b'","', b'"', b'" "'], id="quotes alone"),
        pytest.param([b"plain", b"\xff\xc3"], id="no UTF-8"),
        pytest.param([b"\xc3", b"\xa9"], id="UTF-8 in two parts"),
        pytest.param([b"", b""], id="empty"),
        pytest.param([b"plain", b"x" * 19], id="as long as there is room"),
    ],
)
def test_strings_that_need_an_escape_among_others(
    form: Callable[[], Formatter], texts: list[bytes]
) -> None:
    hits = [packed(0, 0, len(t) + 1, t, len(t) + 1, t[:5], 1, 1.5) for t in texts * 30]
    one_by_one, at_once, _ = both(form, STRINGS, b"".join(hits))
    assert at_once == one_by_one


def test_one_value_that_was_not_read_among_others() -> None:
    read, unread = (record(struct.pack("=Qq", bit, -5)) for bit in (0, 1))
    for data in (read * 99 + unread, unread + read * 99, read * 1500 + unread + read * 1500):
        one_by_one, at_once, batches = both(JsonFormatter, plan("arg8"), data)
        assert at_once == one_by_one
        assert at_once.count(b"error") == 1
        assert all(isinstance(one, Lines) for one in batches)


def _in_layouts(n: int, *, unread: bool) -> bytes:
    if n % 3:
        return record(struct.pack("=Qq", unread, n), time=SECOND + n)
    return hit([n], case=2, time=SECOND + n)


IN_LAYOUTS = [_in_layouts(n, unread=False) for n in range(1000)]


@forms
@given(unread=st.sets(st.integers(0, 999), max_size=5))
def test_values_that_were_not_read_among_several_layouts(
    form: Callable[[], Formatter], unread: set[int]
) -> None:
    hits = [*IN_LAYOUTS]
    for n in unread:
        hits[n] = _in_layouts(n, unread=True)
    results = []
    for encoded in (False, True):
        decoder = Decoder(form(), encoded=encoded)
        decoder.add(1, "p:q", plan("arg8"))
        decoder.add(2, "p:r", plan("arg7"))
        (batch,) = decoder.batches(b"".join(hits))
        assert isinstance(batch, Lines) == encoded
        results.append(encoded_lines(batch))
    assert results[1] == results[0]


def digits_of(times: array[int], start: int) -> bytes:
    """The digits of times that are in one tenth of a second."""
    found = fraction_digits(memoryview(times), start)
    assert found is not None
    return found.tobytes()


@given(
    st.lists(st.integers(0, TENTH - 1), min_size=1, max_size=50),
    st.integers(0, 1 << 61),
)
def test_digits_of_nanoseconds(pasts: list[int], start: int) -> None:
    times = array("Q", [start + past for past in pasts])
    expected = b"".join(b"%08d" % past for past in pasts)
    assert digits_of(times, start) == expected


def test_digits_of_all_quotients() -> None:
    for past in range(0, TENTH, 2_000_000):
        pasts = [n for at in range(past, past + 2_000_000, 10_000) for n in (at, at + 9999)]
        assert digits_of(array("Q", pasts), 0) == b"%08d" * len(pasts) % (*pasts,)


@pytest.mark.parametrize("past", [-1, -TENTH, TENTH, TENTH + 1, 1 << 27, 1 << 40, 1 << 61])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_times_of_another_tenth_have_no_digits(past: int, place: int) -> None:
    start = 1 << 60
    times = array("Q", [start + 5, start + 6, start + 7])
    times[place] = start + past
    assert fraction_digits(memoryview(times), start) is None
    assert fraction_digits(memoryview(array("Q", [5])), -1) is None


@forms
@pytest.mark.parametrize("step", [1000, 100_000], ids="{} ns".format)
def test_blocks_go_on_at_turns_of_a_tenth(form: Callable[[], Formatter], step: int) -> None:
    hits = [hit([n, 2, 3, 4, 5], time=SECOND + n * step, tid=n % 2) for n in range(5000)]
    one_by_one, at_once, batches = both(form, NUMBERS, b"".join(hits))
    assert at_once == one_by_one
    assert all(isinstance(one, Lines) for one in batches)
    backwards = b"".join(hits[::-1])
    one_by_one, at_once, _ = both(form, NUMBERS, backwards)
    assert at_once == one_by_one


def test_the_first_lines_of_a_batch() -> None:
    lines = Lines([b"one\ntwo\n", b"three\n", b"four\n"], 4)
    assert lines_in(lines) == 4
    assert (*lines.first(3),) == (b"one\ntwo\nthree\n",)
    assert lines_in(lines.first(3)) == 3
    assert b"".join(lines.below("zero é\n")) == "zero é\none\ntwo\nthree\nfour\n".encode()
    assert lines_in(lines.below("zero\n")) == 5
