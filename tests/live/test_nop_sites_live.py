"""Probes on instructions other than one nop, on x86-64: those that kernels refuse or optimize."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from skips import requires_root
from tracing_tools import run_usdt, tracing

import usdt
from usdt.arch.nops import NOP5, NOP10
from usdt.arch.stubs import STUBS
from usdt.base.frozen import replace
from usdt.base.machine import KERNEL_MACHINE, PROCESS_MACHINE
from usdt.bpf import features
from usdt.bpf._uapi import ENOTSUPP
from usdt.bpf.asm.assembler import Assembler
from usdt.bpf.asm.insn import R0
from usdt.bpf.link import UprobeSite, attach_uprobe_perf
from usdt.bpf.optimized_nops import Trial, optimizes_nop10, try_nop
from usdt.bpf.program import ProgramSpec
from usdt.provider.image import ProbeImage, build
from usdt.provider.loading import Library

if TYPE_CHECKING:
    from pathlib import Path

    from usdt.bpf.program import Program
    from usdt.provider.image import Image

pytestmark = [
    requires_root,
    pytest.mark.skipif(
        {KERNEL_MACHINE, PROCESS_MACHINE} != {"x86_64"},
        reason="needs x86-64: it is about its instructions",
    ),
]

LOCKED = bytes.fromhex("f0830c2400")  # lock orl $0, (%rsp)


def image(nop: bytes) -> Image:
    """Return a library with the probe ``nops:here`` on an instruction of a function."""
    stub = replace(STUBS["x86_64"], nop=nop)
    return build("nops", [ProbeImage("here", ())], stub)


def nothing() -> Program:
    """Load a program that does nothing."""
    asm = Assembler()
    asm.mov(R0, 0)
    asm.exit()
    return ProgramSpec(asm.assemble(), name="nothing").load({})


def test_a_site_on_a_locked_instruction_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "locked.so"
    path.write_bytes(image(LOCKED).data)
    check = run_usdt("check", path)
    assert check.returncode == 1
    assert "Linux cannot probe an instruction with the prefix f0 (lock)" in check.stdout
    assert "f0 83 0c 24 00" in check.stdout
    trace = run_usdt("trace", f"{path}:nops:here")
    assert "nops:here at 0x" in trace.stderr
    assert "prefix f0 (lock)" in trace.stderr
    assert "524" not in trace.stderr


def test_check_knows_whether_this_kernel_takes_the_long_nop(tmp_path: Path) -> None:
    path = tmp_path / "nop10.so"
    loaded = Library(image(NOP10), "usdt-nops", str(path))
    fire = loaded.function(0, ())
    taken = features.uprobe_syscall_error() == errno.EPROTO
    check = run_usdt("check", path)
    assert ("66 2e 0f 1f 84 00" in check.stdout, check.returncode) == (not taken, int(not taken))
    (site,) = usdt.list_probes(str(path))[0].sites
    assert site.offset
    if taken:
        with usdt.attach(f"{path}:nops:here") as events:
            fire()
            assert len(list(events.poll(20))) == 1
        return
    with nothing() as program, pytest.raises(usdt.SyscallError, match=r"ENOTSUPP") as caught:
        attach_uprobe_perf(program, str(path), UprobeSite(site.offset), cookies=False).close()
    assert caught.value.errno == ENOTSUPP
    del caught  # its frames keep the library loaded


def test_a_trial_shows_what_the_optimization_of_nop5_damages() -> None:
    # In a process of its own: its child dies of SIGSEGV, for which pytest has a handler.
    program = "from usdt.bpf.optimized_nops import *; from usdt.arch.nops import *; "
    words = [sys.executable, "-c", program + "print(try_nop(NOP5))"]
    trial = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    unharmed = Trial(optimized=False, red_zone=True, child=True)
    if features.uprobe_syscall_error() == errno.ENXIO:
        assert trial.startswith(str(Trial(optimized=True, red_zone=False, child=True))[:-6])
    else:
        assert trial == str(unharmed)
    assert try_nop(b"\x90") == unharmed


def test_a_site_on_a_nop5_is_refused_where_its_probe_would_kill_children(tmp_path: Path) -> None:
    path = tmp_path / "nop5.so"
    path.write_bytes(image(NOP5).data)
    harmful = features.uprobe_syscall_error() == errno.ENXIO
    for target in (path, f"uprobe:{path}:nops_here"):
        check = run_usdt("check", target)
        assert check.returncode == int(harmful), target
        assert ("kills forked children" in check.stdout + check.stderr) is harmful


def test_the_nop10_is_used_where_the_kernel_optimizes_it() -> None:
    assert optimizes_nop10() is (features.uprobe_syscall_error() == errno.EPROTO)
    if optimizes_nop10():
        assert try_nop(NOP10) == Trial(optimized=True, red_zone=True, child=True)


def test_optimized_or_not_every_hit_of_a_provider_and_its_child_arrives() -> None:
    shop = usdt.Provider("nops")
    hit = shop.probe("hit", int)
    pid = os.getpid()
    with shop, tracing("-v", "-a", "nops:hit(arg0)") as tool:
        for number in range(5):
            hit.fire(number)
        child = os.fork()
        if not child:
            try:
                hit.fire(5)
                hit.fire(6)
            finally:
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        hit.fire(7)
        events = tool.wait_events(8)
        tool.stop()
    assert [event["args"]["arg0"] for event in events] == [*range(8)]
    assert [event["pid"] for event in events] == [pid] * 5 + [child] * 2 + [pid]
    fast = "1 on a nop10, which this kernel optimizes"
    assert any(fast in line for line in tool.errors) is optimizes_nop10()
