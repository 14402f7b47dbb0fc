"""Hits of ``kprobe event watch`` as text and JSON, and where their probes are."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kprobe.cli.event.rendering import COMM, EventRenderer
from usdt.engine.output.kernel_symbols import KernelSymbols
from usdt.tracefs.format import parse_format
from usdt.tracefs.session import TraceRecord

_SYMBOLS = KernelSymbols(
    b"ffffffff81000000 T do_sys_openat2\n"
    b"ffffffff81000100 T __x64_sys_openat\n"
    b"ffffffffc0000000 t ovl_open\t[overlay]\n"
)
_ENTRY = """\
name: kk
ID: 1700
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned long __probe_ip;\toffset:8;\tsize:8;\tsigned:0;
\tfield:s32 dfd;\toffset:16;\tsize:4;\tsigned:1;

print fmt: "(%lx) dfd=%d", REC->__probe_ip, REC->dfd
"""
_RETURN = """\
name: rr
ID: 1701
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned long __probe_func;\toffset:8;\tsize:8;\tsigned:0;
\tfield:unsigned long __probe_ret_ip;\toffset:16;\tsize:8;\tsigned:0;
\tfield:u64 at;\toffset:24;\tsize:8;\tsigned:0;

print fmt: "(%lx <- %lx) at=%pS", REC->__probe_func, REC->__probe_ret_ip, (void *)REC->at
"""
_IP, _FUNC, _CALLER = "__probe_ip", "__probe_func", "__probe_ret_ip"
_OPEN, _CALL, _MODULE = 0xFFFFFFFF81000000, 0xFFFFFFFF8100016B, 0xFFFFFFFFC0000010


def _renderer(text: str, *, in_kernel: bool = True) -> EventRenderer:
    form = parse_format(text)
    return EventRenderer("kprobes/kk", form, in_kernel=in_kernel, symbols=lambda: _SYMBOLS)


def _hit(**values: Any) -> TraceRecord:
    return TraceRecord(5_000_000_000, 1, 7, "usdt_1/e0_kk", {**values, COMM: "cat"})


@pytest.mark.parametrize(
    ("form", "values", "in_kernel", "shown"),
    [
        pytest.param(
            _ENTRY, {_IP: _OPEN, "dfd": -100}, True, "(do_sys_openat2+0x0) dfd=-100", id="an entry"
        ),
        pytest.param(
            _ENTRY, {_IP: _MODULE, "dfd": 1}, True, "(ovl_open+0x10 [overlay]) dfd=1", id="a module"
        ),
        pytest.param(
            _ENTRY, {_IP: 0x401136, "dfd": 1}, False, "(0x401136) dfd=1", id="a program's address"
        ),
        pytest.param(
            _ENTRY, {_IP: 0x10, "dfd": 1}, True, "(0x10) dfd=1", id="an address without a symbol"
        ),
        pytest.param(
            _RETURN,
            {_FUNC: _OPEN, _CALLER: _CALL, "at": _OPEN},
            True,
            "(__x64_sys_openat+0x6b <- do_sys_openat2) at=do_sys_openat2+0x0 [kernel]",
            id="a return",
        ),
        pytest.param(
            _RETURN,
            {_FUNC: 0x401136, _CALLER: 0x401200, "at": 0},
            False,
            "(0x401200 <- 0x401136) at=0x0 [unknown]",
            id="a program's return",
        ),
    ],
)
def test_the_place_is_shown_by_symbol(
    form: str, values: dict[str, Any], in_kernel: bool, shown: str
) -> None:
    line = _renderer(form, in_kernel=in_kernel).text(_hit(**values))
    assert line == f"     5.000000   1        7  {'cat':<16} kprobes/kk {shown}\n"


def test_json_has_frames_for_addresses_of_the_kernel() -> None:
    hit = json.loads(_renderer(_RETURN).json(_hit(**{_FUNC: _OPEN, _CALLER: _CALL, "at": _MODULE})))
    names = {key: frame["symbol"] for key, frame in hit["args"].items()}
    assert names == {_FUNC: "do_sys_openat2", _CALLER: "__x64_sys_openat", "at": "ovl_open"}
    assert hit["args"][_CALLER] == {
        "address": _CALL,
        "symbol": "__x64_sys_openat",
        "offset": 0x6B,
        "module": "[kernel]",
    }


def test_json_has_numbers_for_addresses_of_programs() -> None:
    hit = json.loads(_renderer(_ENTRY, in_kernel=False).json(_hit(**{_IP: 0x401136, "dfd": 3})))
    assert hit["args"] == {_IP: 0x401136, "dfd": 3}
    assert hit["comm"] == "cat"
