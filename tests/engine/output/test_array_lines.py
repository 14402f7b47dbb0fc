"""Lines by numpy: the same bytes as record by record, whatever numbers the records hold."""

from __future__ import annotations

import functools
import itertools
import struct
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planning import EVERY_TYPE, plan
from recordings import record

from usdt.bpf.rings.numpy_import import import_numpy, numpy_after
from usdt.engine.output.decode import Decoder
from usdt.engine.output.formatters.block_parts import LEAST
from usdt.engine.output.formatters.json import JsonFormatter
from usdt.engine.output.formatters.text import TextFormatter
from usdt.engine.output.output_file import Lines, lines_in
from usdt.engine.output.wall_clock import TENTH, WallClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from usdt.engine.compiler.plan import ProbePlan
    from usdt.engine.output.formatters.formatter import Formatter

pytest.importorskip("numpy", reason="needs the extra numpy")

SECOND = 1_000_000_000
WORD = 1 << 64
FORMS: dict[str, Callable[[], Formatter]] = {
    "JSON": JsonFormatter,
    "text": lambda: TextFormatter(offset=123_456_789),
    "dates": lambda: TextFormatter(offset=123_456_789, realtime=True),
    "JSON with dates": lambda: JsonFormatter(clock=WallClock(5)),
}
forms = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
# An unsigned and a signed number of eight bytes, and one with a bit that says that it was not read.
UNSIGNED, SIGNED, MAYBE = plan("arg7", EVERY_TYPE), plan("arg6", EVERY_TYPE), plan("arg8")

BORDERS = [10**n + d for n in range(20) for d in (-1, 0, 1)] + [1 << 31, 1 << 32, (1 << 63) - 1]
NUMBERS = st.one_of(
    st.sampled_from(BORDERS),
    st.sampled_from(BORDERS).map(lambda n: -n),
    st.integers(-20, 20),
    st.integers(-(1 << 63), WORD - 1),
).map(lambda n: n % WORD)


@pytest.fixture(autouse=True, scope="module")
def _numpy() -> None:
    import_numpy()


def lines_of(batches: Iterable[Any]) -> bytes:
    """The bytes of batches of either kind."""
    return b"".join(
        b"".join(one)
        if isinstance(one, Lines)
        else "".join(one).encode("utf-8", "backslashreplace")
        for one in batches
    )


def check(
    form: Callable[[], Formatter], made: ProbePlan, hits: Sequence[bytes], *, arrays: bool = True
) -> bytes:
    """Compare the lines of blocks with those of records one by one."""
    results = []
    for encoded in (False, True):
        decoder = Decoder(form(), encoded=encoded)
        decoder.add(1, "pro%d:\xe9\x1b%%", made)
        batches = list(decoder.batches(b"".join(hits)))
        results.append(lines_of(batches))
        assert sum(map(lines_in, batches)) == len(hits)
        if encoded and arrays:
            assert all(isinstance(piece, bytearray) for one in batches for piece in one)
    assert results[1] == results[0]
    return results[1]


def hits_of(numbers: Sequence[int], count: int = LEAST, **more: Any) -> list[bytes]:
    """Records of numbers, again and again, a nanosecond apart."""
    made = [record(struct.pack("=Q", number), **more) for number in numbers]
    ends = [(one[:8], one[16:]) for one in made]  # around the time
    return [
        begin + time + end
        for time, (begin, end) in zip(_times(count), itertools.cycle(ends), strict=False)
    ]


@functools.cache
def _times(count: int) -> list[bytes]:
    return [struct.pack("=Q", SECOND + n) for n in range(count)]


@forms
@pytest.mark.parametrize("made", [UNSIGNED, SIGNED], ids=["unsigned", "signed"])
@given(numbers=st.lists(NUMBERS, min_size=1, max_size=8))
def test_numbers(form: Callable[[], Formatter], made: ProbePlan, numbers: list[int]) -> None:
    check(form, made, hits_of(numbers))


@pytest.mark.parametrize("digits", range(1, 21))
@pytest.mark.parametrize("other", [0, 1, 5, -1, None], ids="and {}".format)
def test_numbers_of_each_length(digits: int, other: int | None) -> None:
    least = 10 ** (digits - 1)
    most = min(10**digits, WORD) - 1
    numbers = [least, least + 7, most // 2 + 1, most]
    for made in (UNSIGNED, SIGNED):
        check(JsonFormatter, made, hits_of([n % WORD for n in (*numbers, *filter(None, [other]))]))


def test_all_numbers_of_a_table() -> None:
    text = check(JsonFormatter, UNSIGNED, hits_of(range(10_000), 10_000))
    assert [int(line.rpartition(b": ")[2][:-2]) for line in text.splitlines()] == [*range(10_000)]


@forms
@given(
    start=st.integers(0, WORD - 40_000),
    step=st.integers(0, 3),
)
def test_numbers_that_begin_alike(form: Callable[[], Formatter], start: int, step: int) -> None:
    check(form, UNSIGNED, hits_of([start + n * step for n in range(LEAST)]))


@forms
@pytest.mark.parametrize("step", [99, 20_000, 100_000], ids="{} ns".format)
def test_times(form: Callable[[], Formatter], step: int) -> None:
    made = plan("arg0, arg3, arg5, arg6, arg7")
    hits = [
        record(struct.pack("=5Q", n, 2, 3, n * 3, WORD - n - 1), time=SECOND + n * step)
        for n in range(9000)
    ]
    check(form, made, hits, arrays=step == 99)


@forms
def test_times_that_go_back(form: Callable[[], Formatter]) -> None:
    begin = 7 * TENTH - 123_456_789
    times = [begin + 5] * LEAST
    for place, time in ((1, begin - 1), (LEAST - 1, 3), (LEAST - 2, begin + TENTH), (9, begin + 3)):
        wrong = [*times[:place], time, *times[place + 1 :]]
        hits = [record(struct.pack("=Q", 5), time=one) for one in wrong]
        check(form, UNSIGNED, hits, arrays=False)


@forms
@pytest.mark.parametrize("comm", [b"%d%s%", b'"\\{}\n\x1b', b"caf\xc3\xa9\xff", b"", b"x" * 16])
def test_names_of_threads(form: Callable[[], Formatter], comm: bytes) -> None:
    check(form, plan("comm, arg7", EVERY_TYPE), hits_of([3, 55], comm=comm))


@forms
def test_values_that_were_not_read(form: Callable[[], Formatter]) -> None:
    read, unread = (record(struct.pack("=Qq", bit, -5), time=SECOND) for bit in (0, 1))
    check(form, MAYBE, [read] * LEAST)
    for hits in ([*[read] * 2000, unread, *[read] * 2000], [unread] * LEAST):
        assert check(form, MAYBE, hits, arrays=False).count(b"\n") == len(hits)


@forms
@pytest.mark.parametrize("threads", [2, 17, 100], ids="{} threads".format)
@pytest.mark.parametrize("run", [1, 7, 3000], ids="{} hits in a row".format)
@pytest.mark.parametrize("items", ["arg7", "comm, arg7"])
def test_threads_that_take_turns(
    form: Callable[[], Formatter], run: int, threads: int, items: str
) -> None:
    comms = [b"", b"%d%s%", b"caf\xc3\xa9\xff", b"x" * 16, b"plain"]
    hits = [
        record(
            struct.pack("=Q", n % 7),
            time=SECOND + n,
            tid=10 ** (n // run % threads % 9),
            cpu=n // run % threads // 9,
            comm=comms[n // run % threads % 5],
        )
        for n in range(4096 + LEAST)
    ]
    check(form, plan(items, EVERY_TYPE), hits)


@given(turns=st.lists(st.integers(0, 40), min_size=1, max_size=60))
def test_any_turns_of_threads(turns: list[int]) -> None:
    hits = [
        record(struct.pack("=Q", n), time=SECOND + n, tid=turns[n % len(turns)])
        for n in range(LEAST)
    ]
    check(FORMS["text"], UNSIGNED, hits)


def test_many_threads() -> None:
    hits = [record(struct.pack("=Q", n), time=SECOND + n, tid=n % 257) for n in range(2 * LEAST)]
    check(JsonFormatter, UNSIGNED, hits, arrays=False)


def python(source: str) -> str:
    """What a new process writes."""
    shown = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True, timeout=60
    )
    return shown.stdout


def test_numpy_is_imported_after_many_lines() -> None:
    shown = python(
        "import sys\n"
        "from usdt.bpf.rings.numpy_import import numpy_after\n"
        "for count in (1, 199_998, 1, 1):\n"
        "    print(numpy_after(count) is not None, 'numpy' in sys.modules)\n"
    )
    assert shown.split() == ["False"] * 4 + ["True"] * 4
    assert numpy_after(1) is import_numpy()


def test_numpy_starts_no_threads_and_leaves_the_environment() -> None:
    shown = python(
        "import os\n"
        "from usdt.bpf.rings.numpy_import import import_numpy\n"
        "before = dict(os.environ)\n"
        "import_numpy()\n"
        "print(len(os.listdir('/proc/self/task')), before == dict(os.environ))\n"
    )
    assert shown.split() == ["1", "True"]


def test_without_numpy_lines_are_made_as_before() -> None:
    shown = python(
        "import sys\n"
        "sys.modules['numpy'] = None\n"
        "from usdt.bpf.rings.numpy_import import numpy_after\n"
        "print(numpy_after(1_000_000), numpy_after(1))\n"
    )
    assert shown.split() == ["None", "None"]
