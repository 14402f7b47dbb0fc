"""Source lines of living processes and of recorded ones, and how frames with them are shown."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from symbol_programs import compiled, running, told

from usdt.engine.output.frames import Frame, folded, frame_json, frame_text
from usdt.engine.output.stacks import StackResolver
from usdt.symbolize import Symbolizer, file_cache, symbolizer

# Prints an address within each function, and the one that the innermost would return to.
PROGRAM = r"""
#include <stdio.h>
static void *where, *back;
static inline __attribute__((always_inline)) int innermost(int x)
{
    here: where = &&here;
    return x * 3;
}
static inline __attribute__((always_inline)) int between(int x) { return innermost(x) + 1; }
__attribute__((noinline)) int callee(int x)
{
    back = __builtin_return_address(0);
    return x;
}
__attribute__((noinline)) int outer(int x)
{
    int y = between(x);
    __asm__ volatile("" ::: "memory");
    return y + callee(x) + 1;
}
int main(void)
{
    int x = outer(1);
    printf("inlined %p\nback %p\nouter %p\nend -\n", where, back, outer);
    fflush(stdout);
    getchar();
    return x == 0;
}
"""


def line_of(text: str) -> int:
    return PROGRAM[: PROGRAM.index(text)].count("\n") + 1


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lines")
    return compiled(folder, PROGRAM, "-O1", "-g", "-Wl,--build-id", name="lines", kept=None)


def check(frames: list[Frame], known: dict[str, int], source: str) -> None:
    inner, between, outer, returned = frames
    assert (inner.symbol, inner.inlined, inner.file) == ("innermost", True, source)
    assert abs(inner.line - line_of("here: where")) <= 1
    assert (between.symbol, between.inlined) == ("between", True)
    assert between.line == line_of("static inline __attribute__((always_inline)) int between")
    assert (outer.symbol, outer.inlined, outer.line) == ("outer", False, line_of("int y = between"))
    assert {one.address for one in frames[:3]} == {known["inlined"]}
    assert {one.offset for one in frames[:3]} == {known["inlined"] - known["outer"]}
    # A return address: the line of the call, though what follows is another.
    assert (returned.symbol, returned.line) == ("outer", line_of("return y + callee"))


def test_a_process_has_lines_and_inlined_functions(program: Path) -> None:
    with running(program) as process, Symbolizer(lines=True) as symbols:
        known = told(process)
        stack = [known["inlined"], known["back"]]
        check(symbols.frames(process.pid, stack), known, f"{program}.c")
        assert symbols.frame(process.pid, known["inlined"]).symbol == "outer"
        symbols.lines = False
    with running(program) as process, Symbolizer() as symbols:
        known = told(process)
        found = symbols.frames(process.pid, [known["inlined"], known["back"]])
        assert [(one.symbol, one.file, one.line) for one in found] == [("outer", "", 0)] * 2


def test_a_recorded_process_has_them_without_the_process(program: Path) -> None:
    with running(program) as process, Symbolizer() as symbols:
        known = told(process)
        symbols.observe(process.pid)
        kept = json.loads(json.dumps(symbols.snapshot(process.pid)))
    with Symbolizer(lines=True) as later:
        later.restore(1, kept)
        check(later.frames(1, [known["inlined"], known["back"]]), known, f"{program}.c")


FDS = Path("/proc/self/fd")
INLINED = Frame(0x1234, "parse", 7, "server", "/src/a;b/parse.h", 12, inlined=True)
OWN = Frame(0x1234, "handle", 7, "server", "/src/server.c", 0)


def test_how_they_are_shown() -> None:
    assert frame_text(INLINED) == "parse (inlined) [server] at /src/a;b/parse.h:12"
    assert frame_text(OWN) == "handle+0x7 [server] at /src/server.c:?"
    assert folded([INLINED, OWN]) == "handle (server.c:?);parse (parse.h:12)_[i]"
    assert json.loads(frame_json(INLINED)) == {
        "address": 0x1234,
        "symbol": "parse",
        "offset": 7,
        "module": "server",
        "file": "/src/a;b/parse.h",
        "line": 12,
        "inlined": True,
    }
    own = json.loads(frame_json(OWN))
    assert (own["line"], "inlined" in own) == (None, False)
    plain = json.loads(frame_json(Frame(1, "f", 2, "m")))
    assert sorted(plain) == ["address", "module", "offset", "symbol"]
    hostile = Frame(1, "f", 2, "m", "/tmp/\x1b[31m\nx.c", 3)
    for text in (frame_text(hostile), folded([hostile])):
        assert text.isprintable()


def test_the_resolver_asks_for_lines() -> None:
    with StackResolver(Symbolizer, lines=True) as resolver:
        assert resolver._user_symbols().lines
    with StackResolver(Symbolizer) as resolver:
        assert not resolver._user_symbols().lines


# ------------------------------------------------------------ long reports


def snapshot(number: int, path: str = "/nowhere") -> dict[str, object]:
    start = 0x1000 * (number + 1)
    return {"mappings": [[start, start + 0x1000, 0, path, None]] * 3, "perf_map": ""}


def test_restored_processes_are_forgotten_from_the_oldest_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(symbolizer, "_MAX_RESTORED", 300)
    monkeypatch.setattr(symbolizer, "_MAX_PROCESSES", 1000)
    with Symbolizer() as symbols:
        for pid in range(1, 501):
            symbols.restore(pid, snapshot(pid))
            symbols.restore(pid, snapshot(pid))  # takes the place of the other
        assert sorted(symbols._processes) == list(range(401, 501))
        assert symbols._restored_size == 300
        assert symbols.frame(500, 0x1000 * 501).module == "nowhere"
        monkeypatch.setattr(symbolizer, "_MAX_PROCESSES", 10)
        symbols.restore(1, snapshot(1))
        assert len(symbols._processes) == 10
        symbols.forget(1)
        assert 1 not in symbols._processes


def test_files_of_recordings_are_opened_once_and_not_kept_without_end(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_cache, "_MAX_RECORDED", 8)
    monkeypatch.setattr(symbolizer, "_MAX_RESTORED", 60)
    before = len(list(FDS.iterdir()))
    with Symbolizer() as symbols:
        for pid in range(1, 100):
            symbols.restore(pid, snapshot(pid, str(program)))
            assert symbols.frame(pid, 0x1000 * (pid + 1) + 0x10).module == program.name
        assert len(symbols._cache._recorded) == 1
        assert len({id(one._files[(0, 0), 1]) for one in symbols._processes.values()}) == 1
        for pid in range(1, 200):
            copy = tmp_path / f"copy{pid}"
            os.link(program, copy)
            symbols.restore(pid, snapshot(pid, str(copy)))
            assert symbols.frame(pid, 0x1000 * (pid + 1) + 0x10).module == copy.name
        assert len(symbols._cache._recorded) == 8
        assert len(list(FDS.iterdir())) - before < 40
    assert len(list(FDS.iterdir())) == before


def test_names_are_safe() -> None:
    assert re.fullmatch(r"\?\? \(inlined\) \[m\]", frame_text(Frame(1, "??", 0, "m", inlined=True)))
