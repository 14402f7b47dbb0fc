"""A small tracer made of nothing but bpf: what it records of sema_shared's probes tests compare.

with tracing(program, "multi") as tracer, start(program, "-w") as running:
    with tracer.attached(places(program, *COOKIES)):
        running.fire()
    hits = tracer.hits()
"""

from __future__ import annotations

import contextlib
import re
import shutil
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from fixtures import build

from usdt.arch.pt_regs import PT_REGS
from usdt.base.errors import NotSupported
from usdt.base.machine import KERNEL_MACHINE, KERNEL_WORD_SIZE
from usdt.bpf import features
from usdt.bpf._uapi import AttachType, Helper, MapType
from usdt.bpf.asm.assembler import Assembler, Code
from usdt.bpf.asm.insn import R0, R1, R2, R3, R6, R7, R8, R9, R10, Jump
from usdt.bpf.link import (
    Link,
    UprobeSite,
    attach_uprobe_multi,
    attach_uprobe_perf,
    close_links,
)
from usdt.bpf.maps import Map, MapSpec
from usdt.bpf.program import ProgramSpec
from usdt.bpf.rings.ringbuf import BUSY, DISCARD, HEADER, RingBuffer, equal_runs
from usdt.probes.probe import Site, read_probes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = (
    "COOKIES",
    "GIVEN_UP",
    "WAYS",
    "Hit",
    "Tracer",
    "newest_way",
    "places",
    "recorder",
    "shared_semaphores",
    "sites_of",
    "tracing",
)

WAYS = pytest.mark.parametrize("way", ["multi", "perf"])
# Odd and even, with and without the upper half.
COOKIES = (
    1,
    2,
    (1 << 61) + 3,
    0,
    (1 << 64) - (1 << 62) - 1,
)
GIVEN_UP = 1 << 62  # bit of a cookie: the program discards what it reserved
_BODY = struct.Struct("=QQQQ")  # cookie, pid and tid, instruction pointer, number
# The register that holds the address of what is executed next.
_IP = next(
    PT_REGS[KERNEL_MACHINE][n]
    for n in ("rip", "pc", "pswa", "nip", "epc", "era")
    if n in PT_REGS[KERNEL_MACHINE]
)
_TAIL = b"\x5a" * 13  # behind it where the cookie is odd


class Hit(NamedTuple):
    """A record of :func:`recorder`."""

    cookie: int
    pid: int
    tid: int
    ip: int
    number: int


def _record(asm: Assembler, length: int, done: str) -> None:
    asm.load_map(R1, "events")
    asm.mov(R2, length)
    asm.mov(R3, 0)
    asm.call(Helper.RINGBUF_RESERVE)
    asm.jump(Jump.EQ, R0, 0, "out")
    asm.store(R0, 0, R7)
    asm.store(R0, 8, R8)
    asm.load(R1, R6, _IP, KERNEL_WORD_SIZE)
    asm.store(R0, 16, R1)
    asm.store(R0, 24, R9)
    if length > _BODY.size:
        asm.store(R0, 32, 0x5A5A5A5A)  # extended to 64 bits; its upper half is 0 …
        for half in (32, 36):  # … and written again
            asm.store(R0, half, 0x5A5A5A5A, 4)
        asm.store(R0, 40, 0x5A5A5A5A, 4)
        asm.store(R0, 44, 0x5A, 1)
    asm.goto(done)


def recorder() -> Code:
    """Count the hit and record it, in 32 bytes, or in 45 where the cookie is odd.

    The cookie is 0 where the kernel has none.
    """
    asm = Assembler()
    asm.mov(R6, R1)
    asm.mov(R7, 0)
    if features.have_cookies():
        asm.call(Helper.GET_ATTACH_COOKIE)
        asm.mov(R7, R0)
    asm.call(Helper.GET_CURRENT_PID_TGID)
    asm.mov(R8, R0)
    asm.store(R10, -4, 0, 4)
    asm.load_map(R1, "count")
    asm.mov(R2, R10)
    asm.add(R2, -4)
    asm.call(Helper.MAP_LOOKUP_ELEM)
    asm.jump(Jump.EQ, R0, 0, "out")
    asm.load(R9, R0, 0)
    asm.mov(R1, 1)
    asm.atomic_add(R0, 0, R1)
    asm.jump(Jump.SET, R7, 1, "odd")
    _record(asm, _BODY.size, "done")
    asm.label("odd")
    _record(asm, _BODY.size + len(_TAIL), "done")
    asm.label("done")
    asm.mov(R1, R0)
    asm.mov(R2, 0)
    asm.mov(R3, GIVEN_UP)
    asm.jump(Jump.SET, R7, R3, "discard")
    asm.call(Helper.RINGBUF_SUBMIT)
    asm.goto("out")
    asm.label("discard")
    asm.call(Helper.RINGBUF_DISCARD)
    asm.label("out")
    asm.mov(R0, 0)
    asm.exit()
    return asm.assemble()


class Tracer:
    """The maps of one program of :func:`recorder`, and what has been recorded."""

    def __init__(self, ring: RingBuffer, count: Map, path: Path, way: str) -> None:
        self.ring = ring
        self.path = str(path)
        self.way = way
        kind = AttachType.TRACE_UPROBE_MULTI if way == "multi" else AttachType.NONE
        self.program = ProgramSpec(recorder(), attach_type=kind, name="recorder").load(
            {"events": ring.map, "count": count}
        )
        self._count = count

    def attach(self, sites: Sequence[UprobeSite], *, pid: int = 0) -> list[Link]:
        """One link for all sites, or one for each."""
        if self.way == "multi":
            return [attach_uprobe_multi(self.program, self.path, sites, pid=pid)]
        cookies = self.way == "perf"
        return [
            attach_uprobe_perf(self.program, self.path, site, pid=pid, cookies=cookies)
            for site in sites
        ]

    @contextlib.contextmanager
    def attached(self, sites: Sequence[UprobeSite], *, pid: int = 0) -> Iterator[None]:
        links = self.attach(sites, pid=pid)
        try:
            yield
        finally:
            close_links(links)

    def count(self) -> int:
        """How often the program has run."""
        return int.from_bytes(self._count.get(bytes(4)) or b"", sys.byteorder)

    def hits(self) -> list[Hit]:
        """What was recorded since last asked."""
        data = self.ring.take()
        found = []
        for first, step, records, header in equal_runs(data):
            assert not header & BUSY
            for position in range(first + HEADER, first + step * records, step):
                if header & DISCARD:
                    continue
                cookie, both, ip, number = _BODY.unpack_from(data, position)
                if cookie & 1:
                    assert data[position + _BODY.size :][: len(_TAIL)] == _TAIL
                found.append(Hit(cookie, both >> 32, both & 0xFFFFFFFF, ip, number))
        return found


@contextlib.contextmanager
def tracing(path: Path, way: str, size: int = 1 << 20) -> Iterator[Tracer]:
    """A tracer of a file, by one of the kernel's ways: "multi", "perf" or "ioctl".

    Raises:
        NotSupported: uprobe_multi or cookies are not there; the test is skipped.
    """
    if way == "perf" and not features.have_cookies():
        raise NotSupported("a BPF cookie", (5, 15))
    if way == "multi" and not features.have_uprobe_multi():
        raise NotSupported("uprobe_multi", (6, 6))
    counter = MapSpec(MapType.ARRAY, 4, 8, 1)
    with RingBuffer(size) as ring, counter.create() as count:
        tracer = Tracer(ring, count, path, way)
        with tracer.program:
            yield tracer


def newest_way() -> str:
    """The way for tests that are not about ways."""
    return "multi" if features.have_uprobe_multi() else "perf"


def shared_semaphores(folder: Path) -> Path:
    """A program with three sites of one semaphore, and two of another.

    A copy: what others trace at the same time, in the same file, would be seen in its counters.
    """
    return Path(shutil.copy(build("default", "sema_shared"), folder))


def sites_of(path: Path) -> list[tuple[str, Site]]:
    """(probe's name, site), in the order in which sema_shared fires them."""
    found = [(probe.name, site) for probe in read_probes(str(path)).probes for site in probe.sites]
    assert [name for name, _ in found] == ["guarded"] * 3 + ["value"] * 2
    order = [0, 2, 1, 3, 4] if re.match(r"-4@[$#i]?1 ", found[0][1].args) else range(5)
    return [found[index] for index in order]


def places(path: Path, *cookies: int, semaphores: bool = True) -> list[UprobeSite]:
    """Where to attach, in the order of firing, one cookie each."""
    return [
        UprobeSite(site.offset or 0, site.semaphore_offset if semaphores else 0, cookie)
        for (_, site), cookie in zip(sites_of(path), cookies, strict=True)
    ]
