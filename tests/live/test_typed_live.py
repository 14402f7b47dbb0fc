"""Values with types of this kernel's BTF, checked against the events' own fields and /proc."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kernelprobes import events_of, kprobe, program, tracing_kernel
from tracing_tools import USDT, run_usdt

import kprobe as kernel
from usdt.base.machine import KERNEL_MACHINE, KERNEL_WORD_SIZE
from usdt.btf.format import Kind
from usdt.btf.lookup import find_type
from usdt.btf.minimize import minimize
from usdt.btf.reader import Btf
from usdt.btf.values.compact import CompactFormatter
from usdt.btf.values.json_codegen import JsonCodegen
from usdt.btf.values.read_plan import ReadPlans
from usdt.engine.output.kernel_symbols import KernelSymbols

pytestmark = pytest.mark.usefixtures("ringbuf", "cookies", "vmlinux_btf")

_LOOPBACK = """
import _socket as s
a = s.socket(s.AF_INET, s.SOCK_DGRAM)
a.bind(("127.0.0.1", 0))
for n in range(1, 6):
    a.sendto(b"x" * 100 * n, a.getsockname())
    a.recv(1000)
"""
_SLEEPER = "import time\nfor _ in range(5): time.sleep(0.02)"
_LO = 'skb->dev->name == "lo"'


def test_a_buffer_as_a_whole_agrees_with_its_members() -> None:
    items = f"{_LO}, skb, *skb, skb->len, skb->data_len, skb->pkt_type, skb->dev, skb->dev->name"
    found = events_of(_LOOPBACK, f"rawtp:netif_receive_skb({items})")
    assert len(found) == 5
    for number, event in enumerate(found, 1):
        args, places = event["args"], event["memory"]
        assert args["skb"] == args["*skb"]
        assert args["skb"]["len"] == args["skb->len"] == 100 * number + 28
        assert args["skb"]["pkt_type"] == args["skb->pkt_type"]
        assert args["skb->dev"]["name"] == args["skb->dev->name"] == "lo"
        assert args["skb->dev"]["ifindex"] == int(Path("/sys/class/net/lo/ifindex").read_text())
        assert args["skb->dev"]["mtu"] == int(Path("/sys/class/net/lo/mtu").read_text())
        assert places["skb"] == places["*skb"]
        assert places["skb"]["space"] == "kernel"
        assert int(places["skb->dev"]["address"], 16) == args["skb"]["dev"]


def test_tasks_agree_with_the_fields_of_the_record() -> None:
    events = events_of(
        _SLEEPER,
        "rawtp:sched_switch(prev, prev->pid, prev->comm, prev->tgid, next->comm)",
        "tracepoint:sched:sched_switch(prev_pid, next_comm)",
    )
    typed = [event for event in events if event["probe"].startswith("rawtp")]
    assert typed
    for event in typed:
        args = event["args"]
        assert args["prev"]["pid"] == args["prev->pid"] == event["tid"]
        assert args["prev"]["tgid"] == args["prev->tgid"] == event["pid"]
        assert args["prev->comm"] == event["comm"]
    both = 0
    for cpu in {event["cpu"] for event in events}:
        mine = [event for event in events if event["cpu"] == cpu]
        for one, other in itertools.pairwise(mine):
            if one["probe"] != other["probe"] and one["tid"] == other["tid"]:
                args = one["args"] | other["args"]
                assert args["prev_pid"] == args["prev->pid"]
                both += args["next_comm"] == args["next->comm"]
    assert both, "no switch was seen by both"


def test_a_process_as_its_parent_knows_it() -> None:
    items = "p->real_parent->tgid, p->tgid, p->cred->uid.val, p->comm, p->group_leader->pid"
    with tracing_kernel(
        *("trace", "--json", "-n", "1", "-d", "30"),
        f"rawtp:sched_process_exit(p->exit_code == 77 << 8, {items}, p->exit_code)",
    ) as tool:
        child = subprocess.Popen(["/bin/sh", "-c", "exit 77"])
        assert child.wait() == 77
        (event,) = tool.wait_end()
    assert [*event["args"].values()] == [os.getpid(), child.pid, 0, "sh", child.pid, 77 << 8]


def test_functions_have_their_names() -> None:
    items = f"{_LO}, skb->dev->netdev_ops->ndo_start_xmit, skb->dev->netdev_ops"
    (event, *_) = events_of(_LOOPBACK, f"rawtp:netif_receive_skb({items})")
    name = event["args"]["skb->dev->netdev_ops->ndo_start_xmit"]
    assert name["symbol"] == "loopback_xmit"
    assert event["args"]["skb->dev->netdev_ops"]["ndo_start_xmit"] == name["address"]
    lines = kprobe("trace", "-c", program(_LOOPBACK), f"rawtp:netif_receive_skb({items})").stdout
    assert re.search(r"\.ndo_start_xmit = \(.*\)loopback_xmit,\n", lines)
    assert KernelSymbols.running().frame(name["address"]).symbol == "loopback_xmit"


def test_pointers_that_lead_nowhere_are_shown_and_the_event_is_delivered() -> None:
    items = (
        f"{_LO}, skb->len, skb->next, skb->next->len, (struct sk_buff *)64, *(struct sk_buff *)0,"
        "(struct sk_buff *)0x7fffffff0000, ((struct net_device *)16)->name"
    )
    found = events_of(_LOOPBACK, f"rawtp:netif_receive_skb({items})")
    assert len(found) == 5
    null, unread = {"error": "NULL pointer"}, {"error": "memory not readable"}
    for event in found:
        length, following, members, *others = event["args"].values()
        assert isinstance(length, int)
        assert (following, members) == (null, unread)
        assert others == [unread, null, unread, unread]


#: The first argument of a system call in the kernel's struct pt_regs.
_FIRST = {
    "x86_64": "di",
    "i386": "bx",
    "aarch64": "regs[0]",
    "arm": "uregs[0]",
    "riscv64": "orig_a0",
    "s390x": "orig_gpr2",
    "ppc64le": "gpr[3]",
    "loongarch64": "orig_a0",
}


def test_memory_of_a_process_is_said_to_be_one() -> None:
    source = (
        "import ctypes\n"
        "text = ctypes.create_string_buffer(b'a text of a process')\n"
        "ctypes.CDLL(None).syscall(ctypes.c_long(9999), text)\n"
    )
    item = f"(struct list_head *)regs->{_FIRST[KERNEL_MACHINE]}"
    (event,) = events_of(source, f"rawtp:sys_enter(id == 9999, {item})")
    (value,) = event["args"].values()
    (place,) = event["memory"].values()
    assert place["space"] == "user"
    raw = b"".join(
        value[name].to_bytes(KERNEL_WORD_SIZE, sys.byteorder) for name in ("next", "prev")
    )
    assert raw == b"a text of a process"[: 2 * KERNEL_WORD_SIZE]
    words = ("trace", "-c", program(source), f"rawtp:sys_enter(id == 9999, {item})")
    assert kprobe(*words).stdout.endswith(" /* user */\n")


def test_text_and_json_say_the_same(tmp_path: Path) -> None:
    recording = tmp_path / "x.rec"
    words = ("record", "-o", recording, "-c", program(_LOOPBACK))
    done = run_usdt(*words, f"rawtp:netif_receive_skb({_LO}, skb, skb->len, skb->dev)")
    assert done.returncode == 0, done.stderr
    reports = {
        form: run_usdt("report", *form, recording).stdout for form in ((), ("--json",), ("--csv",))
    }
    events = [json.loads(line) for line in reports["--json",].splitlines()]
    assert len(events) == 5
    texts = reports[()].split(");\n\n")[:-1]
    assert texts[0].splitlines()[0].split() == ["TIME", "CPU", "PID", "FUNCTION/ARGS"]
    for event, text in zip(events, texts, strict=True):
        assert f"skb = *({event['memory']['skb']['address']})\n" in text
        for name in ("len", "truesize", "protocol", "data"):
            value = event["args"]["skb"][name]
            shown = hex(value) if name == "data" else str(value)
            assert re.search(rf"\.{name} = \([^()]*\){shown},\n", text), name
        assert '.name = (char[16])"lo",' in text
    assert all(f'""len"": {event["args"]["skb"]["len"]}' in reports["--csv",] for event in events)


def test_what_is_cut_is_said() -> None:
    words = ("--max-struct", "256", "-n", "1", "-c", program(_SLEEPER))
    probe = "rawtp:sched_switch(prev)"
    (line,) = kprobe("trace", "--json", *words, probe).stdout.splitlines()
    event = json.loads(line)
    size = kernel.types()["struct task_struct"].size
    place = event["memory"]["prev"]
    assert (place["bytes"], place["size"]) == (256, size)
    assert event["args"]["prev"]["thread_info"] is not None
    lines = kprobe("trace", *words, probe).stdout
    assert f"... /* 256 bytes of {size} */\n" in lines


def test_keys_by_members_and_texts_through_pointers() -> None:
    words = ("count", "--json", "--by", "skb->dev->name,skb->len,skb->dev")
    done = kprobe(*words, "-c", program(_LOOPBACK), f"rawtp:netif_receive_skb({_LO})")
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(one["key"]["skb->len"] for one in results) == [128, 228, 328, 428, 528]
    assert {one["key"]["skb->dev->name"] for one in results} == {"lo"}
    assert len({one["key"]["skb->dev"] for one in results}) == 1
    source = (
        "import os\nfor _ in 1, 2:\n if not os.fork(): os.execv('/bin/true', ['true'])\n os.wait()"
    )
    words = ("count", "--json", "--by", "bprm->filename,p->comm,p->in_execve", "-f")
    done = kprobe(*words, "-c", program(source), "rawtp:sched_process_exec")
    results = [json.loads(line) for line in done.stdout.splitlines() if '"key"' in line]
    key = {"bprm->filename": "/bin/true", "p->comm": "true", "p->in_execve": 1}
    assert [one["count"] for one in results if one["key"] == key] == [2]


def test_structures_are_no_keys() -> None:
    done = kprobe("count", "rawtp:sched_switch", "--by", "prev->se", code=2)
    assert "name a member" in done.stderr.splitlines()[-1]


def test_whole_structures_of_every_kind_are_the_same_by_both_readers() -> None:
    btf = Btf.from_kernel()
    for name in ("sk_buff", "task_struct", "sock", "net_device", "inode", "request", "page"):
        number = find_type(btf, f"struct {name}")
        types, own = minimize(btf, number)
        data = bytes(range(1, 256)) * (btf.size_of(number) // 255 + 1)
        found: Any = JsonCodegen(Btf(types), text=False).function(own)(data, 0)
        assert found == ReadPlans(btf).read(number, data[: btf.size_of(number)])
        text = JsonCodegen(Btf(types), text=True).function(own)(data, 0)
        assert json.loads(text) == json.loads(json.dumps(found))


def test_lines_of_the_kernels_structures_do_not_depend_on_how_they_are_made() -> None:
    btf = Btf.from_kernel()
    symbol = {1 << 40: "one", 2 << 40: "two"}.get
    made, plain = (
        CompactFormatter(btf, symbol=symbol),
        CompactFormatter(btf, symbol=symbol, once=True),
    )
    for name in ("sk_buff", "net_device", "inode", "page"):
        number = find_type(btf, f"struct {name}")
        size = btf.size_of(number)
        for filler in (bytes(size), b"\0\0\0\0\0\1\0\0" * size, bytes(range(256)) * size):
            for length in (size, size // 3):
                data = filler[:length]
                assert made.line(number, data) == plain.line(number, data)


def test_every_structure_has_a_subset() -> None:
    btf = Btf.from_kernel()
    for number in list(btf.ids(Kind.STRUCT, Kind.UNION))[::50]:
        types, own = minimize(btf, number)
        assert Btf(types).size_of(own) == btf.size_of(number)


def test_usdt_takes_the_same_probes() -> None:
    probe = f"rawtp:netif_receive_skb({_LO}, skb->len, skb->dev->name)"
    found = events_of(_LOOPBACK, probe, command=USDT)
    assert [event["args"]["skb->len"] for event in found] == [128, 228, 328, 428, 528]
