"""Stacks of real programs whose call chain is known, as the commands show them."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING

import pytest
from fixtures import TESTBINS
from skips import need_program, requires_root
from streams import read_events
from symbol_programs import compiled
from tracing_tools import KPROBE, run_usdt, tracing

import usdt
from usdt.base.machine import PROCESS_MACHINE
from usdt.bpf import Assembler, ProgramSpec, ProgType
from usdt.bpf.asm.insn import R0, R1, R2, R10
from usdt.bpf.link import attach_raw_tracepoint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = requires_root

# A frame pointer in every function: it is all the kernel goes by. s390x has a chain of its own, and
# arm's is of code that is not Thumb.
_CHAINED = {"s390x": ("-mbackchain",), "arm": ("-marm", "-mapcs-frame")}
_FRAMES = (
    *("-O0", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls"),
    *_CHAINED.get(PROCESS_MACHINE, ()),
)
_INCLUDE = f"-I{TESTBINS}/out/include"

C = r"""
#include <stdlib.h>
#include <unistd.h>
#include <sys/sdt.h>
/* It calls a function, so it saves its return address: on s390x the kernel finds no other. */
static void inner(int i) { STAP_PROBE2(chain, hit, i, inner); getpid(); }
void middle(int i) { inner(i); }
void outer(int i) { middle(i); }
int main(int argc, char **argv)
{
    for (int i = 0; i < (argc > 1 ? atoi(argv[1]) : 1); i++)
        outer(i);
    return 0;
}
"""
CHAIN = ["inner", "middle", "outer", "main"]
FRAME = ("address", "symbol", "offset", "module", "build_id", "link_address")

CXX = r"""
#include <sys/sdt.h>
namespace shop {
template<class T> struct Order {
    void pay(T amount) { STAP_PROBE1(chain, hit, (long)amount); }
    ~Order() { pay(3); }
};
}
int main() { shop::Order<unsigned long> order; return 0; }
"""


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chain")
    return compiled(folder, C, *_FRAMES, _INCLUDE, "-Wl,--build-id", name="chain")


def trace_json(*words: object) -> list[dict[str, object]]:
    done = run_usdt("trace", "--json", *words)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def symbols_of(stack: object) -> list[str]:
    assert isinstance(stack, list), stack
    return [frame["symbol"] for frame in stack]


def test_a_program_that_ends_at_once_has_its_whole_chain(chain: Path) -> None:
    events = trace_json("--ustack", "-c", f"{chain} 3", "chain:hit(arg0)")
    assert [event["args"]["arg0"] for event in events] == [0, 1, 2]
    for event in events:
        stack = event["args"]["ustack"]
        assert symbols_of(stack)[:4] == CHAIN
        assert [frame["module"] for frame in stack[:4]] == ["chain"] * 4
        assert stack[4]["module"].startswith("libc")
        assert list(stack[0]) == [*FRAME]


def test_text_has_a_line_for_each_frame_behind_the_values(chain: Path) -> None:
    done = run_usdt("trace", "-c", str(chain), "chain:hit(ustack,arg0)")
    lines = done.stdout.splitlines()
    assert lines[0].endswith("arg0=0  ustack=")
    for line, name in zip(lines[1:5], CHAIN, strict=True):
        assert line.startswith(f"        {name}+0x")
        assert line.endswith(" [chain]")
    assert "1 event, 0 lost" in done.stderr


def test_folded_lines_are_what_flame_graphs_read(chain: Path) -> None:
    done = run_usdt("trace", "--folded", "-c", f"{chain} 2", "chain:hit")
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        stack, _, count = line.rpartition(" ")
        assert count == "1"
        assert stack.split(";")[0] == "chain"
        assert stack.endswith("main;outer;middle;inner")


def test_a_count_by_stack_is_the_trace_of_the_same_run(chain: Path) -> None:
    done = run_usdt("count", "--folded", "-c", f"{chain} 7", "chain:hit")
    folded = [line.rpartition(" ") for line in done.stdout.splitlines()]
    for stack, _, _ in folded:
        assert stack.startswith("chain;")
        assert stack.endswith("main;outer;middle;inner")
    assert sum(int(count) for _, _, count in folded) == 7
    counted = run_usdt("count", "--json", "--by", "ustack", "-c", f"{chain} 7", "chain:hit")
    results = [json.loads(line) for line in counted.stdout.splitlines()]
    assert sum(result["count"] for result in results) == 7
    for result in results:
        assert symbols_of(result["key"]["ustack"])[:4] == CHAIN
    # libc has no back chain on s390x: beyond it the kernel's Linux 6.12 follows what it finds.
    assert PROCESS_MACHINE == "s390x" or len(folded) == len(results) == 1


@pytest.mark.parametrize("unwind", ["auto", "fp"])
def test_the_first_frames_of_a_stack(chain: Path, unwind: str) -> None:
    items = "chain:hit(ustack(1), ustack(3), ustack, kstack(2))"
    (event,) = trace_json("--unwind", unwind, "-c", str(chain), items)
    whole = event["args"]["ustack"]
    assert symbols_of(whole)[:4] == CHAIN
    assert event["args"]["ustack(1)"] == whole[:1]
    assert event["args"]["ustack(3)"] == whole[:3]
    assert "no frames" in event["args"]["kstack(2)"]["error"]


def test_hits_by_the_first_frames_of_a_stack(chain: Path) -> None:
    keys = "ustack(2),ustack(1)"
    done = run_usdt("count", "--json", "--by", keys, "-c", f"{chain} 7", "chain:hit")
    (result,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert result["count"] == 7
    assert symbols_of(result["key"]["ustack(2)"]) == CHAIN[:2]
    assert symbols_of(result["key"]["ustack(1)"]) == CHAIN[:1]
    done = run_usdt("count", "--folded", "--by", "ustack(2)", "-c", f"{chain} 7", "chain:hit")
    assert done.stdout == "chain;middle;inner 7\n"


def test_first_frames_in_a_recording(chain: Path, tmp_path: Path) -> None:
    words = "-o", tmp_path / "it", "-c", f"{chain} 2", "chain:hit(ustack(2))"
    assert run_usdt("record", *words).returncode == 0
    done = run_usdt("report", "--json", tmp_path / "it")
    stacks = [json.loads(line)["args"]["ustack(2)"] for line in done.stdout.splitlines()]
    assert list(map(symbols_of, stacks)) == [CHAIN[:2]] * 2


def test_the_first_frames_of_a_kernel_stack_are_not_the_tracers() -> None:
    words = "trace", "--json", "-n", "1", "-c", "/bin/true", "syscall:openat(kstack(2), kstack)"
    done = subprocess.run([KPROBE, *words], capture_output=True, text=True, check=True)
    (event,) = read_events(done.stdout)
    whole = event["args"]["kstack"]
    assert event["args"]["kstack(2)"] == whole[:2]
    words = "count", "--json", "--by", "kstack(1)", "-c", "/bin/true", "syscall:openat"
    done = subprocess.run([KPROBE, *words], capture_output=True, text=True, check=True)
    (row,) = read_events(done.stdout)
    assert symbols_of(row["key"]["kstack(1)"]) == symbols_of(whole)[:1]


def test_a_kernel_stack_that_cannot_be_is_said(chain: Path) -> None:
    (event,) = trace_json("--stack", "-c", str(chain), "chain:hit")
    assert "no frames: hit in user mode" in event["args"]["kstack"]["error"]
    assert symbols_of(event["args"]["ustack"])[:4] == CHAIN
    done = run_usdt("trace", "--kstack", "-c", str(chain), "chain:hit(pid)")
    assert "kstack=?(no frames: hit in user mode" in done.stdout


def test_an_address_is_shown_as_its_function(chain: Path) -> None:
    (event,) = trace_json("-c", str(chain), "chain:hit(usym(arg1),usym(1))")
    found = event["args"]["usym(arg1)"]
    assert (found["symbol"], found["offset"], found["module"]) == ("inner", 0, "chain")
    assert event["args"]["usym(1)"]["symbol"] is None
    done = run_usdt("trace", "-c", str(chain), "chain:hit(usym(arg1))")
    assert "usym(arg1)=inner+0x0 [chain]" in done.stdout


def test_names_of_a_cxx_program_are_demangled(tmp_path: Path) -> None:
    program = compiled(tmp_path, CXX, "-xc++", *_FRAMES, _INCLUDE, name="shop")
    (event,) = trace_json("--ustack", "-c", str(program), "chain:hit")
    assert symbols_of(event["args"]["ustack"])[:3] == [
        "shop::Order<unsigned long>::pay(unsigned long)",
        "shop::Order<unsigned long>::~Order()",
        "main",
    ]


def test_a_stripped_program_has_the_names_of_its_debug_file(chain: Path, tmp_path: Path) -> None:
    objcopy = need_program("objcopy", "binutils")
    debug, stripped = tmp_path / "stripped.debug", tmp_path / "stripped"
    plain = tmp_path / "plain"
    steps = (
        ("--remove-section=.note.gnu.build-id", chain, plain),
        ("--only-keep-debug", plain, debug),
        ("--strip-all", f"--add-gnu-debuglink={debug}", plain, stripped),
    )
    for words in steps:
        subprocess.run([objcopy, *map(str, words)], check=True, timeout=60)
    (event,) = trace_json("--ustack", "-c", str(stripped), "chain:hit")
    assert symbols_of(event["args"]["ustack"])[:4] == CHAIN
    debug.unlink()
    (event,) = trace_json("--ustack", "-c", str(stripped), "chain:hit")
    stack = event["args"]["ustack"]
    assert stack[0]["symbol"] is None
    assert stack[0]["module"] == "stripped"
    done = run_usdt("trace", "--ustack", "-c", str(stripped), "chain:hit")
    assert f"{stack[0]['offset']:#x}]" in done.stdout.splitlines()[1]


def test_processes_that_come_and_go_are_named_one_by_one(chain: Path) -> None:
    with tracing("--ustack", f"{chain}:chain:hit") as tool:
        for _ in range(20):
            subprocess.run([str(chain)], check=True, timeout=60)
        tool.wait_events(20)
        events = tool.stop()
    assert len(events) == 20
    for event in events:
        assert symbols_of(event["args"]["ustack"])[:4] == CHAIN
    assert not [line for line in tool.errors if "ended before" in line]


def test_folded_and_json_exclude_one_another(chain: Path) -> None:
    for command in ("trace", "count"):
        done = run_usdt(command, "--folded", "--json", "-c", str(chain), "chain:hit")
        assert done.returncode == 2
        assert "exclude one another" in done.stderr


def test_events_of_the_python_interface_carry_frames(chain: Path) -> None:
    with usdt.attach("chain:hit(arg0,ustack,usym(arg1))", command=[str(chain), "2"]) as events:
        found = list(events)
    assert [event.args["arg0"] for event in found] == [0, 1]
    for event in found:
        assert [frame.symbol for frame in event.args["ustack"]][:4] == CHAIN
        assert event.args["usym(arg1)"].symbol == "inner"


def test_a_recording_names_its_stacks_when_the_processes_are_gone(
    chain: Path, tmp_path: Path
) -> None:
    recording = tmp_path / "stacks.usdt"
    done = run_usdt("record", "--ustack", "-c", f"{chain} 3", "-o", recording, "chain:hit")
    assert done.returncode == 0, done.stderr
    lines = run_usdt("report", "--json", recording).stdout.splitlines()
    assert len(lines) == 3
    for line in lines:
        assert symbols_of(json.loads(line)["args"]["ustack"])[:4] == CHAIN


@pytest.mark.parametrize(
    ("probe", "innermost"),
    [
        pytest.param("rawtp:sched_switch", "__schedule", id="raw tracepoint"),
        pytest.param("tracepoint:sched:sched_switch", "__schedule", id="tracepoint"),
    ],
)
def test_a_kernel_stack_begins_at_the_probed_function(probe: str, innermost: str) -> None:
    done = run_usdt("trace", "--json", "-n", "1", "-a", "--kstack", probe)
    assert done.returncode == 0, done.stderr
    stack = json.loads(done.stdout.splitlines()[0])["args"]["kstack"]
    assert str(stack[0]["symbol"]).startswith(innermost)


def test_the_kernel_stack_of_a_system_call_has_no_frame_of_ours() -> None:
    done = run_usdt(
        *("trace", "--json", "-n", "1", "--kstack", "-c", "cat /etc/hostname", "syscall:openat")
    )
    assert done.returncode == 0, done.stderr
    stack = json.loads(done.stdout.splitlines()[-1])["args"]["kstack"]
    assert not any("bpf" in str(frame["symbol"]) for frame in stack)
    assert len(stack) >= 2


TRACE_PRINTK = 6  # of enum bpf_func_id; it fires the tracepoint bpf_trace_printk


@pytest.fixture
def printing() -> Iterator[None]:
    """A program of somebody else on every exec, which passes a tracepoint."""
    asm = Assembler()
    asm.store(R10, -8, 0x21, 8)  # "!"
    asm.mov(R1, R10)
    asm.add(R1, -8)
    asm.mov(R2, 2)
    asm.call(TRACE_PRINTK)
    asm.mov(R0, 0)
    asm.exit()
    spec = ProgramSpec(asm.assemble(), ProgType.RAW_TRACEPOINT, name="somebodys")
    with spec.load({}) as program, attach_raw_tracepoint(program, "sched_process_exec"):
        yield


@pytest.mark.usefixtures("printing")
@pytest.mark.parametrize("kind", ["rawtp:", "tracepoint:bpf_trace:"])
def test_another_program_within_a_kernel_stack_has_its_name(kind: str) -> None:
    words = ("trace", "--json", "--kstack", "-c", "sh -c 'exec /bin/true'")
    done = run_usdt(*words, f"{kind}bpf_trace_printk")
    assert done.returncode == 0, done.stderr
    (event,) = (json.loads(line) for line in done.stdout.splitlines())
    stack = symbols_of(event["args"]["kstack"])
    assert stack[0] == "bpf_trace_printk"
    assert re.fullmatch("bpf_prog_[0-9a-f]{16}_somebodys", stack[1])
    assert any("execve" in name for name in stack[2:])
