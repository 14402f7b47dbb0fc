"""What programs cost: a hit of five typical ones beside bpftrace, start to exit, and a long one."""

from __future__ import annotations

import resource
import statistics
import subprocess
from typing import TYPE_CHECKING

from loop import LOOP, PART, race
from tracers import BPFTRACE, USDT, tracer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from loop import Loop, Watch
    from tracers import Outcome

__all__ = ("programs",)

_PRINTF = "printf of two integers and a string"
_PROGRAMS = {
    "count by key": ("{ @[arg0 % 64] = count(); }",),
    _PRINTF: ('{ printf("%d %d %s\\n", arg0, arg1, comm); }',),
    "time by thread, hist": (
        "/arg0 % 2 == 0/ { @start[tid] = nsecs; }",
        "/arg0 % 2 == 1 && @start[tid]/ { @ = hist(nsecs - @start[tid]); delete(@start[tid]); }",
    ),
    "filter by a member": ("/((struct task_struct *)curtask)->prio < 1000/ { @ = count(); }",),
    "count by stack": ("{ @[ustack] = count(); }",),
}
_COUNTED = r"^(?:@[^:]*:|[\[(].*[\])]|\]:) +(\d+)(?:[, ].*)?$"
_CLAUSE = """\
usdt:{loop}:loop:hit /arg0 % {number} == 1 && pid != {number}/
{{
  $n = arg0 * {number} + arg1;
  if ($n > 100) {{ @big{number}[comm, $n % 8] = count(); }} else {{ @small{number} = hist($n); }}
  for ($i : 0..3) {{ @sum{number}[tid] = sum($i + arg0); }}
  @last{number}[tid] = nsecs;
  printf("%d %s %llu\\n", $n, comm, nsecs - @last{number}[tid]);
}}
"""


def _watch(tool: str, clauses: Sequence[str], *, lines: bool) -> Watch:
    def watch(traced: Loop) -> AbstractContextManager[Outcome]:
        script = " ".join(f"usdt:{traced.binary}:loop:hit {clause}" for clause in clauses)
        ours = tool == str(USDT)
        lost = r"(\d+) events or map updates were lost" if ours else r"[Ll]ost (\d+) events"
        words = [tool, *(["run"] if ours else []), "-p", str(traced.process.pid), "-e", script]
        return tracer(words, lost, "" if lines else _COUNTED)

    return watch


def programs(
    hits: int, rounds: int, start_to_exit: Callable[[list[str]], tuple[float, float]]
) -> None:
    """Measure the programs and print the medians.

    Args:
        hits: of one round.
        rounds: how often each tool starts.
        start_to_exit: runs a command; returns its seconds and MiB.
    """
    tools = {"usdt": str(USDT)} | ({"bpftrace": BPFTRACE} if BPFTRACE else {})
    print(f"programs: {hits:,} hits, {PART:,} in turn; medians of {rounds} rounds")
    for name, clauses in _PROGRAMS.items():
        watches: dict[str, Watch | None] = {
            tool: _watch(path, clauses, lines=name == _PRINTF) for tool, path in tools.items()
        }
        series = race(watches, hits, rounds)
        for tool, each in series.items():
            delivered = sum(outcome.delivered for outcome in each.outcomes)
            lost = sum(outcome.lost for outcome in each.outcomes)
            print(
                f"  {name:36} {tool:9} {each.median:8.1f} ns {each.spread:17}"
                f" {delivered:,} delivered, {lost:,} lost"
            )
        if "bpftrace" in series:
            print(f"  usdt / bpftrace: {series['usdt'].over(series['bpftrace']):.3f}")
    _start(tools, rounds, start_to_exit)
    _compile(rounds, start_to_exit)


def _ratio(medians: dict[str, float]) -> None:
    if "bpftrace" in medians:
        print(f"  usdt / bpftrace: {medians['usdt'] / medians['bpftrace']:.2f}")


def _start(
    tools: dict[str, str],
    rounds: int,
    start_to_exit: Callable[[list[str]], tuple[float, float]],
) -> None:
    script = f'usdt:{LOOP}:loop:hit {{ printf("%d %d\\n", arg0, arg1); }}'
    found: dict[str, list[tuple[float, float]]] = {tool: [] for tool in tools}
    for _ in range(rounds):
        for tool, path in tools.items():
            words = [path, "run"] if tool == "usdt" else [path]
            found[tool].append(start_to_exit([*words, "-c", f"{LOOP} -n 1", "-e", script]))
    print("programs: start, one event, exit")
    for tool, each in found.items():
        seconds = statistics.median(one for one, _ in each)
        print(f"  {tool:9} {seconds * 1000:6.0f} ms   {max(one for _, one in each):6.1f} MiB")
    _ratio({tool: statistics.median(one for one, _ in each) for tool, each in found.items()})


def _compile(rounds: int, start_to_exit: Callable[[list[str]], tuple[float, float]]) -> None:
    # What a start costs more for a long program: it is parsed, checked, generated and loaded.
    texts = [
        "".join(_CLAUSE.format(loop=LOOP, number=one) for one in range(2, 2 + count))
        for count in (1, 16)
    ]
    found: list[list[float]] = [[], []]
    compiled: list[list[float]] = [[], []]
    for _ in range(rounds):
        for each, user, text in zip(found, compiled, texts, strict=True):
            words = [str(USDT), "run", "-c", f"{LOOP} -n 1", "-e", text]
            each.append(start_to_exit(words)[0])
            user.append(_user_seconds([str(USDT), "run", "--dry-run", "-e", text]))
    lines = texts[1].count("\n")
    later, alone = (
        (statistics.median(long) - statistics.median(short)) * 1000
        for short, long in (found, compiled)
    )
    print(f"programs: one of {lines} lines starts {later:.0f} ms later than one of 8")
    print(f"programs: {alone:.0f} ms of CPU to compile it: parse, check, generate")


def _user_seconds(command: Sequence[str]) -> float:
    # CPU seconds outside the kernel, which loads what is compiled.
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run(command, check=True, capture_output=True)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
