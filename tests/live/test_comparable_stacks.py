"""Stacks of several processes of one program: the same stack is one, wherever it is mapped."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from aggregating import aggregating, outcome
from fixtures import TESTBINS
from skips import need_program, requires_root
from symbol_programs import compiled, running
from tracing_tools import run_usdt

import usdt
from usdt.arch.unwinding import STACK_POINTERS
from usdt.base.machine import KERNEL_MACHINE

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = requires_root

_FOLLOWED = ("--unwind", "fp", "-f", "-c")
CHAIN = ["inner", "middle", "outer", "main"]
C = r"""
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/sdt.h>
__attribute__((noinline)) void inner(int i) { STAP_PROBE1(same, hit, i); getpid(); }
__attribute__((noinline)) void middle(int i) { inner(i); getpid(); }
__attribute__((noinline)) void outer(int i) { middle(i); getpid(); }
int main(int argc, char **argv)
{
    getchar();
    for (int i = 0; i < atoi(argv[1]); i++)
        outer(i);
    return 0;
}
"""
OPTIONS = ("-O1", "-fno-omit-frame-pointer", "-fpie", "-pie", f"-I{TESTBINS}/out/include")


def program(folder: Path, *options: str, name: str = "same", source: str = C) -> Path:
    return compiled(folder, source, *OPTIONS, *options, name=name)


@pytest.fixture(scope="module")
def same(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return program(tmp_path_factory.mktemp("same"), "-Wl,--build-id")


def results(command: str, *words: str, by: str = "ustack(4)") -> list[dict[str, Any]]:
    # By frame pointers: the processes end before their unwind tables are loaded.
    done = run_usdt("count", "--json", "--by", by, *_FOLLOWED, f"sh -c '{command}'", *words)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return [one for one in found if "count" in one]


def build_id_of(path: Path) -> str:
    notes = subprocess.check_output([need_program("readelf"), "-n", path], text=True)
    found = re.search(r"Build ID: ([0-9a-f]+)", notes)
    assert found, notes
    return found[1]


def test_processes_at_different_addresses_are_one_stack(same: Path) -> None:
    (one,) = results(f"{same} 2; {same} 3; {same} 4", "same:hit")
    assert one["count"] == 9
    stack = one["key"]["ustack(4)"]
    assert [frame["symbol"] for frame in stack] == CHAIN
    assert {frame["build_id"] for frame in stack} == {build_id_of(same)}
    assert not any("address" in frame for frame in stack)


def test_frames_are_what_addr2line_takes(same: Path) -> None:
    (one,) = results(f"{same} 1", "same:hit")
    places = [frame["link_address"] for frame in one["key"]["ustack(4)"]]
    command = [need_program("addr2line"), "-f", "-e", same, *(hex(place) for place in places)]
    assert subprocess.check_output(command, text=True).splitlines()[::2] == CHAIN


def test_events_say_which_file_and_where_in_it(same: Path) -> None:
    command = f"sh -c '{same} 1; {same} 1'"
    done = run_usdt("trace", "--json", "-f", "-c", command, "same:hit(ustack)")
    stacks = [json.loads(line)["args"]["ustack"][:4] for line in done.stdout.splitlines()]
    first, second = ([(f["build_id"], f["link_address"]) for f in stack] for stack in stacks)
    assert first == second
    first, second = ([frame["address"] for frame in stack] for stack in stacks)
    assert first != second


def test_a_file_without_a_build_id_is_its_path_and_size(tmp_path: Path) -> None:
    plain = program(tmp_path, "-Wl,--build-id=none")
    (one,) = results(f"{plain} 2; {plain} 3", "same:hit")
    assert one["count"] == 5
    stack = one["key"]["ustack(4)"]
    assert {frame["build_id"] for frame in stack} == {None}
    assert {frame["file_id"] for frame in stack} == {f"{plain}:{plain.stat().st_size}"}


def test_two_builds_with_the_same_symbols_are_two_stacks(same: Path, tmp_path: Path) -> None:
    other = program(tmp_path, "-Wl,--build-id", source=C.replace("i = 0", "i = -1"))
    found = results(f"{same} 2; {other} 3", "same:hit")
    assert sorted(one["count"] for one in found) == [2, 4]
    names = {tuple(frame["symbol"] for frame in one["key"]["ustack(4)"]) for one in found}
    assert names == {tuple(CHAIN)}


def test_the_largest_and_folded_stacks_count_all_processes(same: Path) -> None:
    command = f"sh -c '{same} 2; {same} 3'"
    words = (*_FOLLOWED, command, "same:hit")
    done = run_usdt("count", "--by", "ustack(1),arg0", "--json", "--top", "1", *words)
    one, others = (json.loads(line) for line in done.stdout.splitlines())
    assert (one["count"], one["key"]["arg0"]) == (2, 1)
    assert others["left_out"]["count"] == 3
    done = run_usdt("count", "--folded", *words)
    (line,) = done.stdout.splitlines()
    assert line.startswith("same;")
    assert line.endswith("main;outer;middle;inner 5")


def test_addresses_as_keys_are_one_as_well(same: Path) -> None:
    (one,) = results(f"{same} 2; {same} 3", f"uprobe:{same}:middle", by="caller")
    assert one["count"] == 5
    assert one["key"]["caller"]["symbol"] == "outer"


@pytest.mark.skipif(KERNEL_MACHINE not in STACK_POINTERS, reason="no unwinding on this CPU")
def test_stacks_by_unwind_tables_are_one_as_well(tmp_path: Path) -> None:
    bare = program(tmp_path, "-fomit-frame-pointer", "-O2", "-fno-optimize-sibling-calls")
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(running(bare, times)) for times in ("2", "3")]
        pids = [word for one in processes for word in ("-p", one.pid)]
        tool = stack.enter_context(aggregating("count", "--by", "ustack(4)", *pids, "same:hit"))
        for process in processes:
            process.communicate("go\n")
        one = outcome(tool).one
    assert one["count"] == 5
    assert [frame["symbol"] for frame in one["key"]["ustack(4)"]] == CHAIN


def test_python_sees_one_stack_of_many_processes(same: Path) -> None:
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(running(same, times)) for times in ("2", "3")]
        session = stack.enter_context(usdt.Session(pid=[one.pid for one in processes]))
        counts = session.count("same:hit", by="ustack(4)")
        for process in processes:
            process.communicate("go\n")
        session.run()
    ((found, count),) = counts.items()
    assert count == 5
    assert [frame.partition("+")[0] for frame in found] == CHAIN
