"""The ring buffer against the running kernel: wrap-around, loss, wake-ups, records never torn."""

from __future__ import annotations

import errno
import os
import resource
import select
import time
from pathlib import Path

import pytest
from fixtures import build, start
from recorder import COOKIES, GIVEN_UP, newest_way, places, shared_semaphores, tracing

from usdt.base.errors import SyscallError
from usdt.base.machine import KERNEL_WORD_SIZE
from usdt.bpf._uapi import AttachType, Helper
from usdt.bpf.asm.assembler import Assembler, Code
from usdt.bpf.asm.insn import R0, R1, R2, R3, R6, Jump
from usdt.bpf.link import UprobeSite, attach_uprobe_multi
from usdt.bpf.program import ProgramSpec
from usdt.bpf.rings.ringbuf import HEADER, RingBuffer
from usdt.probes.probe import read_probes

pytestmark = pytest.mark.usefixtures("ringbuf", "cookies")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Three sites with one semaphore, and two with another."""
    return shared_semaphores(tmp_path)


def test_the_ring_buffer_wraps_around_many_times(program: Path) -> None:
    cookies = (1, 2, 3, 4, 5)  # odd ones make longer records: 56 bytes, even ones 40
    with (
        tracing(program, newest_way(), size=1) as tracer,
        start(program, "-w", "-q", "-n", 10) as running,
    ):
        page = tracer.ring.size
        assert page == os.sysconf("SC_PAGE_SIZE")
        running.wait_ready()
        with tracer.attached(places(program, *cookies)):
            seen = taken = 0
            while taken < 25 * page:
                running.fire()
                taken += tracer.ring.pending()
                hits = tracer.hits()
                assert [hit.cookie for hit in hits] == list(cookies) * 10
                assert [hit.number for hit in hits] == list(range(seen, seen + 50))
                assert tracer.ring.pending() == 0
                seen += 50
        assert seen == tracer.count()


def test_a_full_ring_buffer_loses_the_newest_and_goes_on(program: Path) -> None:
    with (
        tracing(program, newest_way(), size=1) as tracer,
        start(program, "-w", "-q", "-n", 100) as running,
    ):
        running.wait_ready()
        with tracer.attached(places(program, 2, 4, 6, 8, 10)):
            running.fire()
            assert tracer.ring.pending() <= tracer.ring.size
            first = [hit.number for hit in tracer.hits()]
            assert first == list(range(len(first)))
            assert (tracer.ring.size - 80) // 40 <= len(first) < 500
            assert tracer.count() == 500
            running.fire()
            assert tracer.hits()[0].number == 500


def test_discarded_records_are_passed_over(program: Path) -> None:
    cookies = (2, GIVEN_UP | 2, 1, GIVEN_UP | 1, 4)
    with tracing(program, newest_way()) as tracer, start(program, "-w", "-n", 4) as running:
        running.wait_ready()
        with tracer.attached(places(program, *cookies)):
            running.fire()
        assert tracer.ring.pending()
        assert [hit.cookie for hit in tracer.hits()] == [2, 1, 4] * 4
        assert tracer.ring.take() == b""


def test_the_reader_is_woken_when_it_has_caught_up(program: Path) -> None:
    with (
        tracing(program, newest_way()) as tracer,
        start(program, "-w") as running,
        tracer.attached(places(program, *COOKIES)),
        select.epoll() as poller,
    ):
        running.wait_ready()
        poller.register(tracer.ring.fd.fileno(), select.EPOLLIN)
        assert poller.poll(0) == []
        for _ in range(3):
            running.send("fire")
            assert poller.poll(10) == [(tracer.ring.fd.fileno(), select.EPOLLIN)]
            running.wait_line("done")
            assert len(tracer.hits()) == 5
            assert poller.poll(0) == []


def slow_writer(words: int) -> Code:
    """A record of equal words, with some time between its reservation and their writing."""
    asm = Assembler()
    asm.load_map(R1, "events")
    asm.mov(R2, 8 * words)
    asm.mov(R3, 0)
    asm.call(Helper.RINGBUF_RESERVE)
    asm.jump(Jump.EQ, R0, 0, "out")
    asm.mov(R6, R0)
    for _ in range(60):
        asm.call(Helper.KTIME_GET_NS)
    for index in range(words):
        asm.store(R6, 8 * index, R0)
    asm.mov(R1, R6)
    asm.mov(R2, 0)
    asm.call(Helper.RINGBUF_SUBMIT)
    asm.label("out")
    asm.mov(R0, 0)
    asm.exit()
    return asm.assemble()


def test_records_taken_while_others_are_written_are_whole(uprobe_multi: None) -> None:
    words = 400
    path = build("default", "loop")
    sites = [
        UprobeSite(site.offset or 0)
        for probe in read_probes(str(path)).probes
        for site in probe.sites
    ]
    spec = ProgramSpec(slow_writer(words), attach_type=AttachType.TRACE_UPROBE_MULTI)
    step, taken = HEADER + 8 * words, 0
    with (
        RingBuffer(8 << 20) as ring,
        spec.load({"events": ring.map}) as writer,
        attach_uprobe_multi(writer, str(path), sites),
        start(path, "-q", "-n", 10_000_000),
    ):
        deadline = time.monotonic() + 0.6
        while time.monotonic() < deadline or taken <= 100:
            data = ring.take()
            for position in range(HEADER, len(data), step):
                body = data[position : position + 8 * words]
                assert body == body[:8] * words
                taken += 1


def test_nothing_of_a_ring_buffer_stays_mapped() -> None:
    def mappings() -> int:
        return Path("/proc/self/maps").read_text().count("bpf-map")

    before = mappings()
    with RingBuffer(1 << 20) as ring:
        assert mappings() == before + 2
        assert ring.pending() == 0
        assert ring.take() == b""
    assert mappings() == before
    ring.close()
    assert ring.fd.closed


def test_a_ring_buffer_that_cannot_be_mapped_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    room = (pages * os.sysconf("SC_PAGE_SIZE")) + (24 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (room, before[1]))
    try:
        with pytest.raises(SyscallError) as caught:
            RingBuffer(32 << 20)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert caught.value.errno == errno.ENOMEM
    assert str(caught.value).startswith("mmap of 33558528 bytes of ring buffer")


@pytest.mark.skipif(
    KERNEL_WORD_SIZE == 8, reason="64-bit kernels have addresses for any ring buffer"
)
def test_a_ring_buffer_for_which_the_kernel_has_no_addresses_says_so() -> None:
    with pytest.raises(
        SyscallError, match=r"268435456 bytes of ring buffer: .*smaller buffer"
    ) as why:
        RingBuffer(256 << 20)
    assert why.value.errno == errno.ENOMEM
