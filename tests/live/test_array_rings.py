"""Ring buffers in an array: real programs write to them, from one CPU and from two at once."""

from __future__ import annotations

import contextlib
import os
import select
import struct
import threading
from typing import TYPE_CHECKING, NamedTuple

import pytest

from usdt.base.errors import NotSupported
from usdt.base.machine import PROCESS_MACHINE
from usdt.bpf import features
from usdt.bpf._uapi import Helper, MapType, ProgType
from usdt.bpf.asm.assembler import Assembler, Code
from usdt.bpf.asm.insn import R0, R1, R2, R6, R7, R8, R9, R10, Alu, Jump
from usdt.bpf.maps import MapSpec
from usdt.bpf.program import Program, ProgramSpec
from usdt.bpf.rings.array_rings import ArrayRings
from usdt.bpf.rings.groups import RingGroups
from usdt.bpf.rings.ringbuf import DISCARD, HEADER, equal_runs
from usdt.engine.compiler.codegen.map_calls import emit_map_call
from usdt.engine.compiler.codegen.ring_writes import RingWriter
from usdt.engine.compiler.codegen.stack_slots import KEY_SLOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from usdt.bpf.maps import Map

_CPUS = sorted(os.sched_getaffinity(0))[:2]
_PAGE = 4096


@pytest.fixture(autouse=True)
def _array() -> None:
    if PROCESS_MACHINE != "x86_64":
        pytest.skip("programs write to the kernel's ring buffers on this CPU")
    if not features.have_fetching_atomics():
        raise NotSupported("atomic instructions that return the old value", (5, 12))


class Written(NamedTuple):
    """A record: the writer, and how many it had written before."""

    writer: int
    number: int


def _writer(size: int, groups: RingGroups, writer: int, *, odd_discarded: bool) -> Code:
    # Counts its runs, and fills a record with the count; counts those for which there is no space.
    asm = Assembler()
    for key, register in ((0, R6), (1, R8)):
        asm.store(R10, KEY_SLOT, key, 4)
        emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, "counts")
        asm.jump(Jump.EQ, R0, 0, "out")
        asm.mov(register, R0)
    asm.load(R9, R6, 0)
    asm.mov(R1, R9)
    asm.add(R1, 1)
    asm.store(R6, 0, R1)
    ring = RingWriter(asm, R7, size, groups)
    ring.reserve("full")
    asm.store(R7, 0, writer)
    for offset in range(8, size, 8):
        asm.store(R7, offset, R9)
    if odd_discarded:
        asm.mov(R1, R9)
        asm.alu(Alu.AND, R1, 1)
        asm.jump(Jump.EQ, R1, 0, "even")
        ring.discard()
        asm.goto("out")
        asm.label("even")
    ring.submit()
    asm.goto("out")
    asm.label("full")
    asm.mov(R2, 1)
    asm.atomic_add(R8, 0, R2)
    asm.label("out")
    asm.mov(R0, 0)
    asm.exit()
    return asm.assemble()


class Writers:
    """Programs that write to the ring buffers of one array, each with counts of its own."""

    def __init__(self, rings: ArrayRings, count: int, stack: contextlib.ExitStack) -> None:
        self.rings = rings
        self._groups = RingGroups(count, 0, rings.size)
        self._stack = stack
        self._counts: list[Map] = []

    def add(self, size: int, *, odd_discarded: bool = False) -> Program:
        """Return a program whose records have ``size`` bytes; it is numbered from 0."""
        number = len(self._counts)
        code = _writer(size, self._groups, number, odd_discarded=odd_discarded)
        counts = self._stack.enter_context(MapSpec(MapType.ARRAY, 4, 8, 2).create())
        self._counts.append(counts)
        maps = {"events": self.rings.map, "bell": self.rings.bell.map, "counts": counts}
        spec = ProgramSpec(code, type=ProgType.RAW_TRACEPOINT, name="writer")
        return self._stack.enter_context(spec.load(maps))

    def lost(self, number: int) -> int:
        """Return the runs of a program for which there was no space."""
        value = self._counts[number].get(struct.pack("=I", 1))
        assert value is not None
        return int(struct.unpack("=Q", value)[0])

    def taken(self) -> list[Written]:
        """Take what there is; each record must be whole."""
        found = []
        while data := self.rings.take():
            data = self.rings.ordered(data)
            for first, step, count, header in equal_runs(data):
                if header & DISCARD:
                    continue
                for start in range(first + HEADER, first + step * count, step):
                    writer, *numbers = struct.unpack_from(f"={header // 8}Q", data, start)
                    assert len(set(numbers)) == 1
                    found.append(Written(writer, numbers[0]))
        return found


@contextlib.contextmanager
def _writers(size: int = _PAGE, count: int = 1) -> Iterator[Writers]:
    with contextlib.ExitStack() as stack:
        yield Writers(stack.enter_context(ArrayRings(size, count)), count, stack)


def _run(program: Program, times: int = 1) -> None:
    for _ in range(times):
        program.run()


def _run_on(cpu: int, program: Program, times: int, ready: threading.Barrier) -> None:
    os.sched_setaffinity(0, {cpu})  # of this thread
    ready.wait()
    _run(program, times)


def test_records_come_as_they_were_written() -> None:
    with _writers() as writers:
        small, large = writers.add(24), writers.add(104)
        assert writers.taken() == []
        for _ in range(3):
            _run(small, 2)
            _run(large)
        assert [one.writer for one in writers.taken()] == [0, 0, 1] * 3
        assert writers.rings.pending() == 0


@pytest.mark.parametrize("sizes", [(24, 104), (16, 4000), (4088,), (16, 24, 40)])
def test_no_record_goes_beyond_the_end_of_the_data(sizes: Sequence[int]) -> None:
    with _writers() as writers:
        programs = [writers.add(size) for size in sizes]
        for number in range(2000):
            for index, program in enumerate(programs):
                _run(program)
                assert writers.taken() == [Written(index, number)]
        assert [writers.lost(index) for index in range(len(sizes))] == [0] * len(sizes)


def test_what_does_not_fit_is_counted() -> None:
    with _writers() as writers:
        program = writers.add(56)
        _run(program, 100)
        assert writers.lost(0) == 100 - _PAGE // 64
        assert writers.taken() == [Written(0, number) for number in range(_PAGE // 64)]
        _run(program)
        assert writers.taken() == [Written(0, 100)]
        assert writers.lost(0) == 100 - _PAGE // 64


def test_discarded_records_are_passed_over() -> None:
    with _writers() as writers:
        _run(writers.add(40, odd_discarded=True), 50)
        assert writers.taken() == [Written(0, number) for number in range(0, 50, 2)]
        assert writers.rings.pending() == 0


def test_the_reader_is_woken_when_it_has_caught_up() -> None:
    with _writers() as writers, select.epoll() as poller:
        program = writers.add(1000)  # the fifth begins at the start again
        (bell,) = writers.rings.descriptors
        poller.register(bell.fileno(), select.EPOLLIN)
        for number in range(12):
            assert poller.poll(0) == []
            _run(program)
            assert poller.poll(10) == [(bell.fileno(), select.EPOLLIN)]
            assert writers.taken() == [Written(0, number)]


def test_records_behind_unread_ones_do_not_ring() -> None:
    with _writers() as writers, select.epoll() as poller:
        program = writers.add(16)
        _run(program)
        writers.rings.bell.take()  # as if the reader had seen that, and taken nothing
        poller.register(writers.rings.bell.fd.fileno(), select.EPOLLIN)
        _run(program, 20)
        assert poller.poll(0) == []
        assert len(writers.taken()) == 21


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("size", [1 << 16, 1 << 23])
def test_writers_on_two_cpus_at_once(count: int, size: int) -> None:
    times = 3_000
    if len(_CPUS) < 2:
        pytest.skip("one CPU: nothing can run at once")
    if count > 1:
        count = _CPUS[-1] + 1
    with _writers(size, count) as writers:
        programs = [writers.add(size) for size in (24, 72)]
        ready = threading.Barrier(len(programs) + 1)
        threads = [
            threading.Thread(target=_run_on, args=(cpu, program, times, ready))
            for cpu, program in zip(_CPUS, programs, strict=True)
        ]
        for thread in threads:
            thread.start()
        ready.wait()
        found: list[Written] = []
        while any(thread.is_alive() for thread in threads):
            found += writers.taken()
        for thread in threads:
            thread.join()
        found += writers.taken()
        for number in range(len(programs)):
            numbers = [one.number for one in found if one.writer == number]
            assert numbers == sorted(set(numbers))
            assert len(numbers) + writers.lost(number) == times
            if size > times * (32 + 80):  # there is space for all
                assert writers.lost(number) == 0


def test_nothing_stays_mapped() -> None:
    rings = ArrayRings(_PAGE, 3)
    rings.close()
    rings.close()
    assert rings.map.fd.closed
    assert rings.bell.fd.closed
