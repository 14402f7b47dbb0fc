"""``out(EXPR)``: what a function leaves where its arguments lead, as the program prints it."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest
from function_programs import OPTIONS
from streams import read_events
from symbol_programs import compiled
from tracing_tools import run_usdt

import usdt
from kprobe.functions.arguments import CallContextAbi, arguments_of
from kprobe.functions.kernel_types import KernelTypes
from kprobe.functions.lookup import find_functions
from kprobe.functions.prototypes import current_functions
from usdt.base.frozen import replace
from usdt.bpf import features
from usdt.bpf._uapi import AttachType, MapType, ProgType
from usdt.bpf.maps import MapSpec
from usdt.bpf.program import ProgramSpec
from usdt.btf.reader import Btf
from usdt.engine.compiler.codegen.model import COUNTERS, ProgramVariant, TaskFilter
from usdt.engine.compiler.codegen.program import generate
from usdt.engine.compiler.codegen.ring_writes import EVENTS
from usdt.engine.compiler.entry_return import EntryReturnRole, split_entry_return
from usdt.engine.compiler.ir import Deref, PointerExpr
from usdt.engine.compiler.plan import make_plan
from usdt.engine.language import parse_probe
from usdt.engine.runtime.entry_state import EntryStateMaps

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("ringbuf")

_SOURCE = r"""
#include <stdio.h>
#include <string.h>
struct reply { int code; char text[16]; struct reply *next; };
struct span { char *data; long size; };
static struct reply last = {7, "last", 0};
__attribute__((noipa))
int ask(int n, struct reply *r, long *count, char **text, int d, int e, int f, long *late)
{
    r->code = 2 * n;
    strcpy(r->text, n > 1 ? "answer" : "none");
    r->next = &last;
    *count = strlen(r->text);
    *text = r->text + 1;
    *late = 99;
    return n;
}
__attribute__((noipa)) void fill(struct span s)
{
    memset(s.data, 'x', s.size);
}
__attribute__((noipa)) int nest(int n, int *sum)
{
    if (n)
        nest(n - 1, sum);
    *sum += n;
    return n;
}
int main(void)
{
    static char old[] = "before", room[] = "empty";
    int sum = 0;
    for (int n = 1; n < 4; n++) {
        struct reply r = {1, "old", 0};
        long count = 1, late = 2;
        char *text = old;
        ask(n, &r, &count, &text, 0, 0, 0, &late);
    }
    struct span s = {room, 5};
    fill(s);
    nest(3, &sum);
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("out"), _SOURCE, *OPTIONS, "-g", name="asks")


def args_of(program: Path, probe: str, *options: str) -> list[dict[str, Any]]:
    done = run_usdt("trace", "--json", *options, "-c", program, f"uprobe:{program}:{probe}")
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert {event["event"] for event in events} <= {"return"}
    return [event["args"] for event in events]


def test_memory_in_out_is_read_at_return_and_all_other_at_entry(program: Path) -> None:
    items = (
        "arg0, *(int *)arg1, out(*(int *)arg1), str(out(*(char **)arg3)), str(*(char **)arg3), "
        "buf(arg1 + 4, out(*(long *)arg2)), out(str(arg1 + 4, 3)), out(*(long *)arg7), return"
    )
    assert args_of(program, f"ask({items})")[1] == {
        "arg0": 2,
        "*(int*)arg1": 1,
        "out(*(int*)arg1)": 4,
        "str(out(*(char**)arg3))": "nswer",
        "str(*(char**)arg3)": "before",
        "buf(arg1+4,out(*(long*)arg2))": "answer",
        "out(str(arg1+4,3))": "ans",
        "out(*(long*)arg7)": 99,
        "return": 2,
    }


def test_typed_parameters_lead_through_structures(program: Path) -> None:
    items = "r->code, out(r->code), out(r->next->text), out(*count), *count, out(*r), out(*text)"
    found = args_of(program, f"ask({items})")[2]
    assert found.pop("out(*r)")["text"] == "answer"
    assert found == {
        "r->code": 1,
        "out(r->code)": 6,
        "out(r->next->text)": "last",
        "out(*count)": 6,
        "*count": 1,
        "out(*text)": "nswer",
    }


def test_a_structure_in_registers_keeps_its_pointers(program: Path) -> None:
    probe = "fill(str(s.data), out(str(s.data)), buf(s.data, s.size), buf(out(s.data), s.size))"
    assert args_of(program, probe) == [
        {
            "str(s.data)": "empty",
            "out(str(s.data))": "xxxxx",
            "buf(s.data,s.size)": "empty",
            "buf(out(s.data),s.size)": "xxxxx",
        }
    ]


def test_each_call_of_a_recursion_has_its_own(program: Path) -> None:
    found = args_of(program, "nest(n, *sum, out(*sum))")
    assert [tuple(one.values()) for one in found] == [(0, 0, 0), (1, 0, 1), (2, 0, 3), (3, 0, 6)]


def test_predicates_keys_and_values_of_aggregates(program: Path) -> None:
    ask = f"uprobe:{program}:ask"
    found = args_of(program, 'ask(out(r->text) == "answer", out(r->code) < 6, n)')
    assert found == [{"n": 2}]
    done = run_usdt("count", "--json", "-c", program, ask, "--by", "out(r->text), r->text")
    keys = [
        (json.loads(line)["key"], json.loads(line)["count"]) for line in done.stdout.splitlines()
    ]
    assert keys == [
        ({"out(r->text)": "none", "r->text": "old"}, 1),
        ({"out(r->text)": "answer", "r->text": "old"}, 2),
    ]
    done = run_usdt("stats", "--json", "-c", program, f"{ask}(out(*count), n > 1)")
    (row,) = map(json.loads, done.stdout.splitlines())
    assert (row["count"], row["sum"]) == (2, 12)


def test_recordings_and_the_python_interface_have_it(program: Path, tmp_path: Path) -> None:
    probe = f"uprobe:{program}:ask(out(r->code), n)"
    done = run_usdt("record", "-o", tmp_path / "asks.usdt", "-c", program, probe)
    assert done.returncode == 0, done.stderr
    lines = run_usdt("report", "--json", tmp_path / "asks.usdt").stdout.splitlines()
    recorded = [json.loads(line)["args"] for line in lines]
    with usdt.attach(probe, command=[str(program)]) as events:
        assert [event.args for event in events] == recorded
    assert recorded == [{"out(r->code)": 2 * n, "n": n} for n in (1, 2, 3)]


def test_at_the_entry_of_a_system_call_the_return_becomes_the_hit(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("hello world")
    probe = 'syscall:read(out(str(buf, 5)) == "hello", out(str(buf, 5)), count)'
    output = tmp_path / "events"
    run_usdt("trace", "--json", "-o", output, "-c", f"cat {path}", probe)
    ((name, value), _) = read_events(output.read_text())[0]["args"].items()
    assert (name, value) == ("out(str(buf,5))", "hello")


@pytest.mark.parametrize(
    ("probe", "reason"),
    [
        ("tracepoint:sched:sched_switch(out(*(int *)prev_pid))", "has no return"),
        ("uprobe:libc:setjmp(out(*(int *)arg0))", "no return probe on setjmp"),
        ("uprobe:PROGRAM:ask(out(*(int *)pid))", "leads to; pid is none"),
    ],
)
def test_out_needs_a_return_and_an_argument(program: Path, probe: str, reason: str) -> None:
    done = run_usdt("trace", "-c", program, probe.replace("PROGRAM", str(program)))
    assert done.returncode
    assert reason in done.stderr.splitlines()[-1]


def test_events_of_tracefs_say_that_they_cannot(program: Path) -> None:
    done = run_usdt("events", f"uprobe:{program}:ask(arg0, out(*(int *)arg1))")
    assert "# out(*(int*)arg1): what only the function's entry has" in done.stdout


@pytest.mark.usefixtures("vmlinux_btf")
@pytest.mark.parametrize("traced", [False, True], ids=["kprobe", "fentry"])
def test_the_verifier_takes_out_of_kernel_functions(*, traced: bool) -> None:
    """The programs of both ends of a kernel function; no kprobe is attached."""
    if traced and not features.have_fentry():
        pytest.skip("this kernel lacks fentry")
    probe = (
        "vfs_getattr(path->dentry, out(*stat), out(stat->size) > 1, hex(out(stat->mode)), return)"
    )
    request = parse_probe(probe, default="kprobe")
    (place,) = find_functions(request, current_functions(), typed=True, notices=[])
    context = CallContextAbi(traced=traced)
    plan = make_plan(
        request.items,
        arguments_of(place.btf, place.prototype, context),
        text=probe,
        probe=probe,
        declared=0,
        max_struct=4096,
        types=KernelTypes(Btf.from_kernel),
        kernel=True,
    )
    ends = split_entry_return(plan)
    assert ends is not None
    assert ends.entry is not None
    assert {type(one.node) for one in ends.returned.outputs} >= {Deref, PointerExpr}
    kinds = (AttachType.TRACE_FEXIT, AttachType.TRACE_FENTRY) if traced else (AttachType.NONE,) * 2
    with contextlib.ExitStack() as stack:
        maps = {EVENTS: MapSpec(MapType.RINGBUF, 0, 0, 1 << 18, EVENTS)}
        maps[COUNTERS] = MapSpec(MapType.ARRAY, 4, 16, 8, COUNTERS)
        made = {name: stack.enter_context(spec.create()) for name, spec in maps.items()}
        states = EntryStateMaps()
        stack.callback(states.close)
        made |= states.maps(ends.size)
        for part, kind in zip((ends.returned, ends.entry), kinds, strict=True):
            role = EntryReturnRole(
                entry=part is ends.entry, pair=1, size=ends.size, stack=context.stack
            )
            code = generate([ProgramVariant(1, 0, part, role)], TaskFilter(), sleepable=False)
            spec = ProgramSpec(code, name="out", attach_type=kind)
            if traced:
                spec = replace(spec, type=ProgType.TRACING, function=place.number)
            spec.load(made).close()
