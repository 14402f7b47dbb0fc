"""What a span costs: beside empty programs at its two ends, and beside bpftrace.

A span is a pair of USDT probes in a loop, or a call of a function. The program reports the median
of batches of 500 spans, so that a busy machine disturbs few of them.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    Watch = Callable[[subprocess.Popen[str], Path, str], AbstractContextManager[None]]

__all__ = ("spans",)

USDT = Path(sys.executable).parent / "usdt"
BPFTRACE = shutil.which("bpftrace")
_ATTACH_SECONDS = 60.0
_PAIR, _CALL = "pair", "call"
_EMPTY = "two empty uprobes"
_BATCH = 500
_SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <sys/sdt.h>
#include <time.h>
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}
__attribute__((noipa)) long work(long i)
{
    /* The kernel emulates it, as it does the push with which most functions begin. */
    __asm__ volatile("nop");
    return i + 1;
}
static int compare(const void *one, const void *other)
{
    double difference = *(const double *)one - *(const double *)other;
    return (difference > 0) - (difference < 0);
}
int main(int argc, char **argv)
{
    long batches = atol(argv[1]), size = atol(argv[2]), call = argv[3][0] == 'c';
    double *each = calloc(batches, sizeof *each);
    puts("ready");
    fflush(stdout);
    getchar();
    for (long batch = 0; batch < batches; batch++) {
        double began = now();
        for (long i = 0; i < size; i++) {
            if (call) {
                work(i);
            } else {
                STAP_PROBE1(span, begin, i);
                STAP_PROBE1(span, end, i);
            }
        }
        each[batch] = (now() - began) / size;
    }
    qsort(each, batches, sizeof *each, compare);
    printf("%.3f\n", each[batches / 2]);
    return 0;
}
"""


@contextlib.contextmanager
def _empty(process: subprocess.Popen[str], program: Path, kind: str) -> Iterator[None]:
    # Programs that return at once, at both ends.
    from usdt.bpf._uapi import AttachType  # noqa: PLC0415 - only this measurement loads programs
    from usdt.bpf.asm.assembler import Assembler  # noqa: PLC0415
    from usdt.bpf.asm.insn import R0  # noqa: PLC0415
    from usdt.bpf.link import UprobeSite, attach_uprobe_multi  # noqa: PLC0415
    from usdt.bpf.program import ProgramSpec  # noqa: PLC0415

    asm = Assembler()
    asm.mov(R0, 0)
    asm.exit()
    sites = [UprobeSite(offset, 0) for offset in _offsets(program, kind)]
    spec = ProgramSpec(asm.assemble(), attach_type=AttachType.TRACE_UPROBE_MULTI, name="empty")
    with contextlib.ExitStack() as stack:
        code = stack.enter_context(spec.load({}))
        for on_return in (True, False) if kind == _CALL else (False,):
            link = attach_uprobe_multi(
                code, str(program), sites, pid=process.pid, on_return=on_return
            )
            stack.enter_context(link)
        yield


def _offsets(program: Path, kind: str) -> list[int]:
    from usdt.probes.probe import read_probes  # noqa: PLC0415

    if kind == _CALL:
        symbols = subprocess.run(["nm", program], capture_output=True, text=True, check=True)
        words = (line.split() for line in symbols.stdout.splitlines())
        return [int(where, 16) for where, *_, name in words if name == "work"]
    probes = read_probes(program).probes
    return [site.offset for probe in probes for site in probe.sites if site.offset is not None]


def _tool(words: Callable[[int, Path], list[str]]) -> Watch:
    @contextlib.contextmanager
    def watch(process: subprocess.Popen[str], program: Path, _: str) -> Iterator[None]:
        with (
            (program.parent / "out").open("w") as out,
            subprocess.Popen(words(process.pid, program), stdout=out, stderr=out) as tool,
        ):
            try:
                yield
            finally:
                tool.send_signal(signal.SIGINT)

    return watch


def _ours(kind: str, *more: str) -> Watch:
    def words(pid: int, program: Path) -> list[str]:
        call, pair = [f"uprobe:{program}:work(arg0)"], ["span:begin", "span:end(arg0)"]
        return [str(USDT), "spans", "-p", str(pid), *(call if kind == _CALL else pair), *more]

    return _tool(words)


def _theirs(kind: str, least: str, action: str) -> Watch:
    def words(pid: int, program: Path) -> list[str]:
        start, end = f"usdt:{program}:span:begin", f"usdt:{program}:span:end"
        if kind == _CALL:
            start, end = f"uprobe:{program}:work", f"uretprobe:{program}:work"
        script = f"{start} {{ @s[tid] = nsecs; }} {end} /nsecs - @s[tid] > {least}/ {{ {action} }}"
        return [str(BPFTRACE), "-p", str(pid), "-e", script]

    return _tool(words)


def _one_run(watch: Watch, program: Path, kind: str, batches: int) -> float:
    command = [str(program), str(batches), str(_BATCH), kind]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        if process.stdin is None or process.stdout is None:
            sys.exit("bench: no pipes to the traced program")
        process.stdout.readline()
        with watch(process, program, kind):
            _await(process, program, _offsets(program, kind))
            process.stdin.write("go\n")
            process.stdin.flush()
            return float(process.stdout.readline())


def _await(process: subprocess.Popen[str], program: Path, offsets: list[int]) -> None:
    # Until the kernel has changed the instruction at both probes.
    maps = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
    line = next(line for line in maps if line.endswith(str(program)))
    bias = int(line.split("-")[0], 16) - int(line.split()[2], 16)
    deadline = time.monotonic() + _ATTACH_SECONDS
    original = program.read_bytes()
    with Path(f"/proc/{process.pid}/mem").open("rb", buffering=0) as memory:
        for offset in offsets:
            while True:
                memory.seek(bias + offset)
                if memory.read(1) != original[offset : offset + 1]:
                    break
                if time.monotonic() > deadline:
                    sys.exit(f"bench: nothing was attached within {_ATTACH_SECONDS:.0f} s")
                time.sleep(0.01)


def _watches(kind: str) -> dict[str, Watch]:
    watches: dict[str, Watch] = {
        _EMPTY: _empty,
        "usdt, refused": _ours(kind, "--slower", "1s"),
        "usdt, delivered": _ours(kind, "--json"),
    }
    if BPFTRACE:  # its predicate at the end is what refuses
        value = "retval" if kind == _CALL else "arg0"
        refused, shown = (
            f'printf("%d\\n", {value});',
            f'printf("%d %ld\\n", {value}, nsecs - @s[tid]);',
        )
        watches["bpftrace, refused"] = _theirs(kind, "1000000000", refused)
        watches["bpftrace, delivered"] = _theirs(kind, "0", shown)
    return watches


def spans(number: int, rounds: int) -> None:
    """Measure the cost of a span, and print it."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "spans")
        source = Path(folder, "spans.c")
        source.write_text(_SOURCE)
        subprocess.run(["gcc", "-O2", "-w", "-o", program, source], check=True)
        print(f"cost of a span: {number:,} of a tight loop, median (range) of {rounds} rounds")
        for kind, title in ((_PAIR, "a pair of probes"), (_CALL, "a function alone")):
            watches = _watches(kind)
            found: dict[str, list[float]] = {name: [] for name in watches}
            for _ in range(rounds):
                for name, watch in watches.items():
                    found[name].append(_one_run(watch, program, kind, max(1, number // _BATCH)))
            print(f" {title}")
            _print(found)


def _print(found: dict[str, list[float]]) -> None:
    medians = {name: statistics.median(values) for name, values in found.items()}
    for name, values in found.items():
        print(f"  {name:21} {medians[name]:9.1f} ns ({min(values):.1f}–{max(values):.1f})")
    for what in ("refused", "delivered"):
        ours = medians[f"usdt, {what}"]
        text = f"{ours / medians[_EMPTY]:.2f} × the empty uprobes"
        text += f", {ours - medians[_EMPTY]:.0f} ns more"
        if BPFTRACE:
            text += f"; {ours / medians[f'bpftrace, {what}']:.2f} × bpftrace"
        print(f"  {what}: {text}")
