"""Bytes as the programs write them, decoded: every form of value, runs, mixtures, odd contents."""

from __future__ import annotations

import json
import math
import struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planning import EVERY_TYPE, argument, memory, plan
from recordings import record, text

from usdt.arch.locations import Unreadable
from usdt.bpf.rings.ringbuf import BUSY, DISCARD
from usdt.engine.output import decode
from usdt.engine.output.decode import BadRecord, Decoder
from usdt.engine.output.formatters.event import EventFormatter
from usdt.engine.output.formatters.json import JsonFormatter
from usdt.engine.output.formatters.text import TextFormatter

if TYPE_CHECKING:
    from usdt.engine.compiler.plan import ProbePlan
    from usdt.engine.output.formatters.formatter import Formatter

_FAULT = -14


def decoded(form: Formatter, made: ProbePlan, *data: bytes, probe: str = "p:q") -> list[Any]:
    """What becomes of records of one plan."""
    decoder = Decoder(form)
    decoder.add(1, probe, made)
    return [item for batch in decoder.batches(b"".join(data)) for item in batch]


def strictly(line: str) -> dict[str, Any]:
    """One JSON line as a strict parser takes it: no NaN, no key twice, ASCII."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    assert line.endswith("\n")
    assert line.count("\n") == 1
    assert line.isascii()
    found = json.loads(line, parse_constant=refuse, object_pairs_hook=once)
    assert isinstance(found, dict)
    return found


def args(made: ProbePlan, payload: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments of one record, as JSON has them and as an Event has them."""
    (line,) = decoded(JsonFormatter(), made, record(payload))
    (event,) = decoded(EventFormatter(), made, record(payload))
    return strictly(line)["args"], event.args


def test_the_context_of_an_event() -> None:
    data = record(b"", time=1 << 60, pid=1, tid=(1 << 32) - 1, cpu=63, comm=b"fifteen-bytes-x")
    (event,) = decoded(EventFormatter(), plan("", ()), data, probe="a:b")
    assert (*event,) == (1 << 60, 1, (1 << 32) - 1, 63, "fifteen-bytes-x", "a:b", {}, "hit")
    (line,) = decoded(JsonFormatter(), plan("", ()), data, probe="a:b")
    expected = {"time": 1 << 60, "pid": 1, "tid": (1 << 32) - 1, "cpu": 63}
    assert strictly(line) == expected | {"comm": "fifteen-bytes-x", "probe": "a:b", "args": {}}
    assert list(strictly(line)) == ["time", "pid", "tid", "cpu", "comm", "probe", "args"]


@pytest.mark.parametrize(
    ("comm", "shown"),
    [
        pytest.param(b"", "", id="no name"),
        pytest.param(b"a\0garbage", "a", id="what is behind the NUL was another's"),
        pytest.param(b"sixteen bytes no", "sixteen bytes no", id="no NUL"),
        pytest.param(b'"\\{}\n\x1b', '"\\{}\n\x1b', id="quotes, braces, control characters"),
        pytest.param(b"caf\xc3\xa9\xff", "café\udcff", id="bytes that are not UTF-8"),
    ],
)
def test_command_names(comm: bytes, shown: str) -> None:
    made = plan("comm")
    (event,) = decoded(EventFormatter(), made, record(b"", comm=comm))
    assert (event.comm, event.args) == (shown, {"comm": shown})
    (line,) = decoded(JsonFormatter(), made, record(b"", comm=comm))
    assert (strictly(line)["comm"], strictly(line)["args"]) == (shown, {"comm": shown})


_INTEGERS = plan(", ".join(f"arg{n}" for n in range(8)))


@pytest.mark.parametrize(
    "values",
    [
        pytest.param((-1, 255, -1, 65535, -1, (1 << 32) - 1, -1, (1 << 64) - 1), id="all bits"),
        pytest.param((0,) * 8, id="none"),
        pytest.param((-128, 0, -32768, 0, -(1 << 31), 0, -(1 << 63), 0), id="the least"),
        pytest.param((127, 255, 32767, 1, (1 << 31) - 1, 1, (1 << 63) - 1, 1), id="the largest"),
    ],
)
def test_integers(values: tuple[int, ...]) -> None:
    from_json, from_event = args(_INTEGERS, struct.pack("=8q", *[_wrap(v) for v in values]))
    assert from_json == from_event == {f"arg{n}": value for n, value in enumerate(values)}


def _wrap(value: int) -> int:
    return value - (1 << 64) if value >> 63 > 0 else value


@pytest.mark.parametrize(
    ("index", "value", "shown"),
    [
        pytest.param(0, -1, "0xff", id="a signed byte"),
        pytest.param(2, -2, "0xfffe", id="16 bits"),
        pytest.param(4, -(1 << 31), "0x80000000", id="32 bits"),
        pytest.param(6, -1, "0xffffffffffffffff", id="64 bits"),
        pytest.param(7, 0, "0x0", id="zero"),
    ],
)
def test_hexadecimal_has_the_width_of_the_type(index: int, value: int, shown: str) -> None:
    key = f"hex(arg{index})"
    assert args(plan(key), struct.pack("=q", value)) == ({key: shown}, {key: shown})


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        pytest.param(1.5, 1.5, id="a number"),
        pytest.param(-0.0, -0.0, id="minus zero"),
        pytest.param(5e-324, 5e-324, id="the smallest"),
        pytest.param(1.7976931348623157e308, 1.7976931348623157e308, id="the largest"),
        pytest.param(math.inf, "Infinity", id="infinity"),
        pytest.param(-math.inf, "-Infinity", id="minus infinity"),
        pytest.param(math.nan, "NaN", id="not a number"),
    ],
)
def test_floats_are_valid_json(value: float, shown: float | str) -> None:
    made = plan("arg0, arg1", (argument(0, "f64"), argument(1, "f32")))
    small = value if not math.isfinite(value) or abs(value) < 1e30 else 0.0
    from_json, from_event = args(made, struct.pack("=df4s", value, small, b"\xff" * 4))
    assert repr(from_json["arg0"]) == repr(shown)
    assert repr(from_event["arg0"]) == repr(value)
    assert repr(from_event["arg1"]) == repr(struct.unpack("=f", struct.pack("=f", small))[0])


def test_what_programs_leave_behind_a_32_bit_float_is_not_shown() -> None:
    made = plan("arg0", (argument(0, "f32"),))
    assert args(made, struct.pack("=fI", 0.25, 0xFFFFFFFF))[1] == {"arg0": 0.25}


@pytest.mark.parametrize("size", [1, 3, 8, 16, 24])
def test_aggregates(size: int) -> None:
    made = plan("arg0, arg1", (argument(0, f"b{size}", memory(size)), argument(1, "u64")))
    value = bytes(range(200, 200 + size))
    payload = struct.pack("=Q", 0) + value + b"#" * (-size % 8) + struct.pack("=q", 5)
    from_json, from_event = args(made, payload)
    assert from_json == {"arg0": value.hex(), "arg1": 5}
    assert from_event == {"arg0": value, "arg1": 5}


@pytest.mark.parametrize(
    ("value", "shown", "eyes"),
    [
        pytest.param(b"hello\0", "hello", '"hello"', id="a string and its NUL"),
        pytest.param(b"\0", "", '""', id="empty"),
        pytest.param(b"exactly\0", "exactly", '"exactly"...', id="as long as there is room: cut"),
        pytest.param(b"\xff\xfe\0", "\udcff\udcfe", '"\\xff\\xfe"', id="not UTF-8"),
        pytest.param(b"caf\xc3\0", "caf\udcc3", '"caf\\xc3"', id="cut inside a character"),
        pytest.param(b"\xc3\xa9\0", "é", '"é"', id="UTF-8"),
        pytest.param(b"a\nb\t\0", "a\nb\t", '"a\\nb\\t"', id="control characters"),
        pytest.param(b"\"\\{}'\0", "\"\\{}'", '"\\"\\\\{}\'"', id="quotes and braces"),
        pytest.param(b"\xed\xa0\x80\0", "\udced\udca0\udc80", '"\\xed\\xa0\\x80"', id="surrogates"),
    ],
)
def test_strings(value: bytes, shown: str, eyes: str) -> None:
    made = plan("str(arg7, 7)")
    key = "str(arg7,7)"
    for stale in (b"#", b"\0", b"\xff"):
        payload = text(value, 8, stale=stale)
        assert args(made, payload) == ({key: shown}, {key: shown})
        (line,) = decoded(TextFormatter(), made, record(payload))
        assert line.endswith(f"  {key}={eyes}\n")


@pytest.mark.parametrize(
    ("value", "shown", "eyes"),
    [
        pytest.param(b"", "", '""', id="of no length"),
        pytest.param(b"abcde", "abcde", '"abcde"', id="of its whole length"),
        pytest.param(b"a\0b", "a\0b", '"a\\x00b"', id="with a NUL inside"),
        pytest.param(b"\0\0", "\0\0", '"\\x00\\x00"', id="of NULs alone"),
        pytest.param(b"\x80\n", "\udc80\n", '"\\x80\\n"', id="not UTF-8"),
    ],
)
def test_buffers(value: bytes, shown: str, eyes: str) -> None:
    made = plan("buf(arg7, 5)")
    key = "buf(arg7,5)"
    assert args(made, text(value, 5)) == ({key: shown}, {key: shown})
    (line,) = decoded(TextFormatter(), made, record(text(value, 5)))
    assert line.endswith(f"  {key}={eyes}\n")


@pytest.mark.parametrize(
    ("length", "reason"),
    [
        pytest.param(_FAULT, "memory not readable", id="EFAULT"),
        pytest.param(-7, "errno 7", id="any other error"),
        pytest.param(-(1 << 63), f"errno {1 << 63}", id="nonsense"),
    ],
)
@pytest.mark.parametrize("key", ["str(arg7,4)", "buf(arg7,5)"])
def test_errors_of_strings_and_buffers(key: str, length: int, reason: str) -> None:
    made = plan(key)
    payload = text(b"abc\0", 5, length=length)
    assert args(made, payload) == ({key: {"error": reason}}, {key: Unreadable(reason)})
    (line,) = decoded(TextFormatter(), made, record(payload))
    assert line.endswith(f"  {key}=?({reason})\n")


def test_values_that_could_not_be_read_are_marked() -> None:
    made = plan("arg4, arg8, arg12, *(int *)arg7, arg4 / arg5, arg11, arg9")
    nothing = {"arg12": {"error": "thread-local"}}
    for marks, unreadable in (
        (0, {}),
        (1 << 1, {"arg8": "memory not readable"}),
        (1 << 4, {"arg4/arg5": "division by zero"}),
        (1 << 3 | 1 << 5, {"*(int*)arg7": "memory not readable", "arg11": "memory not readable"}),
        (1 << 6, {"arg9": "memory not readable"}),
    ):
        payload = struct.pack("=Q", marks) + struct.pack("=4q24sd", 1, 2, 3, 4, b"", 0.5)
        from_json, from_event = args(made, payload)
        errors = {key: {"error": reason} for key, reason in unreadable.items()}
        plain = {"arg4": 1, "arg8": 2, "*(int*)arg7": 3, "arg4/arg5": 4, "arg11": "00" * 24}
        assert from_json == plain | {"arg9": 0.5} | nothing | errors
        assert {key for key, value in from_event.items() if isinstance(value, Unreadable)} == {
            "arg12",
            *unreadable,
        }


@pytest.mark.parametrize(
    "item",
    [
        pytest.param('(str(arg7)=="a\\"b")+0', id="a quote"),
        pytest.param('(str(arg7)=="{x!r}{{}}")+0', id="braces"),
        pytest.param('(str(arg7)=="\\\\n\\x41")+0', id="backslashes"),
        pytest.param("(str(arg7)==\"'''\")+'\\''", id="apostrophes"),
        pytest.param('(str(arg7)=="a\nb\tc\x1b")+0', id="control characters"),
        pytest.param('(str(arg7)=="é€\U0001f600")+0', id="other alphabets"),
        pytest.param('(str(arg7)=="\udcff")+0', id="a byte that is not UTF-8"),
        pytest.param("arg4%3+arg5%7", id="per cent"),
    ],
)
def test_any_item_can_be_a_key(item: str) -> None:
    made = plan(item)
    marks = struct.pack("=Q", 0) if made.bitmap_offset is not None else b""
    payload = marks + struct.pack("=q", 42)
    assert args(made, payload) == ({item: 42}, {item: 42})
    (line,) = decoded(TextFormatter(), made, record(payload))
    assert line.endswith("=42\n")
    assert line[:-1].isprintable()


def test_the_most_values_there_can_be() -> None:
    made = plan(", ".join(f"*(int *)(arg7+{n})" for n in range(64)))
    payload = struct.pack("=Q64q", 1 << 63 | 1, *range(64))
    from_json, _ = args(made, payload)
    assert [*from_json.values()][1:63] == [*range(1, 63)]
    assert from_json["*(int*)(arg7+0)"] == from_json["*(int*)(arg7+63)"]
    assert from_json["*(int*)(arg7+0)"] == {"error": "memory not readable"}


def numbers(events: list[Any]) -> list[tuple[str, Any]]:
    return [(event.probe, *event.args.values()) for event in events]


def test_a_long_run_comes_in_portions() -> None:
    data = b"".join(record(struct.pack("=q", n), time=n) for n in range(5000))
    decoder = Decoder(EventFormatter())
    decoder.add(1, "p:q", plan("arg6"))
    batches = [*decoder.batches(data)]
    assert [len(batch) for batch in batches] == [2048, 2048, 904]
    flat = [event for batch in batches for event in batch]
    assert (
        [event.time for event in flat] == [event.args["arg6"] for event in flat] == [*range(5000)]
    )


def test_records_that_take_turns_come_in_portions() -> None:
    decoder = Decoder(EventFormatter())
    decoder.add(1, "p:one", plan("arg6"))
    decoder.add(2, "p:two", plan("", ()))
    decoder.add(3, "p:three", plan("arg7"))  # as long as the first
    payloads = {1: struct.pack("=q", 1), 2: b"", 3: struct.pack("=q", 3)}
    order = [1, 2, 3, 3, 1] * 1000 + [1] * 100
    data = b"".join(record(payloads[case], case=case, time=n) for n, case in enumerate(order))
    batches = [*decoder.batches(data)]
    assert max(map(len, batches)) <= 2048
    flat = [event for batch in batches for event in batch]
    assert [event.time for event in flat] == [*range(len(order))]
    names = {1: "p:one", 2: "p:two", 3: "p:three"}
    assert [event.probe for event in flat] == [names[case] for case in order]


def test_hidden_cases_are_passed_over() -> None:
    decoder = Decoder(EventFormatter())
    decoder.add(1, "p:one", plan("arg6"))
    decoder.add_layout(2, "p:two", plan("", ()).layout, hidden=True)
    order = [1, 2, 2, 1] * 20 + [2] * 5000 + [1] * 20
    payloads = {1: struct.pack("=q", 1), 2: b""}
    data = b"".join(record(payloads[case], case=case, time=n) for n, case in enumerate(order))
    found = [event.time for batch in decoder.batches(data) for event in batch]
    assert found == [n for n, case in enumerate(order) if case == 1]


@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(record(bytes(8), case=7), id="of an unknown case"),
        pytest.param(record(bytes(16), case=1), id="longer than its case's"),
        pytest.param(record(b"", case=1), id="shorter than its case's"),
        pytest.param(struct.pack("=II", 8, 0) + bytes(8), id="too short for any"),
        pytest.param(record(bytes(8), case=1, flags=BUSY), id="not submitted"),
    ],
)
def test_bytes_that_are_no_record(bad: bytes, count: int) -> None:
    good = record(struct.pack("=q", 5))
    for data in (bad * count, good + bad * count + good, good * 40 + bad * count):
        with pytest.raises(BadRecord):
            decoded(EventFormatter(), plan("arg6"), data)


@pytest.mark.parametrize("count", [1, 15, 16, 17, 100])
def test_a_record_that_is_cut(count: int) -> None:
    good = record(struct.pack("=q", 5))
    gone = record(struct.pack("=q", 5), flags=DISCARD)
    for data in (good * count, gone * count):
        for missing in (8, 16, 48):
            with pytest.raises(BadRecord):
                decoded(EventFormatter(), plan("arg6"), data[:-missing])


def test_cases_of_all_layouts_in_any_order() -> None:
    decoder = Decoder(EventFormatter())
    decoder.add(1, "p:one", plan("arg6"))
    decoder.add(2, "p:two", plan("arg7"))  # of the same length
    decoder.add(3, "p:three", plan("str(arg7, 15)"))
    decoder.add(4, "p:four", plan("", ()))
    decoder.add(5, "p:one", plan("arg6"))  # the same again, at another number
    payloads = {
        1: struct.pack("=q", -1),
        2: struct.pack("=q", -1),
        3: text(b"x\0", 16),
        4: b"",
        5: struct.pack("=q", 6),
    }
    shown = {
        1: ("p:one", -1),
        2: ("p:two", (1 << 64) - 1),
        3: ("p:three", "x"),
        4: ("p:four",),
        5: ("p:one", 6),
    }
    order = [1, 2, 1, 1, 3, 2, 2, 4, 4, 5, 1, 3, 3, 3, 4, 1, 2, 5, 5]
    data = b"".join(record(payloads[case], case=case) for case in order)
    found = [event for batch in decoder.batches(data) for event in batch]
    assert numbers(found) == [shown[case] for case in order]


def test_discarded_records_are_skipped_whatever_they_hold() -> None:
    good = [record(struct.pack("=q", n)) for n in range(4)]
    bad = record(b"\xff" * 8, case=0xFFFFFFFF, flags=DISCARD)
    longer = record(b"\xff" * 80, case=0xFFFFFFFF, flags=DISCARD)
    data = (bad, good[0], bad, bad, good[1], longer, good[2], good[3], longer)
    found = decoded(EventFormatter(), plan("arg6"), *data)
    assert numbers(found) == [("p:q", n) for n in range(4)]
    assert decoded(EventFormatter(), plan("arg6"), bad, longer) == []
    assert decoded(EventFormatter(), plan("arg6")) == []


def test_each_context_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Counting(EventFormatter):
        def context(self, pid: int, *rest: Any) -> Any:
            asked.append(pid)
            return super().context(pid, *rest)

    data = b"".join(record(struct.pack("=q", n), pid=n % 3) for n in range(300))
    assert len(decoded(Counting(), plan("arg6"), data)) == 300
    assert asked == [0, 1, 2]
    # A tracer of very many threads starts afresh instead of growing; nothing is lost by it.
    monkeypatch.setattr(decode, "_CONTEXTS", 10)
    many = [record(struct.pack("=q", n), tid=n) for n in range(100)]
    mixed = [item for pair in zip(many, [record(b"", case=2)] * 100, strict=True) for item in pair]
    decoder = Decoder(EventFormatter())
    decoder.add(1, "p:q", plan("arg6"))
    decoder.add(2, "p:r", plan("", ()))
    found = [event for batch in decoder.batches(b"".join(mixed)) for event in batch]
    assert [event.tid for event in found if event.probe == "p:q"] == [*range(100)]
    assert len(decoder._contexts) <= 12


_STRING = st.binary(max_size=15).map(lambda value: value.split(b"\0", 1)[0])


@given(
    st.lists(
        st.tuples(
            st.integers(-(1 << 63), (1 << 63) - 1),
            st.floats(allow_nan=True, width=64),
            _STRING,
            st.binary(max_size=9),
            st.integers(0, 1),
            st.integers(1, 2),
        ),
        max_size=20,
    )
)
def test_whatever_programs_write_is_valid_json_and_agrees_with_events(rows: list[Any]) -> None:
    made = plan("arg6, arg8, arg9, str(arg7, 15), buf(arg7, arg4)", max_string=9)
    data = b""
    for number, real, string, buffer, mark, case in rows:
        payload = struct.pack("=Qqqd", mark << 1, number, 3, real)
        payload += text(string + b"\0", 16) + text(buffer, 9)
        data += record(payload, case=case)
    decoders = Decoder(JsonFormatter()), Decoder(EventFormatter()), Decoder(TextFormatter())
    for decoder in decoders:
        decoder.add(1, "p:q", made)
        decoder.add(2, 'odd:"\x1b{}', made)
    lines, events, eyes = ([i for b in d.batches(data) for i in b] for d in decoders)
    for row, line, event, seen in zip(rows, lines, events, eyes, strict=True):
        number, real, string, buffer, mark, _ = row
        found = strictly(line)
        assert found["probe"] == event.probe
        expected = {
            "arg6": number,
            "arg8": {"error": "memory not readable"} if mark else 3,
            "arg9": real if math.isfinite(real) else _word(real),
            "str(arg7,15)": string.decode("utf-8", "surrogateescape"),
            "buf(arg7,arg4)": buffer.decode("utf-8", "surrogateescape"),
        }
        assert found["args"] == expected
        assert event.args["str(arg7,15)"] == expected["str(arg7,15)"]
        assert isinstance(event.args["arg8"], Unreadable) == bool(mark)
        assert seen[:-1].isprintable()


def _word(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def test_every_kind_of_argument_at_once() -> None:
    made = plan("")
    reals = struct.pack("=df4x", 0.5, 0.25)
    payload = struct.pack("=Q9q", 0, *range(9)) + reals + bytes(24)
    _, from_event = args(made, payload)
    expected: dict[str, Any] = {f"arg{n}": n for n in range(9)}
    expected |= {"arg9": 0.5, "arg10": 0.25}
    expected |= {"arg11": bytes(24), "arg12": Unreadable("thread-local")}
    assert from_event == expected
    assert list(from_event) == [item.name for item in EVERY_TYPE]
