"""What ksnoop is used for, and what it gets wrong: call sequences, text, bit fields, NULL, void *.

The first tool of this kind (bcc's libbpf-tools/ksnoop) shows the entries, but not the returns, of a
sequence's middle functions; a char * as one number; a whole byte for a bit field; nothing at all
where the only value cannot be read. Each is a test here, or in test_functions_live.py.
"""

from __future__ import annotations

import json
import os
import re
import socket
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from functions import PAIRING, binds, here, seen
from kernelprobes import kprobe, program

import kprobe as kprobe_api
from kprobe.functions.prototypes import current_functions
from usdt.base.errors import LanguageError

if TYPE_CHECKING:
    from usdt.bpf.kprobes import KprobeMethod

pytestmark = pytest.mark.usefixtures("ringbuf", "kprobes", "vmlinux_btf")
_BOTH_ENDS = pytest.mark.parametrize("way", PAIRING)


def _sequence(*words: str, source: str) -> list[dict[str, Any]]:
    done = kprobe("trace", "-s", "--json", "-c", program(source), *words)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@_BOTH_ENDS
def test_a_sequence_shows_every_entry_and_every_return(way: KprobeMethod) -> None:
    here(way)
    functions = "inet_bind(addr_len)", "__inet_bind(addr_len)", "udp_v4_get_port(snum, return)"
    source = (
        "import _socket as s\n"
        "for kind in (s.SOCK_STREAM, s.SOCK_DGRAM):\n"
        "    s.socket(s.AF_INET, kind).bind(('127.0.0.1', 0))"
    )
    events = _sequence("--via", str(way), *functions, source=source)
    shown = [(event["probe"], event.get("event", "call")) for event in events]
    names = [f"kprobe:{function.partition('(')[0]}" for function in functions]
    # Once, of the datagram socket: TCP's port is found by another function.
    assert shown == [(name, "call") for name in names] + [(name, "return") for name in names[::-1]]
    assert [event["args"] for event in events[:3]] == [
        {"addr_len": 16},
        {"addr_len": 16},
        {"snum": 0},
    ]
    assert [event["args"]["return"] for event in events[3:]] == [0, 0, 0]


@_BOTH_ENDS
def test_paths_are_text(way: KprobeMethod) -> None:
    with tempfile.NamedTemporaryFile(prefix="ksnoop") as file:
        probe = "do_sys_openat2(return >= 0, filename, dfd, return)"
        found = seen(lambda: Path(file.name).read_bytes(), probe, way=here(way))
        opened = [event for event in found if event["args"]["filename"] == file.name]
        assert [event["args"]["dfd"] for event in opened] == [-100]
        assert opened[0]["args"]["return"] >= 0


@_BOTH_ENDS
def test_signs_are_those_of_the_types(way: KprobeMethod) -> None:
    def act() -> None:
        os.close(os.open("/dev/null", os.O_RDONLY))
        with pytest.raises(FileNotFoundError):
            os.open("/does/not/exist", os.O_RDONLY)

    found = seen(act, "do_sys_openat2(dfd == -100, return < 0, filename, return)", way=here(way))
    assert [list(event["args"].values()) for event in found] == [["/does/not/exist", -2]]
    assert not seen(act, "do_sys_openat2(return > 1000)", way=way)


def test_an_inner_text_a_bit_field_and_an_untyped_pointer() -> None:
    def act() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.sendto(b"x" * 40, ("127.0.0.1", 9))

    sent = seen(act, "ip_send_skb(skb->dev->name, skb->len, skb->pkt_type, net, return)")
    # On one CPU the answer, that nobody listens, is sent within the call, by the same task.
    found = [event for event in sent if event["args"]["skb->len"] != 68 + 28]
    assert len(found) == 1
    values = found[0]["args"]
    assert values["skb->len"] == 68
    assert values["skb->pkt_type"] == 0
    assert values["return"] == 0
    (kfree,) = (one for one in current_functions().find("kfree") if one.addresses)
    name = re.findall(r"(\w+)\)", kfree.declaration)[-1]  # objp, x and object, in their turn
    freed = seen(act, f"kfree({name})")
    assert freed
    assert all(isinstance(event["args"][name], int | str) for event in freed)


def test_code_has_its_name_and_nothing_is_said_to_be_nothing() -> None:
    found = seen(binds, "inet_bind(sock->ops->bind)")
    assert [event["args"]["sock->ops->bind"]["symbol"] for event in found] == ["inet_bind"] * 2
    found = seen(binds, "inet_bind(sock->wq.fasync_list)")
    assert [[*event["args"].values()] for event in found] == [[{"error": "NULL pointer"}]] * 2


def test_text_of_a_structure_that_is_an_argument() -> None:
    names = "do_filp_open", "do_file_open"  # as it is called since Linux 7
    known = [name for name in names if current_functions().named("", name)]
    with tempfile.NamedTemporaryFile(prefix="ksnoop") as file:
        found = seen(lambda: Path(file.name).read_bytes(), f"{known[0]}(pathname->name)")
        assert file.name in [event["args"]["pathname->name"] for event in found]


def test_a_single_equals_sign_and_junk_are_refused() -> None:
    for text in ("ip_send_skb(skb->len=84)", "ip_send_skb(skb->len == 84abc)"):
        with pytest.raises(LanguageError):
            seen(lambda: None, text)


def test_a_structure_is_shown_from_its_first_member_on() -> None:
    found = seen(binds, "inet_bind(sock->sk)")
    inner = found[0]["args"]["sock->sk"]
    assert inner["__sk_common"]["skc_family"] == socket.AF_INET
    assert inner["sk_protocol"] == socket.IPPROTO_UDP


def test_the_python_interface_takes_functions() -> None:
    with kprobe_api.attach("inet_bind(addr_len, return)", pid=os.getpid()) as events:
        binds()
        found = []
        while len(found) < 2 and (batch := events.poll(10.0)):
            found += batch
    assert [event.args for event in found] == [
        {"addr_len": 16, "return": -99},
        {"addr_len": 16, "return": 0},
    ]


def test_members_of_an_entry_are_those_at_entry() -> None:
    def act() -> None:
        time.sleep(0.01)

    found = seen(act, "hrtimer_nanosleep(mode, clockid, return == 0)")
    assert [event["args"]["clockid"] for event in found] == [1]
