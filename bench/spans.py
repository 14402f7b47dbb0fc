"""What a span costs: beside two empty uprobes, and beside the same pairing in bpftrace."""

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

    Watch = Callable[[subprocess.Popen[str], Path], AbstractContextManager[None]]

__all__ = ("spans",)

USDT = Path(sys.executable).parent / "usdt"
BPFTRACE = shutil.which("bpftrace")
_ATTACH_SECONDS = 60.0
_SOURCE = """
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
int main(int argc, char **argv)
{
    long rounds = atol(argv[1]);
    puts("ready");
    fflush(stdout);
    getchar();
    double began = now();
    for (long i = 0; i < rounds; i++) {
        STAP_PROBE1(span, begin, i);
        STAP_PROBE1(span, end, i);
    }
    printf("%.3f\\n", (now() - began) / rounds);
    return 0;
}
"""


@contextlib.contextmanager
def _empty(process: subprocess.Popen[str], program: Path) -> Iterator[None]:
    # Programs that return at once, at both probes.
    from usdt.bpf._uapi import AttachType  # noqa: PLC0415 - only this measurement loads programs
    from usdt.bpf.asm.assembler import Assembler  # noqa: PLC0415
    from usdt.bpf.asm.insn import R0  # noqa: PLC0415
    from usdt.bpf.link import UprobeSite, attach_uprobe_multi  # noqa: PLC0415
    from usdt.bpf.program import ProgramSpec  # noqa: PLC0415

    asm = Assembler()
    asm.mov(R0, 0)
    asm.exit()
    sites = [UprobeSite(offset, 0) for offset in _offsets(program)]
    spec = ProgramSpec(asm.assemble(), attach_type=AttachType.TRACE_UPROBE_MULTI, name="empty")
    with (
        spec.load({}) as code,
        attach_uprobe_multi(code, str(program), sites, pid=process.pid),
    ):
        yield


def _offsets(program: Path) -> list[int]:
    from usdt.probes.probe import read_probes  # noqa: PLC0415

    probes = read_probes(program).probes
    return [site.offset for probe in probes for site in probe.sites if site.offset is not None]


def _tool(words: Callable[[int, Path], list[str]]) -> Watch:
    @contextlib.contextmanager
    def watch(process: subprocess.Popen[str], program: Path) -> Iterator[None]:
        with (
            (program.parent / "out").open("w") as out,
            subprocess.Popen(words(process.pid, program), stdout=out, stderr=out) as tool,
        ):
            try:
                yield
            finally:
                tool.send_signal(signal.SIGINT)

    return watch


def _ours(*more: str) -> Watch:
    return _tool(
        lambda pid, _: [str(USDT), "spans", "-p", str(pid), "span:begin", "span:end(arg0)", *more]
    )


def _theirs(least: str, action: str) -> Watch:
    def words(pid: int, program: Path) -> list[str]:
        script = (
            f"usdt:{program}:span:begin {{ @s[tid] = nsecs; }} "
            f"usdt:{program}:span:end /nsecs - @s[tid] > {least}/ {{ {action} }}"
        )
        return [str(BPFTRACE), "-p", str(pid), "-e", script]

    return _tool(words)


def _one_run(watch: Watch, program: Path, rounds: int) -> float:
    command = [str(program), str(rounds)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        if process.stdin is None or process.stdout is None:
            sys.exit("bench: no pipes to the traced program")
        process.stdout.readline()
        with watch(process, program):
            _await(process, program)
            process.stdin.write("go\n")
            process.stdin.flush()
            return float(process.stdout.readline())


def _await(process: subprocess.Popen[str], program: Path) -> None:
    # Until the kernel has changed the instruction at both probes.
    maps = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
    line = next(line for line in maps if line.endswith(str(program)))
    bias = int(line.split("-")[0], 16) - int(line.split()[2], 16)
    deadline = time.monotonic() + _ATTACH_SECONDS
    original = program.read_bytes()
    with Path(f"/proc/{process.pid}/mem").open("rb", buffering=0) as memory:
        for offset in _offsets(program):
            while True:
                memory.seek(bias + offset)
                if memory.read(1) != original[offset : offset + 1]:
                    break
                if time.monotonic() > deadline:
                    sys.exit(f"bench: nothing was attached within {_ATTACH_SECONDS:.0f} s")
                time.sleep(0.01)


def spans(number: int, rounds: int) -> None:
    """Measure the cost of a span, and print it."""
    watches: dict[str, Watch] = {
        "two empty uprobes": _empty,
        "usdt, refused": _ours("--slower", "1s"),
        "usdt, delivered": _ours("--json"),
    }
    if BPFTRACE:  # its predicate at the end is what refuses
        watches["bpftrace, refused"] = _theirs("1000000000", 'printf("%d\\n", arg0);')
        watches["bpftrace, delivered"] = _theirs("0", 'printf("%d %ld\\n", arg0, nsecs - @s[tid]);')
    found: dict[str, list[float]] = {name: [] for name in watches}
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "spans")
        source = Path(folder, "spans.c")
        source.write_text(_SOURCE)
        subprocess.run(["gcc", "-O2", "-w", "-o", program, source], check=True)
        for _ in range(rounds):
            for name, watch in watches.items():
                found[name].append(_one_run(watch, program, number))
    print(f"cost of a span: {number:,} spans of a tight loop, median (range) of {rounds} rounds")
    medians = {name: statistics.median(values) for name, values in found.items()}
    for name, values in found.items():
        print(f"  {name:21} {medians[name]:9.1f} ns ({min(values):.1f}–{max(values):.1f})")
    for what in ("refused", "delivered"):
        text = f"{medians[f'usdt, {what}'] / medians['two empty uprobes']:.2f} × the empty uprobes"
        if BPFTRACE:
            text += f", {medians[f'usdt, {what}'] / medians[f'bpftrace, {what}']:.2f} × bpftrace"
        print(f"  {what}: {text}")
