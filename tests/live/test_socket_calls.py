"""System calls as a user reads them: socket addresses, descriptors, addresses and flags."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from kernelprobes import events_of, kprobe, program, results
from streams import read_events
from tracing_tools import run_usdt

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("ringbuf")

_SOCKETS = """
import _socket as s, sys
server = s.socket(s.AF_INET, s.SOCK_STREAM)
server.bind(("127.0.0.1", 0))
server.listen(1)
client = s.socket(s.AF_INET, s.SOCK_STREAM | s.SOCK_CLOEXEC)
client.connect(server.getsockname())
fd, peer = server._accept()
server.setblocking(False)
try: server._accept()
except OSError: pass
two = s.socket(s.AF_UNIX, s.SOCK_DGRAM), s.socket(s.AF_UNIX, s.SOCK_DGRAM)
two[0].bind(b"\\0one " + str(server.getsockname()[1]).encode())
two[1].sendto(b"hi", two[0].getsockname())
try: two[1].connect(b"/nowhere/at all")
except OSError: pass
try: s.socket(s.AF_INET6, s.SOCK_DGRAM).bind(("::1", 0, 0, 0))
except OSError: pass  # no IPv6 here
print(server.getsockname()[1], peer[1], file=sys.stderr, flush=True)
"""


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], int, int]:
    """The events of a program that uses sockets; the ports of its server and of the client."""
    path = tmp_path_factory.mktemp("sockets") / "events"
    probes = [f"syscall:{name}(return)" for name in ("bind", "connect", "accept*", "sendto")]
    command = ["trace", "--json", "-o", path, "-c", program(_SOCKETS), *probes, "syscall:socket"]
    done = run_usdt(*command)
    assert done.returncode == 0, done.stderr
    (ports,) = [
        line for line in done.stderr.splitlines() if line[:1].isdigit() and " lost" not in line
    ]
    server, client = map(int, ports.split())
    return read_events(path.read_text()), server, client


def _of(events: list[dict[str, Any]], name: str, argument: str) -> list[Any]:
    return [e["args"][argument] for e in events if e["probe"].startswith(f"syscall:{name}")]


def test_socket_addresses_are_shown_by_their_contents(
    calls: tuple[list[dict[str, Any]], int, int],
) -> None:
    events, server, client = calls
    inet = {"family": "AF_INET", "address": "127.0.0.1"}
    name = {"family": "AF_UNIX", "abstract": f"one {server}"}
    first, second, *six = _of(events, "bind", "umyaddr")
    assert [first, second] == [inet | {"port": 0}, name]
    assert six in ([], [{"family": "AF_INET6", "address": "::1", "port": 0}])
    missing = {"family": "AF_UNIX", "path": "/nowhere/at all"}
    assert _of(events, "connect", "uservaddr") == [inet | {"port": server}, missing]
    assert _of(events, "sendto", "addr") == [name]
    # What accept() returns is only there if it succeeds.
    assert _of(events, "accept", "upeer_sockaddr") == [inet | {"port": client}, {}]


def test_sockets_have_flags_and_failures_have_names(
    calls: tuple[list[dict[str, Any]], int, int],
) -> None:
    events, *_ = calls
    named = [e["names"] for e in events if e["probe"] == "syscall:socket"]
    assert named[1] == {"family": "AF_INET", "type": "SOCK_STREAM|SOCK_CLOEXEC"}
    errors = [e["names"]["return"] for e in events if "return" in e.get("names", {})]
    assert errors[:2] == ["-EAGAIN", "-ENOENT"]


def test_an_address_is_text_a_key_and_can_be_recorded(tmp_path: Path) -> None:
    path = tmp_path / "calls.usdt"
    run_usdt("record", "-o", path, "-c", program(_SOCKETS), "syscall:accept4(return)")
    lines = run_usdt("report", path).stdout.splitlines()
    assert "upeer_sockaddr={AF_INET 127.0.0.1:" in lines[0]
    assert lines[1].endswith(" = -11 EAGAIN")
    command = ("count", "-c", program(_SOCKETS), "syscall:connect", "--by", "uservaddr")
    keys = {row["key"]["uservaddr"] for row in results(*command)}
    assert 'AF_UNIX "/nowhere/at all"' in keys
    _, unix = events_of(_SOCKETS, "syscall:connect(hex(uservaddr), uservaddr)")
    assert unix["args"]["hex(uservaddr)"].startswith("0x")
    assert unix["args"]["uservaddr"]["path"] == "/nowhere/at all"


_MEMORY = """
import mmap, os
here = mmap.mmap(-1, 12345)
try: os.close(-1)
except OSError: pass
"""


def test_a_descriptor_is_signed_and_addresses_are_hexadecimal() -> None:
    (anonymous,) = events_of(_MEMORY, "syscall:mmap*(fd == -1, len > 12000, len < 16385, return)")[
        -1:
    ]
    args = anonymous["args"]
    assert args["fd"] == -1
    assert args["addr"] == "0x0"
    assert anonymous["names"]["return"] == hex(args["return"])
    (closed,) = events_of(_MEMORY, "syscall:close(fd < 0, return)")
    assert closed["args"] == {"fd": -1, "return": -9}
    done = kprobe("trace", "-c", program(_MEMORY), "syscall:mmap*(fd == -1, len == 12345, return)")
    assert " = 0x" in done.stdout


def test_csv_has_socket_addresses_by_their_contents(tmp_path: Path) -> None:
    path = tmp_path / "run.usdt"
    done = run_usdt(
        "record", "-o", path, "-c", program(_SOCKETS), "syscall:bind", "syscall:connect"
    )
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(io.StringIO(run_usdt("report", "--csv", path).stdout)))
    shown = [json.loads(row["umyaddr"] or row["uservaddr"]) for row in rows]
    assert shown[0] == {"family": "AF_INET", "address": "127.0.0.1", "port": 0}
    assert shown[1]["port"] > 0
    assert {one["family"] for one in shown} >= {"AF_INET", "AF_UNIX"}
