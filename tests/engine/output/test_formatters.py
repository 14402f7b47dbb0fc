"""What reaches a terminal: nothing that a traced process can say is taken for a command by it."""

from __future__ import annotations

import json
import re
import struct
import time
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planning import argument, plan

from usdt.arch.locations import Unreadable
from usdt.base.terminal.look import COLOURED, PLAIN
from usdt.engine.output.decode import Decoder
from usdt.engine.output.formatters import formatter as formatting
from usdt.engine.output.formatters.event import EventFormatter
from usdt.engine.output.formatters.formatter import Formatter, escape
from usdt.engine.output.formatters.json import JsonFormatter
from usdt.engine.output.formatters.text import TextFormatter
from usdt.engine.output.wall_clock import WallClock

# A terminal acts on C0 and C1 control characters (ECMA-48); Unicode's own change what is seen
# where: directions of writing, invisible characters, line and paragraph separators.
_ACTIVE = re.compile(r"[\x00-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("", "", id="nothing"),
        pytest.param("plain text, 100%", "plain text, 100%", id="plain text"),
        pytest.param("çé€ 漢字 \U0001f600", "çé€ 漢字 \U0001f600", id="any alphabet"),
        pytest.param("a\nb\rc\td", "a\\nb\\rc\\td", id="line ends and tabs by their names"),
        pytest.param("\x1b[2J", "\\x1b[2J", id="an escape sequence"),
        pytest.param("\x1b]0;title\x07", "\\x1b]0;title\\x07", id="one that sets the title"),
        pytest.param("\0\x08\x7f", "\\x00\\x08\\x7f", id="NUL, backspace, delete"),
        pytest.param("\x9b31m", "\\u009b31m", id="an 8-bit control sequence as a character"),
        pytest.param("\udc9b31m", "\\x9b31m", id="and as a byte that is not UTF-8"),
        pytest.param("\udc80\udcff", "\\x80\\xff", id="the bytes that are no UTF-8"),
        pytest.param("\ud800\udbff", "\\ud800\\udbff", id="other surrogates"),
        pytest.param("abc\u202edef", "abc\\u202edef", id="right to left"),
        pytest.param("\u200b\ufeff\xad", "\\u200b\\ufeff\\u00ad", id="what has no width"),
        pytest.param("\u2028\u2029\x85", "\\u2028\\u2029\\u0085", id="other line ends"),
        pytest.param("\U000e0041", "\\U000e0041", id="beyond 16 bits"),
        pytest.param("back\\slash", "back\\slash", id="a backslash stays"),
    ],
)
def test_escape(text: str, shown: str) -> None:
    assert escape(text) == shown


def test_few_characters_are_kept() -> None:
    text = "".join(map(chr, range(32, 20_000)))
    alone = "".join(
        character if character.isprintable() else escape(character) for character in text
    )
    assert escape(text) == escape(text) == alone
    assert len(formatting._ESCAPED) <= 4096


@given(st.text(st.characters(codec=None)))  # surrogates as well
def test_escaped_text_only_shows(text: str) -> None:
    found = escape(text)
    assert found.isprintable()
    assert not _ACTIVE.search(found)
    assert (found == text) is text.isprintable()


@given(st.binary())
def test_any_bytes_from_a_process(data: bytes) -> None:
    found = escape(data.decode("utf-8", "surrogateescape"))
    found.encode("utf-8")  # it can be written, whatever the terminal's encoding is
    assert not _ACTIVE.search(found)


_TITLE = b"\x1b]0;own\x07"


def _record(comm: bytes, value: bytes) -> bytes:
    body = struct.pack("=QIIII16s", 1, 2, 3, 4, 1, comm)
    body += struct.pack("=q", len(value)) + value + bytes(-len(value) % 8) + bytes(32 - len(value))
    body = body[: 40 + 8 + 32]
    return struct.pack("=II", len(body), 0) + body


def _lines(
    form: Formatter, comm: bytes, value: bytes, probe: str = "p:q", item: str = ""
) -> list[str]:
    decoder = Decoder(form)
    made = plan(item or "str(arg0, 31), comm", (argument(0, "u64"),))
    decoder.add(1, probe, made)
    return [line for batch in decoder.batches(_record(comm, value)) for line in batch]


_HOSTILE = {
    "sets the title": _TITLE,
    "clears the screen": b"\x1b[2J\x1b[H",
    "8-bit control": b"\x9b2J",
    "8-bit control in UTF-8": "\x9b2J".encode(),
    "a line of its own": b"\n12:00:00 forged\n",
    "overwrites the line": b"\rforged",
    "backspaces": b"\x08\x08\x08x",
    "turns the line around": "\u202etxet".encode(),
    "closes the quote": b'" arg9="1',
    "closes it with a backslash": b'\\" arg9="1',
    "DEL and NUL": b"\x7f\x00\x7f",
    "braces": b"{contexts}{{}}",
}


@pytest.mark.parametrize("hostile", _HOSTILE.values(), ids=_HOSTILE)
@pytest.mark.parametrize("colour", [False, True], ids=["plain", "colour"])
def test_nothing_hostile_reaches_the_terminal(hostile: bytes, colour: bool) -> None:
    probe = f"odd:{hostile.decode('utf-8', 'surrogateescape')}"
    (line,) = _lines(
        TextFormatter(look=COLOURED if colour else PLAIN), hostile[:16], hostile[:30] + b"\0", probe
    )
    assert line.endswith("\n")
    ours = line[:-1].replace("\x1b[36m", "", 1).replace("\x1b[0m", "", 1) if colour else line[:-1]
    assert not _ACTIVE.search(ours)
    line.encode("utf-8")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        pytest.param(b'"', '"\\""', id="a quote"),
        pytest.param(b"\\", '"\\\\"', id="a backslash"),
        pytest.param(b'\\"', '"\\\\\\""', id="both"),
        pytest.param(b"\\x41", '"\\\\x41"', id="what looks like an escape"),
        pytest.param(b"\x01", '"\\x01"', id="an escape"),
    ],
)
def test_strings_in_quotes_are_unambiguous(value: bytes, shown: str) -> None:
    (line,) = _lines(TextFormatter(), value, value + b"\0")
    assert line.endswith(f"  str(arg0,31)={shown}  comm={shown}\n")


def test_probe_and_item_names_are_escaped_too() -> None:
    item = '(comm=="\x1b]0;x\x07\n") + 0, str(arg0, 23)'
    (line,) = _lines(TextFormatter(), b"c", bytes(24), f"p:{_TITLE.decode()}", item)
    assert "p:\\x1b]0;own\\x07" in line
    assert '(comm=="\\x1b]0;x\\x07\\n")+0=' in line
    assert line[:-1].isprintable()


def test_json_lines_are_ascii_whatever_they_hold() -> None:
    for hostile in _HOSTILE.values():
        name = hostile.decode("utf-8", "surrogateescape")
        (line,) = _lines(JsonFormatter(), hostile[:15], hostile[:30] + b"\0", f"p:{name}")
        assert line.isascii()
        assert line[:-1].isprintable()
        found = json.loads(line)
        assert found["probe"] == f"p:{name}"
        comm = hostile[:15].split(b"\0", 1)[0].decode("utf-8", "surrogateescape")
        assert found["comm"] == found["args"]["comm"] == comm
        assert found["args"]["str(arg0,31)"] == hostile[:30].decode("utf-8", "surrogateescape")


def test_the_columns_of_a_line() -> None:
    form = TextFormatter()
    (line,) = _lines(form, b"nginx", b"GET\0")
    clock, cpu, process, comm, probe, *values = line.split()
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{6}", clock)
    assert (cpu, process, comm, probe) == ("4", "3/2", "nginx", "p:q")
    assert values == ['str(arg0,31)="GET"', 'comm="nginx"']
    assert form.context(5, 5, 0, "x", "p:q")[0].split()[:2] == ["0", "5"], "one number for both"


def test_the_clock_shows_the_time_of_day() -> None:
    clock = WallClock()
    now = time.monotonic_ns()
    before = time.time()
    shown = [clock.time_of_day(now - step * 1_000_000_000) for step in (0, 1, 0)]
    assert shown[0] == shown[2] != shown[1]
    seconds = {time.strftime("%H:%M:%S", time.localtime(before + by)) for by in (-1, 0, 1)}
    assert shown[0].split(".")[0] in seconds
    assert clock.time_of_day(now + 1000) != clock.time_of_day(now), "microseconds count"


def test_colour_surrounds_the_probe_alone() -> None:
    plain = TextFormatter().context(1, 1, 0, "c", "p:q")[0]
    coloured = TextFormatter(look=COLOURED).context(1, 1, 0, "c", "p:q")[0]
    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[\d+m", "", coloured) == plain
    assert re.search(r"\x1b\[36mp:q +\x1b\[0m", coloured)


def test_reasons_are_kept_once() -> None:
    form = EventFormatter()
    names = [form.unreadable(reason) for reason in ("one", "two", "one", "two")]
    assert names[:2] == names[2:]
    assert [form.names[name] for name in names[:2]] == [Unreadable("one"), Unreadable("two")]
    text = TextFormatter()
    assert text.names[text.unreadable("odd \x1b[2J")] == "?(odd \\x1b[2J)"


def test_dates_of_events() -> None:
    clock = WallClock(1_700_000_000 * 1_000_000_000)
    (line,) = _lines(JsonFormatter(clock=clock), b"c", bytes(24))
    record = json.loads(line)
    when = datetime.fromisoformat(record["timestamp"])
    assert int(when.timestamp()) == 1_700_000_000 + record["time"] // 1_000_000_000
    (line,) = _lines(
        TextFormatter(offset=1_700_000_000 * 1_000_000_000, realtime=True), b"c", bytes(24)
    )
    assert datetime.fromisoformat(line.split()[0]) == when
    assert "timestamp" not in _lines(JsonFormatter(), b"c", bytes(24))[0]
