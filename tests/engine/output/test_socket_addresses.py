"""Socket addresses from their bytes, which a traced process may have made up."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usdt.engine.compiler.record.columns import SocketAddressColumn
from usdt.engine.compiler.record.layout import RecordField, RecordLayout
from usdt.engine.compiler.record.length_prefix import FAULT, NULL
from usdt.engine.output.decode import Decoder
from usdt.engine.output.formatters.event import EventFormatter
from usdt.engine.output.formatters.json import JsonFormatter
from usdt.engine.output.formatters.text import TextFormatter
from usdt.engine.output.socket_addresses import socket_address, socket_address_text

_INET6 = struct.pack("=H", 10) + struct.pack(">HI16s", 80, 7, bytes(15) + b"\1")


@pytest.mark.parametrize(
    ("data", "parts", "text"),
    [
        pytest.param(b"", {}, "", id="nothing"),
        pytest.param(b"\2", {}, "", id="half a family"),
        pytest.param(
            struct.pack("=H", 2) + bytes((0x1F, 0x90, 127, 0, 0, 1)) + bytes(8),
            {"family": "AF_INET", "address": "127.0.0.1", "port": 8080},
            "AF_INET 127.0.0.1:8080",
            id="IPv4",
        ),
        pytest.param(
            struct.pack("=HH", 2, 0),
            {"family": "AF_INET", "data": "0000"},
            "AF_INET 0000",
            id="IPv4 without an address",
        ),
        pytest.param(
            _INET6,
            {"family": "AF_INET6", "address": "::1", "port": 80},
            "AF_INET6 [::1]:80",
            id="IPv6",
        ),
        pytest.param(
            _INET6 + struct.pack("=I", 3),
            {"family": "AF_INET6", "address": "::1", "port": 80, "scope": 3},
            "AF_INET6 [::1%3]:80",
            id="IPv6 of an interface",
        ),
        pytest.param(
            struct.pack("=H", 1) + b'/run/a"b\0rest',
            {"family": "AF_UNIX", "path": '/run/a"b'},
            r'AF_UNIX "/run/a\"b"',
            id="a path ends at its NUL",
        ),
        pytest.param(
            struct.pack("=H", 1) + b"\0hid\0den",
            {"family": "AF_UNIX", "abstract": "hid\0den"},
            'AF_UNIX @"hid\0den"',
            id="an abstract name does not",
        ),
        pytest.param(struct.pack("=H", 1), {"family": "AF_UNIX"}, "AF_UNIX", id="no name"),
        pytest.param(
            struct.pack("=HH", 16, 1),
            {"family": "AF_NETLINK", "data": struct.pack("=H", 1).hex()},
            f"AF_NETLINK {struct.pack('=H', 1).hex()}",
            id="another family",
        ),
        pytest.param(struct.pack("=H", 999), {"family": 999}, "999", id="an unknown family"),
    ],
)
def test_parts_and_text(data: bytes, parts: dict[str, Any], text: str) -> None:
    assert socket_address(data) == parts
    assert socket_address_text(parts) == text


def test_the_family_is_in_the_byte_order_of_the_machine() -> None:
    rest = bytes((0, 80, 1, 2, 3, 4))
    for order in "<>":
        parts = socket_address(struct.pack(f"{order}H", 2) + rest, order)
        assert parts == {"family": "AF_INET", "address": "1.2.3.4", "port": 80}


@given(st.binary(max_size=128))
def test_any_bytes_have_parts_that_json_takes(data: bytes) -> None:
    parts = socket_address(data)
    assert isinstance(socket_address_text(parts), str)
    assert json.loads(json.dumps(parts)) == parts


def _shown(form: Any, prefix: int, data: bytes = b"") -> Any:
    layout = RecordLayout(40 + 8 + 32, None, (RecordField("a", SocketAddressColumn(32), 40),))
    assert RecordLayout.from_json(layout.to_json()) == layout
    decoder = Decoder(form)
    decoder.add_layout(1, "p:q", layout)
    body = struct.pack("=QIIII16sq32s", 1, 2, 3, 4, 1, b"comm", prefix, data)
    ((made,),) = decoder.batches(struct.pack("=II", len(body), 0) + body)
    return made


def test_what_is_missing_says_why() -> None:
    data = struct.pack("=H", 2) + bytes((0, 80, 1, 2, 3, 4))
    assert _shown(TextFormatter(), len(data), data).endswith("a={AF_INET 1.2.3.4:80}\n")
    assert _shown(TextFormatter(), 0).endswith("a={}\n")
    assert _shown(TextFormatter(), NULL).endswith("a=NULL\n")
    assert _shown(TextFormatter(), FAULT).endswith("a=?(memory not readable)\n")
    escape = _shown(TextFormatter(), 8, struct.pack("=H", 1) + b"\x1b[2J\n")
    assert escape.endswith('a={AF_UNIX "\\x1b[2J\\n"}\n')
    made = [json.loads(_shown(JsonFormatter(), n, data)) for n in (len(data), 0, NULL, FAULT)]
    assert [event["args"]["a"] for event in made] == [
        {"family": "AF_INET", "address": "1.2.3.4", "port": 80},
        {},
        None,
        {"error": "memory not readable"},
    ]
    assert _shown(EventFormatter(), NULL).args == {"a": None}
