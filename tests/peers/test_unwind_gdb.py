"""Stacks of stopped programs, unwound by us and by gdb: the same frames, and never one more."""

from __future__ import annotations

import glob
import itertools
import json
import os
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import skips
from kept_builds import compile_in
from stopped_stacks import unwound
from unwind_programs import CXX_SOURCE

from usdt.base.machine import KERNEL_MACHINE
from usdt.procfs.maps import read_maps
from usdt.symbolize import Symbolizer

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent / "unwind"


class Program(NamedTuple):
    """A program to stop: its command, and the functions to stop it in."""

    command: list[str]
    at: str
    first: str = "main"
    stops: int = 60


def first_of(pattern: str, package: str) -> str:
    found = sorted(glob.glob(pattern))  # noqa: PTH207 - absolute
    if not found:
        pytest.skip(f"needs {pattern}: apt-get install {package}")
    return found[-1]


def python() -> Program:
    script = """
import json, re, sys
for n in range(300):
    json.loads(json.dumps([1, 2, {"a": [n]}]))
    re.compile(f"a{n}b*").match("ab"), sorted([3, n, 1], key=abs)
"""
    path = first_of("/usr/bin/python3.11", "python3")
    at = "malloc read memcpy PyObject_GC_Del _PyEval_EvalFrameDefault"
    return Program([path, "-c", script], at, "Py_BytesMain", stops=100)


def bash() -> Program:
    script = 'for i in 1 2 3 4 5 6 7; do x=$(echo "$i"); [[ $x == *b* ]] || y=${x/a/b}; done; ls /'
    return Program(["/bin/bash", "-c", script], "malloc read write fork free")


def postgresql() -> Program:
    path = first_of("/usr/lib/postgresql/*/bin/postgres", "postgresql")
    return Program([path, "-C", "shared_buffers"], "malloc read palloc free strcmp")


def java() -> Program:
    path = first_of("/usr/lib/jvm/*/bin/java", "default-jdk-headless")
    return Program([path, "-Xint", "-version"], "malloc mmap read", stops=60)


def compiled(folder: Path, compiler: list[str], source: str, name: str) -> Program:
    (folder / name).write_text(source)
    compile_in(folder, [*compiler, "-o", folder / "program", folder / name])
    return Program([str(folder / "program")], "visited malloc free", stops=120)


def cxx(folder: Path) -> Program:
    command = [skips.need_program("g++"), "-O2", "-fomit-frame-pointer", "-DROUNDS=400"]
    return compiled(folder, command, CXX_SOURCE, "program.cpp")


def static(folder: Path) -> Program:
    command = [skips.need_program("g++"), "-O2", "-static", "-fomit-frame-pointer"]
    command.append("-DROUNDS=400")
    return compiled(folder, command, CXX_SOURCE, "program.cpp")


def rust(folder: Path) -> Program:
    source = """
#[inline(never)] #[no_mangle] pub extern "C" fn visited(n: u64) -> u64 { std::hint::black_box(n) }
fn walk(n: u64, found: &mut Vec<String>) -> u64 {
    found.push(format!("{n}"));
    let r = if n == 0 { visited(n) } else { walk(n - 1, found) + 1 };
    visited(r)
}
fn main() {
    for n in 0..300 { std::hint::black_box(walk(n % 15, &mut Vec::new())); }
}
"""
    return compiled(folder, [skips.need_program("rustc"), "-O"], source, "program.rs")


@contextmanager
def stopped(program: Program, seed: int) -> Iterator[Iterator[dict[str, Any]]]:
    """Yield what gdb sees at each stop; the program stands until the next one is asked for."""
    from_gdb, out = os.pipe()
    answers, to_gdb = os.pipe()
    environment = {
        **os.environ,
        "STOPS_OUT": str(out),
        "STOPS_IN": str(answers),
        "STOPS": str(program.stops),
        "STOPS_SEED": str(seed),
        "STOPS_AT": program.at,
        "STOPS_FIRST": program.first,
    }
    command = ["gdb", "-q", "-nx", "-batch", "-x", HERE / "gdb_stops.py", "--args"]
    gdb = subprocess.Popen(
        [*command, *program.command],
        env=environment,
        pass_fds=(out, answers),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(out)
    os.close(answers)

    def stops() -> Iterator[dict[str, Any]]:
        with os.fdopen(from_gdb) as told, os.fdopen(to_gdb, "w") as answer:
            for line in told:
                yield json.loads(line)
                answer.write("\n")
                answer.flush()

    found = stops()
    try:
        yield found
    finally:
        found.close()
        gdb.kill()
        gdb.wait()


def in_code(pid: int, addresses: list[int]) -> list[int]:
    """Return the addresses before the first that is no code: where gdb guesses, it goes on."""
    code = [(one.start, one.end) for one in read_maps(pid) if one.executable]
    return list(
        itertools.takewhile(
            lambda address: any(start <= address < end for start, end in code), addresses
        )
    )


@pytest.mark.skipif(KERNEL_MACHINE != "x86_64", reason="gdb's registers are those of x86-64")
@pytest.mark.parametrize("name", ["python", "bash", "postgresql", "java", "cxx", "static", "rust"])
def test_stacks_are_those_of_gdb(name: str, tmp_path: Path) -> None:
    skips.need_program("gdb")
    maker = globals()[name]
    program = maker(tmp_path) if name in ("cxx", "rust", "static") else maker()
    same = total = 0
    differences = []
    with Symbolizer() as symbolizer, stopped(program, seed=1) as stops:
        for stop in stops:
            stack = unwound(symbolizer, stop["pid"], stop["registers"])
            ours, theirs = [frame.address for frame in stack], in_code(stop["pid"], stop["frames"])
            total += 1
            same += ours == theirs
            assert set(ours) <= set(theirs), (ours, theirs)
            if ours != theirs:
                differences.append((stack.reason, [*map(hex, ours)], [*map(hex, theirs)]))
    assert total >= 5
    assert same >= 0.99 * total, differences
