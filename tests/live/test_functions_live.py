"""Functions of the kernel: arguments and results by name, entry with return, by every way."""

from __future__ import annotations

import json
import mmap
import os
import platform
import socket
import tempfile

import pytest
from functions import PAIRING, WAYS, binds, here, loops, seen, sleepers
from kernelprobes import events_of, kprobe, program, results
from tracing_tools import USDT

from kprobe.functions.attach_methods import attach_methods_for
from kprobe.functions.prototypes import current_functions
from usdt.base.errors import LanguageError, ProbeNotFound, TracingError
from usdt.bpf.kprobes import KprobeMethod

pytestmark = pytest.mark.usefixtures("ringbuf", "kprobes")
_typed = pytest.mark.usefixtures("vmlinux_btf")
_EVERY = pytest.mark.parametrize("way", WAYS)
_BOTH_ENDS = pytest.mark.parametrize("way", PAIRING)
_NONE = {"error": "memory not readable"}


@_typed
@_EVERY
def test_arguments_by_name_and_type(way: KprobeMethod) -> None:
    found = seen(binds, "inet_bind(addr_len, arg2, sock->type, func)", way=here(way))
    shown = {"addr_len": 16, "arg2": 16, "sock->type": 2, "func": "inet_bind"}
    assert [event["args"] for event in found] == [shown] * 2
    assert {event["probe"] for event in found} == {"kprobe:inet_bind"}


@_typed
@_EVERY
def test_an_int_is_signed_and_so_are_predicates(way: KprobeMethod) -> None:
    probes = [f"inet_bind({items})" for items in ("return", "return < 0, return + 0")]
    found = seen(binds, *probes, "inet_bind(return > 1000, return + 1)", way=here(way))
    values = sorted(list(event["args"].items()) for event in found)
    assert values == [[("return", -99)], [("return", 0)], [("return+0", -99)]]
    assert {event["event"] for event in found} == {"return"}


@_typed
@_BOTH_ENDS
def test_entry_and_return_are_one_event(way: KprobeMethod) -> None:
    probe = "inet_bind(return < 0, addr_len, sock->type, return)"
    found = seen(binds, probe, way=here(way))
    assert [event["args"] for event in found] == [{"addr_len": 16, "sock->type": 2, "return": -99}]


@_typed
@_BOTH_ENDS
def test_concurrent_sleepers_are_not_mistaken(way: KprobeMethod) -> None:
    found = seen(sleepers, "hrtimer_nanosleep(return == 0, rqtp)", way=here(way))
    times = [event["args"]["rqtp"] for event in found if event["tid"] != os.getpid()]
    assert len(times) == 2
    assert times[0] < times[1]  # who sleeps shorter returns first


@_typed
@_BOTH_ENDS
def test_a_function_that_calls_itself(way: KprobeMethod) -> None:
    known = [one for one in current_functions().find("ep_loop_check_proc") if one.addresses]
    if not known:
        pytest.skip("ep_loop_check_proc was inlined")
    depth = "depth" if "depth" in known[0].declaration else "call_nests"  # before Linux 5.11
    found = seen(loops, f"ep_loop_check_proc({depth}, return)", way=here(way))
    # Perf events had room for one return on each CPU, before "kprobes: kretprobe events missing on
    # 2-core KVM guest" (Linux 6.2).
    few = way is KprobeMethod.PERF_EVENT and depth == "call_nests" and os.cpu_count() == 2
    assert [event["args"][depth] for event in found][-3:] == ([0, 1, 0] if few else [2, 1, 0])


@_typed
def test_more_arguments_than_registers() -> None:
    def act() -> None:
        with tempfile.TemporaryFile() as file:
            file.truncate(1 << 16)
            size = 2 * mmap.ALLOCATIONGRANULARITY
            mmap.mmap(file.fileno(), 4096, offset=size, access=mmap.ACCESS_READ).close()

    pages = 2 * mmap.ALLOCATIONGRANULARITY // mmap.PAGESIZE
    found = seen(
        act, f"do_mmap(len, pgoff == {pages}, populate > 0xff00000000000000, uf != 0, return != 0)"
    )
    assert [event["args"]["len"] for event in found] == [4096]


@_typed
@pytest.mark.parametrize("way", [KprobeMethod.FENTRY, KprobeMethod.PERF_EVENT])
def test_a_structure_by_value(way: KprobeMethod) -> None:
    if way is KprobeMethod.FENTRY and not _carries_structures():
        pytest.skip("trampolines of this kernel carry no structures")

    def act() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as made:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    probe = "tcp_setsockopt(optname, optval.is_kernel, optval.user != 0, optlen)"
    found = seen(act, probe, way=here(way))
    assert [event["args"] for event in found] == [
        {"optname": 1, "optval.is_kernel": 0, "optlen": 4}
    ]


def _carries_structures() -> bool:
    try:
        seen(lambda: None, "tcp_setsockopt(optlen)", way=here(KprobeMethod.FENTRY))
    except TracingError:
        return False
    return True


@_typed
@_EVERY
def test_a_pointer_that_leads_nowhere_is_shown_as_such(way: KprobeMethod) -> None:
    found = seen(binds, "inet_bind(sock->wq.fasync_list->fa_fd)", way=here(way))
    assert [event["args"] for event in found] == [{"sock->wq.fasync_list->fa_fd": _NONE}] * 2


@_typed
def test_bit_fields_alone() -> None:
    items = "sock->sk->__sk_common.skc_reuse, sock->sk->__sk_common.skc_reuseport"
    found = seen(lambda: binds(socket.SO_REUSEADDR), f"inet_bind({items})")
    assert [list(event["args"].values()) for event in found] == [[1, 0]] * 2


@_typed
@_EVERY
def test_a_function_alone_shows_its_arguments_and_its_return(way: KprobeMethod) -> None:
    found = seen(binds, "inet_bind", way=here(way), both_ends=True)
    assert [event.get("event") for event in found] == [None, "return", None, "return"]
    for entry, back, result in zip(found[::2], found[1::2], (-99, 0), strict=True):
        assert list(entry["args"]) == ["sock", "uaddr", "addr_len"]
        assert entry["args"]["addr_len"] == 16
        assert entry["args"]["uaddr"]["sa_family"] == socket.AF_INET
        sock = entry["args"]["sock"]
        assert sock["type"] == 2
        assert "wq" not in sock  # a larger structure within it
        assert entry["memory"]["sock"]["short"] is True
        assert back["args"] == {"return": result}


def test_a_function_alone_without_types_shows_its_return() -> None:
    """Of a kernel without BTF only the returned word is known."""
    found = seen(binds, "inet_bind", both_ends=True)
    assert [event.get("event") for event in found] == [None, "return"] * 2
    assert [event["args"]["return"] & 0xFFFFFFFF for event in found[1::2]] == [2**32 - 99, 0]


@_typed
def test_a_function_alone_that_returns_nothing() -> None:
    found = seen(binds, "udp_destroy_sock", both_ends=True)
    assert [(event.get("event"), list(event["args"])) for event in found] == [
        (None, ["sk"]),
        ("return", []),
    ] * 2


@_typed
def test_kprobe_trace_shows_a_function_alone_on_two_lines() -> None:
    source = "import _socket as s\ns.socket(s.AF_INET, s.SOCK_DGRAM).bind(('127.0.0.1', 0))"
    lines = kprobe("trace", "-c", program(source), "inet_bind").stdout.splitlines()
    assert len(lines) == 2
    assert " kprobe:inet_bind " in lines[0]
    assert "  sock=*(0xff" in lines[0]
    assert "  addr_len=16" in lines[0]
    assert lines[1].endswith("  returned  return=0")
    found = events_of("pass", "do_exit")  # which never returns
    assert [event.get("event") for event in found] == [None]


@_typed
def test_nothing_is_returned_by_void() -> None:
    found = seen(binds, "udp_destroy_sock(return)")
    assert [event["args"]["return"] for event in found] == [
        {"error": "void: nothing is returned"}
    ] * 2


def test_arguments_without_types() -> None:
    found = seen(binds, "inet_bind((int)arg2)", way=KprobeMethod.PERF_EVENT)
    assert [list(event["args"].values()) for event in found] == [[16]] * 2


def test_arguments_on_the_stack_without_types() -> None:
    offset = 2 * mmap.ALLOCATIONGRANULARITY

    def act() -> None:
        with tempfile.TemporaryFile() as file:
            file.truncate(1 << 20)
            mmap.mmap(file.fileno(), 4096, offset=offset, access=mmap.ACCESS_READ).close()

    probe = f"do_mmap(arg2 == 4096, arg4 == {mmap.MAP_SHARED:d}, arg3, arg5, arg6)"
    (found,) = [event["args"] for event in seen(act, probe, way=KprobeMethod.PERF_EVENT)]
    assert found["arg3"] == mmap.PROT_READ
    assert offset // mmap.PAGESIZE in (found["arg5"], found["arg6"])  # vm_flags: since Linux 6.6


def test_a_pattern_counts_every_function() -> None:
    source = "import _socket as s\nfor _ in range(3): s.socket().bind(('127.0.0.1', 0))"
    found = results("count", "inet_*bind", "-c", program(source), "--by", "func")
    assert {row["key"]["func"]: row["count"] for row in found}["inet_bind"] == 3


@_typed
def test_the_time_of_a_call() -> None:
    source = "import time\ntime.sleep(0.05)"
    found, *_ = results("latency", "hrtimer_nanosleep", "-c", program(source), "--unit", "ms")
    assert found["count"] == 1
    assert 40_000_000 <= found["max"] < 2_000_000_000


def test_what_is_wrong_is_said_in_a_line() -> None:
    with pytest.raises(ProbeNotFound, match="no kernel function inet_bnid; nearest is inet_bind"):
        seen(binds, "inet_bnid")
    with pytest.raises(LanguageError, match="is inside a function"):
        seen(binds, "inet_bind+4(arg0)")
    for name in ("do_int3", "kprobe_dispatcher"):
        if current_functions().why_not_traceable(name):
            with pytest.raises(
                TracingError, match=r"notrace|blacklist|kallsyms|no kernel function"
            ):
                seen(binds, name)


@_EVERY
def test_kernel_stacks(way: KprobeMethod) -> None:
    found = seen(binds, "inet_bind(kstack)", way=here(way))
    assert len(found) == 2
    for event in found:
        frames = [str(frame["symbol"]) for frame in event["args"]["kstack"]]
        # i386 has socketcall(2); a chain of frame pointers goes from there to inet_bind().
        assert [name for name in frames if name.endswith(("sys_bind", "sys_socketcall"))], frames


def test_beside_probes_of_files() -> None:
    source = "import _socket as s\ns.socket().bind(('127.0.0.1', 0))"
    words = "kprobe:inet_bind((int)arg2)", "uprobe:libc:bind"
    if platform.machine().startswith("arm"):  # where Debian's libc is Thumb code
        done = kprobe("trace", "-c", program(source), *words, command=USDT, code=1)
        assert "bind is Thumb code, for which Linux has no uprobes" in done.stderr
        return
    found = events_of(source, *words, command=USDT)
    assert [event["probe"] for event in found] == ["uprobe:libc.so.6:bind", "kprobe:inet_bind"]


def test_the_ways_are_told() -> None:
    done = kprobe("trace", "-v", "--json", "-n", "1", "-c", "true", "do_exit", code=0)
    assert [json.loads(line)["probe"] for line in done.stdout.splitlines()] == ["kprobe:do_exit"]
    word = "fentry" if attach_methods_for(1, None)[0] is KprobeMethod.FENTRY else "k"
    assert word in done.stderr
