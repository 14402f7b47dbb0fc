"""``uprobe:TARGET:FUNCTION`` on real programs: what is shown equals what they print."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from function_programs import calls, needs_libc
from streams import read_events
from tracing_tools import one_error, run_usdt, tracing, until

from usdt.base.machine import KERNEL_MACHINE
from usdt.bpf.link import UprobeMethod
from usdt.uprobes.functions import FunctionFile

pytestmark = pytest.mark.usefixtures("ringbuf")

_WAYS = [pytest.param(via, id=str(via)) for via in UprobeMethod]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return calls(tmp_path_factory.mktemp("uprobes"))


@pytest.fixture
def needed(request: pytest.FixtureRequest, via: UprobeMethod) -> None:
    """What a way of attaching needs of the kernel."""
    names = {
        UprobeMethod.UPROBE_MULTI: "uprobe_multi",
        UprobeMethod.PERF_LINK: "cookies",
        UprobeMethod.PERF_EVENT: "uprobe_pmu",
        UprobeMethod.UPROBE_EVENTS: "uprobe_pmu",
    }
    request.getfixturevalue(names[via])


def traced(program: Path, what: str, *words: str) -> tuple[list[dict[str, Any]], list[list[str]]]:
    """Trace a command; its events, and the words of the lines it printed."""
    done = run_usdt("trace", "--json", "-o", f"{program}.json", "-c", f"{program} {what}", *words)
    assert done.returncode == 0, done.stderr
    assert done.stderr.rstrip().endswith(" 0 lost"), done.stderr
    events = read_events(Path(f"{program}.json").read_text())
    return events, [line.split() for line in done.stdout.splitlines()]


def printed(lines: list[list[str]], name: str) -> list[list[str]]:
    return [words[1:] for words in lines if words[0] == name]


@pytest.mark.usefixtures("needed")
@pytest.mark.parametrize("via", _WAYS)
def test_entry_and_return_of_a_recursion_are_one_event(program: Path, via: UprobeMethod) -> None:
    probe = f"uprobe:{program}:fib(arg0, return)"
    events, lines = traced(program, "fib", "--via", str(via), probe)
    shown = [[str(event["args"]["arg0"]), str(event["args"]["return"])] for event in events]
    assert shown == printed(lines, "fib")
    assert len(shown) == 41
    assert {(event["probe"], event["event"]) for event in events} == {
        (f"uprobe:{program.name}:fib", "return")
    }


@pytest.mark.usefixtures("needed")
@pytest.mark.parametrize("via", _WAYS)
def test_a_predicate_on_return_decides_about_entry_values(program: Path, via: UprobeMethod) -> None:
    probe = f"uprobe:{program}:fib(arg0, return > 2)"
    events, lines = traced(program, "fib", "--via", str(via), probe)
    wanted = [int(n) for n, result in printed(lines, "fib") if int(result) > 2]
    assert [event["args"] for event in events] == [{"arg0": n} for n in wanted]


_NUMBERS = """
import ctypes
strtol = ctypes.CDLL(None).strtol
strtol.restype = ctypes.c_long
for text in ("12", "-7", "077", "none", "x" * 300):
    for base in (8, 10, 16):
        print("strtol", text, base, strtol(text.encode(), None, base))
"""


@needs_libc
@pytest.mark.usefixtures("needed")
@pytest.mark.parametrize("via", _WAYS)
def test_a_function_of_libc_called_by_python(tmp_path: Path, via: UprobeMethod) -> None:
    script = tmp_path / "numbers.py"
    script.write_text(_NUMBERS)
    items = "str(arg0, 400), arg2, return, arg1 == 0 && arg2 > 0, return >= -7"
    probe = f"uprobe:libc:strtol({items})"
    words = "trace", "--json", "-o", tmp_path / "out", "--via", via
    done = run_usdt(*words, "-c", f"{sys.executable} {script}", probe)
    assert done.stderr.endswith("15 events, 0 lost\n"), done.stderr
    events = [one["args"] for one in read_events((tmp_path / "out").read_text())]
    shown = [["strtol", *map(str, event.values())] for event in events]
    assert shown == [line.split() for line in done.stdout.splitlines()]


@needs_libc
@pytest.mark.parametrize("by", ["str(arg0)", "arg2", "return"])
def test_entry_values_of_libc_as_keys(tmp_path: Path, by: str) -> None:
    script = tmp_path / "numbers.py"
    script.write_text(_NUMBERS)
    probe = "uprobe:libc:strtol(return, arg1 == 0)"
    words = "count", "--json", "-o", tmp_path / "out", "--by", by
    done = run_usdt(*words, "-c", f"{sys.executable} {script}", probe)
    assert done.stderr.endswith("15 events, 0 lost\n"), done.stderr
    results = read_events((tmp_path / "out").read_text())
    column = {"str(arg0)": 1, "arg2": 2, "return": 3}[by]
    wanted = Counter(line.split()[column][:128] for line in done.stdout.splitlines())
    assert {str(one["key"][by]): one["count"] for one in results} == wanted


def test_four_threads_keep_their_calls_apart(program: Path) -> None:
    events, lines = traced(program, "threads", f"uprobe:{program}:fib(arg0, return, arg0 > 0)")
    shown = Counter((event["args"]["arg0"], event["args"]["return"]) for event in events)
    wanted = Counter((int(n), int(result)) for n, result in printed(lines, "fib") if int(n) > 0)
    assert shown == wanted
    assert len({event["tid"] for event in events}) == 4


@pytest.mark.parametrize("bits", [pytest.param((), id="64"), pytest.param(("-m32",), id="32")])
def test_arguments_in_registers_and_on_the_stack(
    tmp_path_factory: pytest.TempPathFactory, bits: tuple[str, ...]
) -> None:
    program = compiled_or_skip(tmp_path_factory, bits)
    items = "(int)arg0, (char)arg1, (short)arg2, arg3, (u32)arg4, arg5, arg6, (int)arg7"
    probe = f"uprobe:{program}:many({items}, str(arg8), return)"
    events, lines = traced(program, "many", probe)
    shown = [[str(value) for value in event["args"].values()] for event in events]
    assert shown == printed(lines, "many")
    assert len(shown) == 2


def compiled_or_skip(tmp_path_factory: pytest.TempPathFactory, options: tuple[str, ...]) -> Path:
    try:
        return calls(tmp_path_factory.mktemp("bits"), *options)
    except subprocess.CalledProcessError:
        pytest.skip(f"gcc {' '.join(options)} makes no programs: apt-get install gcc-multilib")


def test_memory_is_read_at_entry_unless_the_item_needs_the_return(program: Path) -> None:
    events, _ = traced(
        program,
        "many",
        f"uprobe:{program}:erase(str(arg0), return, buf(arg0, return), buf(arg0, 3))",
        f"uprobe:{program}:fill(str(arg0), buf(arg0, (int)return))",
    )
    erase, fill = (event["args"] for event in events)
    assert erase == {
        "str(arg0)": "before",
        "return": 6,
        "buf(arg0,return)": "xxxxxx",
        "buf(arg0,3)": "bef",
    }
    assert fill == {"str(arg0)": "old", "buf(arg0,(int)return)": "made inside"}


def test_args_are_all_parameters_that_debug_information_knows(
    tmp_path: Path, program: Path
) -> None:
    typed = calls(tmp_path, "-g", name="typed")
    events, lines = traced(typed, "many", f"uprobe:{typed}:many(args, return)")
    assert [list(event["args"]) for event in events] == [[*"abcdefghi", "return"]] * 2
    shown = [[str(value) for value in event["args"].values()] for event in events]
    assert shown == printed(lines, "many")
    (event,), _ = traced(typed, "leaps", f"uprobe:{typed}:leaps(args, tid)")
    assert list(event["args"]) == ["tid"]  # leaps(void) has none
    done = run_usdt("trace", "-c", f"{program} many", f"uprobe:{program}:many(args)")
    assert "args: " in (said := one_error(done, code=2))
    assert "debug" in said


def test_an_unreadable_entry_value_is_shown_as_such_at_return(program: Path) -> None:
    items = "return, *(long *)arg0, str(arg0), *(long *)arg0 + return"
    events, _ = traced(program, "fib", f"uprobe:{program}:fib({items})")
    assert len(events) == 41
    for event in events:
        assert isinstance(event["args"].pop("return"), int)
        assert {tuple(value) for value in event["args"].values()} == {("error",)}


def test_longjmp_leaves_nothing_behind_that_is_taken_for_another_call(program: Path) -> None:
    tool = run_usdt(
        "trace", "--json", "-c", f"{program} leaps", f"uprobe:{program}:leap(arg0, return)"
    )
    assert tool.returncode == 0, tool.stderr
    events = [line for line in tool.stdout.splitlines() if line.startswith("{")]
    assert [line[line.index('"args"') :] for line in events] == [
        f'"args": {{"arg0": {n}, "return": {n}}}}}' for n in range(0, 10, 2)
    ]
    assert "begun and not returned" in tool.stderr


def test_a_call_that_is_not_followed_does_not_find_what_longjmp_left(program: Path) -> None:
    probe = f"uprobe:{program}:leap(arg0, return, arg0 == 1)"
    tool = run_usdt("trace", "--json", "-c", f"{program} leaps", probe)
    assert "0 events, 0 lost" in tool.stderr


def test_nesting_deeper_than_the_kernel_follows_is_said(program: Path) -> None:
    probe = f"uprobe:{program}:level(arg0, return)"
    tool = run_usdt("trace", "--json", "-c", f"{program} deep", probe)
    events = [json.loads(line) for line in tool.stdout.splitlines() if line.startswith("{")]
    assert len(events) < 100, "the kernel has a limit no longer: this test and the remark can go"
    assert {event["args"]["arg0"] + 1 for event in events} == {
        event["args"]["return"] for event in events
    }
    assert f"{100 - len(events)} calls have begun and not returned" in tool.stderr


def test_frames_without_room_are_counted(program: Path) -> None:
    # Frames of 60,000 bytes: there is room for less than 300.
    probe = f"uprobe:{program}:level(str(arg0, 60000), return)"
    tool = run_usdt("trace", "--json", "-c", f"{program} deeper", probe)
    lost = int(tool.stderr.split(" events, ")[1].split()[0])
    assert lost > 1000 - 300


def test_a_structure_returned_through_memory(tmp_path_factory: pytest.TempPathFactory) -> None:
    # On i386 the function takes the structure's address off the stack as it returns.
    program = compiled_or_skip(tmp_path_factory, ("-m32",))
    events, lines = traced(program, "wide", f"uprobe:{program}:wide(arg1, *(int *)(return + 4))")
    assert [event["args"] for event in events] == [{"arg1": 41, "*(int*)(return+4)": 42}]
    assert lines == [["wide", "42"]]


def test_only_the_return(program: Path) -> None:
    events, lines = traced(program, "fib", f"uprobe:{program}:fib(return, pid != 1)", "-v")
    assert [str(event["args"]["return"]) for event in events] == [
        result for _, result in printed(lines, "fib")
    ]


def test_only_the_entry_and_no_item(program: Path) -> None:
    events, lines = traced(program, "fib", f"uprobe:{program}:fib", f"uprobe:{program}:fib(func)")
    assert len(events) == 2 * len(printed(lines, "fib"))
    assert all("event" not in event for event in events)
    assert {str(event["args"]) for event in events} == {"{}", "{'func': 'fib'}"}


def test_an_offset_and_an_address(program: Path) -> None:
    with FunctionFile(str(program)) as file:
        (function,) = file.find("fib")
    events, _ = traced(program, "fib", f"uprobe:{program}:{function.start:#x}(arg0, return)")
    assert events[-1]["args"] == {"arg0": 7, "return": 13}
    first = _first_instruction(program, "fib")
    events, _ = traced(program, "fib", f"uprobe:{program}:fib+{first}(pid)")
    assert len(events) == 41
    assert events[0]["probe"] == f"uprobe:{program.name}:fib+{first:#x}"


def _first_instruction(program: Path, name: str) -> int:
    # The size of a function's first instruction, as objdump sees it.
    text = subprocess.run(
        ["objdump", "-d", f"--disassemble={name}", str(program)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split(f"<{name}>:\n")[1]
    one, two = (int(line.split(":")[0], 16) for line in text.splitlines()[:2])
    return two - one


def test_usdt_count_by_arguments_and_return(program: Path) -> None:
    probe = f"uprobe:{program}:fib(return >= 0)"
    done = run_usdt("count", "--json", "-c", f"{program} threads", probe, "--by", "arg0,return")
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    shown = {(r["key"]["arg0"], r["key"]["return"]): r["count"] for r in results}
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("fib")]
    assert shown == Counter((int(n), int(result)) for _, n, result in lines)


def test_strings_of_the_entry_as_keys_at_return(program: Path) -> None:
    probe = f"uprobe:{program}:erase(return)"
    done = run_usdt("count", "--json", "-c", f"{program} many", probe, "--by", "str(arg0),return")
    assert '"key": {"str(arg0)": "before", "return": 6}' in done.stdout, done.stderr


def test_latency_of_a_recursion(program: Path) -> None:
    ends = f"uprobe:{program}:level", f"uprobe:{program}:level(return)"
    done = run_usdt("latency", "--json", "-c", f"{program} level", *ends)
    assert '"count": 10,' in done.stdout, done.stderr


@needs_libc
def test_hundreds_of_functions_in_one_attach(program: Path) -> None:
    with tracing("-v", "-c", f"{program} many", "uprobe:libc:*get*(func, pid == 0)") as tool:
        assert tool.sites > 100
        assert [line for line in tool.errors if "one uprobe_multi link" in line or "perf" in line]
    done = run_usdt("count", "--json", "-c", f"{program} fib", f"uprobe:{program}:*i*(return)")
    assert '"probe": "uprobe:calls:fib", "count": 41' in done.stdout, done.stderr


@needs_libc
def test_functions_of_a_running_process() -> None:
    probes = "uprobe:libc:getpid", "uprobe:libc:getppid(return)"
    with tracing("-p", os.getpid(), *probes) as tool:
        os.getppid()
        until(lambda: tool.lines, "the call of getppid()")
        assert tool.events[0]["args"] == {"return": os.getppid()}


@needs_libc
def test_malloc_and_free_in_one_session(program: Path) -> None:
    events, _ = traced(
        program, "many", "uprobe:libc:malloc(arg0, return)", "uprobe:libc:getenv(str(arg0), return)"
    )
    sizes = [e["args"] for e in events if e["probe"].endswith(":malloc")]
    assert sizes
    assert all(args["return"] % 16 == 0 and args["arg0"] > 0 for args in sizes)


@needs_libc
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["uprobe:malloc"], "names no file"),
        (["uprobe:libc:mallok"], "nearest is malloc"),
        pytest.param(
            ["uprobe:libc:memcpy(arg2)"],
            "indirect function (IFUNC)",
            marks=pytest.mark.skipif(
                KERNEL_MACHINE not in ("x86_64", "i386"),
                reason="needs x86: elsewhere memcpy may be plain",
            ),
        ),
        ([f"uprobe:{sys.executable}:__libc_start_main"], "imported, not defined here"),
        (["uprobe:/nowhere:malloc"], "no such file"),
        (["uprobe:/etc/passwd:malloc"], "not an ELF file"),
        (["uprobe:libc:malloc+4(arg0)"], "only known at a function's entry"),
        (["uprobe:libc:malloc+1000000"], "is outside the function"),
        (["uprobe:libc:malloc(arg99)"], "arg0…arg15"),
        (["uprobe:libc:0x10"], "not in code"),
    ],
)
def test_mistakes_have_one_line(words: list[str], message: str) -> None:
    done = run_usdt("trace", "-d", "1", *words)
    assert message in one_error(done, code=done.returncode)
    assert done.returncode in (1, 2)
