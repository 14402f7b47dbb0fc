"""Records of a trace event that exists → what the formatters show; no kernel is asked."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from kprobe.tracepoints.fields import arguments_of
from usdt.base.errors import TracingError
from usdt.engine.compiler.plan import ProbePlan, make_plan
from usdt.engine.language import parse_probe
from usdt.engine.output.decode import CONTEXT, Decoder
from usdt.engine.output.formatters.json import JsonFormatter
from usdt.engine.runtime.tracefs_backend.evaluate import Rejected
from usdt.engine.runtime.tracefs_backend.event_plan import EventContext
from usdt.engine.runtime.tracefs_backend.trace_event_rows import trace_event_rows
from usdt.tracefs.format import parse_format

_FORM = parse_format(
    """name: made
ID: 77
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:unsigned long __probe_ip;\toffset:8;\tsize:8;\tsigned:0;
\tfield:s32 dfd;\toffset:16;\tsize:4;\tsigned:1;
\tfield:char name[8];\toffset:20;\tsize:8;\tsigned:0;
\tfield:__data_loc char[] path;\toffset:28;\tsize:4;\tsigned:0;
\tfield:__rel_loc u16[] words;\toffset:32;\tsize:4;\tsigned:0;
\tfield:s16 parts[2];\toffset:36;\tsize:4;\tsigned:1;
\tfield:__data_loc char[] gone;\toffset:40;\tsize:4;\tsigned:0;
\tfield:void * skb;\toffset:48;\tsize:8;\tsigned:0;

print fmt: "(%lx) dfd=%d", REC->__probe_ip, REC->dfd
"""
)
_RECORD = struct.pack(
    "=HBBiQi8sIIhhIIQ",
    *(77, 0, 0, 9, 0xFFFFFFFF81000000, -100, b"eth0"),
    *(56 | 12 << 16, 32 | 4 << 16, -3, 4, 0, 0, 0xFFFF888000000040),
)
_RECORD += b"/etc/passwd\0" + struct.pack("=HH", 7, 40000)
_HEAD = EventContext(5, 9, 9, 2)


def _plan(items: str) -> ProbePlan:
    text = f"tracepoint:a:made({items})"
    return make_plan(
        parse_probe(text).items, arguments_of(_FORM), text=text, probe="made", declared=0
    )


def _shown(items: str, *, max_comm: bytes = b"cat") -> dict[str, Any] | None:
    rows = trace_event_rows(_plan(items), _FORM)
    context = CONTEXT.pack(9, 9, 2, 0, max_comm)
    row = rows.row(_RECORD, context, _HEAD, max_comm)
    if isinstance(row, Rejected):
        return None
    decoder = Decoder(JsonFormatter())
    decoder.add_layout(0, "made", rows.layout)
    (line,) = decoder.render(0, [row])
    found: dict[str, Any] = json.loads(line)
    return found


@pytest.mark.parametrize(
    ("items", "args"),
    [
        pytest.param("dfd", {"dfd": -100}, id="a signed number"),
        pytest.param("dfd + 1, dfd < 0", {"dfd+1": -99}, id="computed"),
        pytest.param("name", {"name": "eth0"}, id="a string of fixed size"),
        pytest.param("path", {"path": "/etc/passwd"}, id="a string elsewhere in the record"),
        pytest.param("str(path, 4)", {"str(path,4)": "/etc"}, id="a string that is cut"),
        pytest.param("gone", {"gone": {"error": "memory not readable"}}, id="an unread string"),
        pytest.param("parts", {"parts": [-3, 4]}, id="an array"),
        pytest.param("parts[0]", {"parts[0]": -3}, id="an element"),
        pytest.param("words", {"words": [7, 40000]}, id="an array of variable length"),
        pytest.param("hex(skb)", {"hex(skb)": "0xffff888000000040"}, id="hexadecimal"),
        pytest.param(
            "pid, tid, cpu, comm", {"pid": 9, "tid": 9, "cpu": 2, "comm": "cat"}, id="who"
        ),
        pytest.param("1 / (dfd + 100)", {"1/(dfd+100)": {"error": "division by zero"}}, id="fails"),
        pytest.param(
            "*(int *)skb",
            {"*(int*)skb": {"error": "memory, which the event's record only points to"}},
            id="what the record points to",
        ),
        pytest.param("uid", {"uid": {"error": "uid, which an event does not record"}}, id="uid"),
    ],
)
def test_items_are_read_from_the_record(items: str, args: dict[str, Any]) -> None:
    found = _shown(items)
    assert found is not None
    shown = found["args"]
    assert {key: shown[key] for key in args} == args


@pytest.mark.parametrize(
    ("predicate", "holds"),
    [
        pytest.param("dfd == -100", True, id="a number"),
        pytest.param("dfd > 0", False, id="a number that is not"),
        pytest.param('path == "/etc/*"', True, id="the beginning of a string"),
        pytest.param('path == "*passwd"', True, id="the end of a string"),
        pytest.param('name != "eth0"', False, id="a string of fixed size"),
        pytest.param('comm == "cat"', True, id="the thread's name"),
        pytest.param('gone == "x"', False, id="what could not be read"),
        pytest.param('gone != "x"', False, id="nor differs"),
        pytest.param("parts[1] == 4 && cpu == 2", True, id="joined"),
        pytest.param(r'parts == "\xfd\xff\4\0"', True, id="bytes"),
        pytest.param(r'parts == "\xfd\xff\5\0"', False, id="other bytes"),
    ],
)
def test_predicates_are_decided_from_the_record(predicate: str, holds: bool) -> None:
    assert (_shown(f"{predicate}, dfd") is not None) is holds


@pytest.mark.parametrize(
    ("predicate", "text"),
    [
        pytest.param("dfd < 0", "dfd < 0", id="a number"),
        pytest.param('path == "/etc/*"', 'path ~ "/etc/*"', id="a pattern"),
        pytest.param('comm == "cat" && tid > 5', '(COMM == "cat") && (common_pid > 5)', id="who"),
        pytest.param("parts[0] == 3", "", id="an element is no field"),
        pytest.param("dfd + 1 == 3", "", id="computed"),
    ],
)
def test_the_kernel_filters_what_it_can(predicate: str, text: str) -> None:
    assert trace_event_rows(_plan(predicate), _FORM).filter == text


def test_a_predicate_that_no_record_decides_is_refused() -> None:
    with pytest.raises(TracingError, match="cannot be decided through tracefs: memory, which"):
        trace_event_rows(_plan("*(int *)skb == 5"), _FORM)


def test_a_short_record_shows_what_it_has() -> None:
    rows = trace_event_rows(_plan("dfd, path, parts, words, gone"), _FORM)
    row = rows.row(_RECORD[:30], CONTEXT.pack(9, 9, 2, 0, b""), _HEAD, b"")
    assert not isinstance(row, Rejected)
    assert row[-8:] == (-14, b"", 0, b"", 0, b"", -14, b"")


@pytest.mark.parametrize(
    ("predicates", "why"),
    [
        ('gone == "a*b*c"', Rejected.UNDECIDED),
        ("100 / (dfd + 100) == 1", Rejected.UNDECIDED),
        ("dfd > 0", Rejected.FALSE),
        ('dfd > 0, gone == "a*b*c"', Rejected.FALSE),
        ('dfd > 0 && gone == "a*b*c"', Rejected.FALSE),
    ],
)
def test_a_hit_that_is_not_shown_says_why(predicates: str, why: Rejected) -> None:
    rows = trace_event_rows(_plan(predicates), _FORM)
    assert rows.row(_RECORD, CONTEXT.pack(9, 9, 2, 0, b""), _HEAD, b"") is why
