"""Tests of this folder trace the running kernel: they need root and name what they need of it."""

from __future__ import annotations

import errno
import functools
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from program_runs import run  # noqa: F401 - a fixture
from python_programs import interpreter

from usdt.arch.stubs import STUBS
from usdt.base.errors import NotSupported, SyscallError
from usdt.base.machine import KERNEL_MACHINE, PROCESS_MACHINE
from usdt.bpf import features
from usdt.bpf.asm.assembler import Assembler
from usdt.bpf.asm.insn import R0
from usdt.bpf.kprobes import KprobeSite, attach_kprobe
from usdt.bpf.program import ProgramSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder: ``-m 'not root'`` leaves them out."""
    folder = f"{_HERE}{os.sep}"  # pathlib takes ten times as long for thousands of tests
    for item in items:
        if str(item.path).startswith(folder):
            item.add_marker(pytest.mark.root)


def _need(has: bool, feature: str, since: tuple[int, int] | None) -> None:
    if not has:
        raise NotSupported(feature, since)


@pytest.fixture
def python(request: pytest.FixtureRequest) -> str:
    """The path of an interpreter that each_python names."""
    return interpreter(request.param)


@pytest.fixture
def ringbuf() -> None:
    """A kernel with the BPF ring buffer."""
    _need(features.have_ringbuf(), "the BPF ring buffer", (5, 8))


@pytest.fixture
def cookies() -> None:
    """A kernel whose links carry BPF cookies."""
    _need(features.have_cookies(), "a BPF cookie", (5, 15))


@pytest.fixture
def sleepable_uprobes() -> None:
    """A kernel whose programs on uprobes may take page faults."""
    _need(features.have_sleepable_uprobes(), "sleepable programs on uprobes", (6, 0))


@pytest.fixture
def uprobe_multi() -> None:
    """A kernel that attaches to many offsets in one call."""
    _need(features.have_uprobe_multi(), "uprobe_multi", (6, 6))


@pytest.fixture
def uprobe_pmu() -> None:
    """A kernel with uprobes as perf events; CONFIG_UPROBE_EVENTS decides, too."""
    _need(features.have_uprobe_pmu(), "the uprobe PMU", None)


@pytest.fixture
def providers() -> None:
    """A CPU that usdt.Provider makes probes for: of 64 bits."""
    if PROCESS_MACHINE not in STUBS:
        pytest.skip(
            f"usdt.Provider makes no probes for {PROCESS_MACHINE}, whose registers are too narrow"
        )


@pytest.fixture
def kprobes() -> None:
    """A kernel whose functions can be probed; CONFIG_KPROBE_EVENTS decides."""
    _need(features.have_kprobes(), "the kprobe PMU (CONFIG_KPROBES)", None)
    if KERNEL_MACHINE == "riscv64" and not _takes_breakpoints_at_entries():
        pytest.skip("breakpoints at functions' entries, which ftrace holds, are refused here")


@functools.cache
def _takes_breakpoints_at_entries() -> bool:
    # Not without CONFIG_KPROBES_ON_FTRACE, which riscv lacks as of Linux 6.12.
    asm = Assembler()
    asm.mov(R0, 0)
    asm.exit()
    with ProgramSpec(asm.assemble(), name="probe").load({}) as program:
        try:
            attach_kprobe(program, KprobeSite(0, "inet_bind"), cookies=False).close()
        except SyscallError as err:
            if err.errno == errno.EINVAL:
                return False
            raise
    return True


@pytest.fixture
def vmlinux_btf() -> None:
    """A kernel that describes its types; CONFIG_DEBUG_INFO_BTF decides, too."""
    _need(features.have_vmlinux_btf(), "/sys/kernel/btf/vmlinux", None)


@pytest.fixture
def tracefs(tmp_path: Path) -> Iterator[Path]:
    """The tracing file system, mounted for the test in a place of its own."""
    place = tmp_path / "tracing"
    place.mkdir()
    subprocess.run(["mount", "-t", "tracefs", "tracefs", place], check=True)
    yield place
    subprocess.run(["umount", place], check=True)
