"""Tracepoints and raw tracepoints of this kernel: fields, members, names; all of them attach."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from kernelprobes import events_of, kprobe, program, results, tracing_kernel
from skips import need_program
from streams import read_events
from tracing_tools import KPROBE, USDT, Tool

from kprobe.tracepoints import catalog, raw
from kprobe.tracepoints import provider as source
from kprobe.tracepoints.syscall_numbers import numbers
from usdt.arch.locations import Unreadable
from usdt.btf.reader import Btf
from usdt.engine.compiler.codegen.model import TaskFilter
from usdt.engine.compiler.plan import make_plan
from usdt.engine.compiler.resolve.btf_types import BtfTypes
from usdt.engine.language import parse_probe
from usdt.engine.output.formatters.json import JsonFormatter
from usdt.engine.runtime.session import RingBufferSession
from usdt.tracefs import mount as location
from usdt.tracefs.format import parse_format
from usdt.tracefs.instance import Instance
from usdt.tracefs.trace_pipe_reader import TracePipeReader

if TYPE_CHECKING:
    from pathlib import Path

    from usdt.engine.runtime.attach.attach_points import AttachPoint

pytestmark = pytest.mark.usefixtures("ringbuf", "cookies", "vmlinux_btf")

_LOOPBACK = """
import _socket as s
a = s.socket(s.AF_INET, s.SOCK_DGRAM)
a.bind(("127.0.0.1", 0))
for n in range(1, 6):
    a.sendto(b"x" * 100 * n, a.getsockname())
    a.recv(1000)
"""
_REFUSED = """
import _socket as s
a = s.socket(s.AF_INET, s.SOCK_DGRAM)
for _ in range(7): a.sendto(b"x" * 321, ("127.0.0.1", 9))
"""
_NO_SOCKET = 'tracepoint:skb:kfree_skb(reason == "NO_SOCKET")'


def test_fields_by_name_and_type() -> None:
    source = "import os\nif not os.fork(): os.execv('/bin/true', ['true'])\nos.wait()"
    words = "tracepoint:sched:sched_process_exec", "tracepoint:sched:sched_process_fork"
    found = kprobe("trace", "--json", "-f", "-c", program(source), *words).stdout.splitlines()
    fork, executed = map(json.loads, found)
    assert fork["args"]["parent_pid"] == fork["pid"]
    assert fork["args"]["parent_comm"] == fork["comm"]
    assert executed["args"] == {
        "filename": "/bin/true",
        "pid": fork["args"]["child_pid"],
        "old_pid": fork["args"]["child_pid"],
    }


_NAPS = """\
import time
with open("/proc/self/comm", "w") as file:
    file.write("napper/7")
while True:
    time.sleep(0.01)
"""


def test_predicates_on_text_in_the_record() -> None:
    probe = 'sched:sched_switch(next_comm == "napper/*", prev_comm, next_pid, next_comm)'
    words = ("trace", "--json", "-d", "30", "-n", "3", f"tracepoint:{probe}")
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", _NAPS]) as napper:
        try:
            with tracing_kernel(*words) as tool:
                events = tool.wait_end()
        finally:
            napper.kill()
    assert len(events) == 3
    for event in events:
        assert event["args"]["next_pid"] == napper.pid
        assert event["args"]["next_comm"] == "napper/7"
        assert event["args"]["prev_comm"] == event["comm"]


def test_arrays_of_the_record_and_their_elements() -> None:
    number = numbers()["getpid"]
    probe = f"tracepoint:raw_syscalls:sys_enter(id == {number}, id, args, args[0] + 1)"
    found = events_of("import os\nos.getpid()", probe)
    assert found, "no getpid(2)"
    values = found[-1]["args"]["args"]
    assert len(values) == 6
    assert found[-1]["args"]["args[0]+1"] == (values[0] + 1) % (1 << 64)


def test_only_packets_of_the_loopback_interface_are_shown() -> None:
    probe = 'rawtp:netif_receive_skb(skb->dev->name == "lo", skb->len, skb->dev->name)'
    found = events_of(_LOOPBACK, probe)
    assert [event["args"]["skb->len"] - 28 for event in found] == [100, 200, 300, 400, 500]
    assert {event["args"]["skb->dev->name"] for event in found} == {"lo"}
    assert not events_of(_LOOPBACK, probe.replace('"lo"', '"nowhere"'))


def test_packets_counted_by_a_member_of_a_member() -> None:
    words = ("rawtp:netif_receive_skb", "--by", "skb->dev->name,skb->len")
    counted = results("count", *words, "-c", program(_LOOPBACK))
    found = {(r["key"]["skb->dev->name"], r["key"]["skb->len"] - 28): r["count"] for r in counted}
    assert found == {("lo", size): 1 for size in (100, 200, 300, 400, 500)}


def test_children_are_seen_when_they_end() -> None:
    source = "import os\nfor _ in range(3):\n if not os.fork(): os._exit(0)\n os.wait()"
    probe = "tracepoint:sched:sched_process_exit(pid)"
    words = ("trace", "--json", "-f", "-c", program(source), probe)
    found = [json.loads(line) for line in kprobe(*words).stdout.splitlines()]
    assert len(found) == 4
    assert len({event["args"]["pid"] for event in found}) == 4


def test_members_and_casts_agree_with_the_record() -> None:
    items = "len, name, ((struct sk_buff *)skbaddr)->len, ((struct sk_buff *)skbaddr)->dev->name"
    found = events_of(_LOOPBACK, f"tracepoint:net:netif_receive_skb({items})")
    assert len(found) == 5
    for event in found:
        length, name, other_length, other_name = event["args"].values()
        assert (length, name) == (other_length, other_name)


def test_members_of_a_task_with_bit_fields_and_text() -> None:
    items = (
        "p->pid, p->tgid, p->comm, p->in_execve, bprm->filename, str(bprm->filename), bprm->argc"
    )
    source = "import os\nos.execv('/bin/true', ['true', 'a', 'b'])"
    (event,) = events_of(source, f"rawtp:sched_process_exec({items})")
    args = event["args"]
    assert args["p->pid"] == args["p->tgid"] == event["pid"]
    assert args["p->comm"] == "true"
    assert args["p->in_execve"] == 1
    assert args["str(bprm->filename)"] == "/bin/true"
    assert args["bprm->argc"] == 3


def test_dropped_packets_by_their_reason_and_place() -> None:
    traced = events_of(_REFUSED, "tracepoint:skb:kfree_skb(reason, location, protocol)")
    named = [event for event in traced if event["names"]["reason"] == "NO_SOCKET"]
    assert len(named) == 7
    places = Counter(event["args"]["location"]["symbol"] for event in named)
    counted = results("count", _NO_SOCKET, "--by", "location,reason", "-c", program(_REFUSED))
    found = {r["key"]["location"]["symbol"]: r["count"] for r in counted}
    assert found == places
    assert {r["names"]["reason"] for r in counted} == {"NO_SOCKET"}
    raw_words = ("count", 'rawtp:kfree_skb(reason == "SKB_DROP_REASON_NO_SOCKET")')
    (same,) = results(*raw_words, "-c", program(_REFUSED))
    assert same["count"] == 7


def test_dropped_packets_are_those_of_tracefs_own_record(tmp_path: Path) -> None:
    known = tmp_path / "pid"
    source = f"import os\nprint(os.getpid(), file=open({str(known)!r}, 'w'))\n{_REFUSED}"
    root = location.tracefs()
    with Instance(root, buffer=1 << 20) as instance:
        instance.enable("skb/kfree_skb")
        instance.start()
        counted = results(
            *("count", "tracepoint:skb:kfree_skb", "--by", "location,reason", "-c", program(source))
        )
        instance.disable()
        text = (instance.path / "trace").read_text()
        intake = TracePipeReader(root, instance.path)
        intake.start()
        intake.stop_and_drain()
        records = []
        while not intake.empty:
            records += intake.take(everything=True)
        intake.close()
    form = parse_format((root / "events/skb/kfree_skb/format").read_text())
    pid = int(known.read_text())
    own = [values for _, _, data in records if (values := form.decode(data))["common_pid"] == pid]
    assert len(own) == text.count(f"-{pid} ")
    places = Counter((values["location"], values["reason"]) for values in own)
    mine = {
        (line["key"]["location"]["address"], line["key"]["reason"]): line["count"]
        for line in counted
    }
    assert mine == places
    assert sum(places.values()) >= 7


def test_text_of_strangers_is_escaped() -> None:
    name = b"a\nb\x1b[31m\xff"
    source = f"open('/proc/self/comm', 'wb').write({name!r})"
    (event,) = events_of(source, "tracepoint:sched:sched_process_exit(comm)")
    assert event["args"]["comm"].encode("utf-8", "surrogateescape") == name
    words = ("trace", "-c", program(source), "tracepoint:sched:sched_process_exit(comm)")
    (line,) = kprobe(*words).stdout.splitlines()
    assert line.isprintable()
    assert 'comm="a\\nb\\x1b[31m\\xff"' in line


def test_one_ordered_stream_of_all_kinds() -> None:
    source = "import os\nos.getppid()\nos.kill(os.getpid(), 0)"
    words = ("syscall:getppid", "syscall:kill", "rawtp:sched_process_exit", "syscall:exit_group")
    for command in (USDT, KPROBE):
        found = events_of(source, *words, "tracepoint:sched:sched_process_exit", command=command)
        names = [event["probe"] for event in found]
        assert names[:3] == ["syscall:getppid", "syscall:kill", "syscall:exit_group"]
        assert sorted(names[3:]) == [
            "rawtp:sched_process_exit",
            "tracepoint:sched:sched_process_exit",
        ]
        times = [event["time"] for event in found]
        assert times == sorted(times)


def test_the_same_probe_twice_is_two_events() -> None:
    probe = "tracepoint:sched:sched_process_exit"
    found = events_of("pass", f"{probe}(pid)", f"{probe}(comm)", probe.replace("exit", "ex*"))
    assert [min(event["args"]) for event in found if event["args"]][:2] == ["pid", "comm"]
    assert len([event for event in found if event["probe"] == probe]) == 3


def _every_point() -> list[AttachPoint]:
    return [source._event(event, shown=True) for event in catalog.events()]


def test_every_format_is_read_and_can_be_planned() -> None:
    points = _every_point()
    assert len(points) > 1000
    for point in points:
        request = parse_probe(f'tracepoint:"{point.probe[11:].partition(":")[0]}":*')
        plan = make_plan((), point.arguments, text="", probe=point.probe, declared=0, kernel=True)
        assert len(plan.outputs) == len(point.arguments), request
    unread = [a for p in points for a in p.arguments if isinstance(a.fetch, Unreadable)]
    assert not unread


def test_every_tracepoint_attaches_and_is_left_again() -> None:
    done = kprobe("count", "tracepoint:*", "-d", "0.2")
    number = len(catalog.events())
    assert f"tracing {number} sites; end with ^C" in done.stderr
    assert "not attached" not in done.stderr


def test_one_of_every_category_attaches_with_its_record() -> None:
    # Each takes 50 ms to detach, one after the other: not all of them here.
    firsts = {event.category: event for event in reversed(catalog.events())}
    chosen = [event for name, event in sorted(firsts.items()) if name != "syscalls"]
    with RingBufferSession(JsonFormatter(), accept=TaskFilter(pids=(os.getpid(),))) as session:
        for event in chosen:
            point = source._event(event, shown=True)
            assert not session.attach(parse_probe(f"tracepoint:{event.full_name}"), [point])
    assert len(chosen) > 50


def test_every_raw_tracepoint_has_arguments_by_btf() -> None:
    names = raw.raw_tracepoints()
    assert len(names) > 500
    types = BtfTypes(Btf.from_kernel)
    for name in names[::10]:
        arguments = raw.arguments_of(name)
        make_plan((), arguments, text="", probe=name, declared=0, types=types, kernel=True)


@pytest.mark.parametrize(
    ("probe", "message"),
    [
        ("tracepoint:sched:sched_swtich", "nearest is sched:sched_switch"),
        ("rawtp:sched_swtich", "nearest is sched_switch"),
        ("tracepoint:sched:sched_switch(return)", "has no return value"),
        ("tracepoint:sched:sched_switch(next_pdi)", "did you mean next_pid?"),
        ('tracepoint:skb:kfree_skb(reason == "NO_SOKET")', "did you mean NO_SOCKET?"),
        ("rawtp:netif_receive_skb(skb->dve)", "struct sk_buff has no member 'dve'"),
        ("rawtp:sched_migrate_task(arg4)", "has arg0…arg1; arg4 was asked for"),
        ("rawtp:sched_migrate_task(arg2)", "has arg0…arg1; arg2 was asked for"),
        ("tracepoint:sched:sched_switch(arg0)", "has no arg0; known here: prev_comm, prev_pid"),
        ("rawtp:sched_migrate_task(dest_cpu->x)", "int is no structure: it has no member 'x'"),
        ("tracepoint:sched:sched_switch(next_comm + 1)", "a string is compared with another"),
        ("tracepoint:raw_syscalls:sys_enter(args[6])", "a constant index, 0 to 5"),
    ],
)
def test_mistakes_are_told(probe: str, message: str) -> None:
    done = kprobe("trace", probe, code=1 if "nearest" in message else 2)
    assert message in done.stderr.splitlines()[-1]


def test_fields_are_listed() -> None:
    lines = kprobe("list", "-v", "tracepoint:sched:sched_switch").stdout.splitlines()
    assert lines[0] == "tracepoint:sched:sched_switch"
    assert "    char next_comm[16]" in lines
    info: dict[str, Any] = json.loads(kprobe("info", "--json", "rawtp:sched_switch").stdout)
    assert {"name": "next", "type": "struct task_struct *next"} in info["fields"]


def test_without_privilege_it_is_said() -> None:
    with Tool("trace", "tracepoint:sched:sched_switch", before=_NOBODY, command=KPROBE) as tool:
        tool.finish(code=1)
    (line,) = (line for line in tool.errors if line.startswith("Error: "))
    assert "tracing is not permitted" in line


_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all")


def test_a_field_hides_the_built_in_of_its_name_unless_there_are_several() -> None:
    source = "import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)"
    probe = "tracepoint:sched:sched_process_wait"
    waited = events_of(source, f"{probe}(pid)")
    assert waited
    assert all(event["args"]["pid"] != event["pid"] for event in waited)
    both = events_of(source, f"{probe[:-4]}wai*(pid)", "tracepoint:sched:sched_process_*(pid)")
    assert any(event["args"]["pid"] == event["pid"] for event in both)


def test_times_between_events_that_name_their_key_differently() -> None:
    source = "import os\nif not os.fork(): os.execv('/bin/true', ['true'])\nos.wait()"
    found = results(
        *("latency", "tracepoint:sched:sched_process_fork", "tracepoint:sched:sched_process_exec"),
        *("--key", "child_pid", "--end-key", "pid", "-f", "-c", program(source)),
    )
    assert found[0]["count"] == 1
    assert found[0]["min"] > 0
    assert found[1] == {"unfinished": 0, "unmatched": 0, "deep": 0}


def test_an_array_is_a_key() -> None:
    number = numbers()["sched_get_priority_max"]
    source = "import os\nfor policy in (1, 2, 1): os.sched_get_priority_max(policy)"
    probe = f"tracepoint:raw_syscalls:sys_enter(id == {number})"
    counted = results("count", probe, "--by", "args", "-c", program(source))
    keys = [one["key"]["args"] for one in counted for _ in range(one["count"])]
    assert sorted(key[0] for key in keys) == [1, 1, 2]
    assert {len(key) for key in keys} == {6}


def test_others_who_count_the_event_go_on_and_count_the_same() -> None:
    # A program that returns 0 would keep the event from them.
    perf = need_program("perf", "linux-perf")
    count = [KPROBE, "count", "--json", _NO_SOCKET, "-c", program(_REFUSED)]
    words = [
        perf,
        "stat",
        "-x,",
        "-a",
        "-e",
        "skb:kfree_skb",
        "--filter",
        f"location == {_place()}",
    ]
    done = subprocess.run([*words, "--", *count], capture_output=True, text=True, check=True)
    assert read_events(done.stdout)[0]["count"] == 7
    (line,) = (line for line in done.stderr.splitlines() if "kfree_skb" in line)
    assert int(line.split(",")[0]) >= 7  # other processes' are there as well


def _place() -> int:
    # Where packets without a socket are dropped in this kernel.
    probe = f"{_NO_SOCKET[:-1]}, (long)location)"
    places = {event["args"]["(long)location"] for event in events_of(_REFUSED, probe)}
    assert len(places) == 1
    return places.pop() % (1 << 64)
