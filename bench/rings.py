"""What writing to one ring buffer costs when several CPUs do, and what reading several costs."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import statistics
import struct
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ("rings",)

_RECORD = 56  # bytes
_XDP = 6  # BPF_PROG_TYPE_XDP: BPF_PROG_TEST_RUN runs it any number of times
_PACKET = 64
_SIZE = 1 << 28  # holds all records: nobody reads


def rings(records: int, rounds: int) -> None:
    """Measure both and print the medians.

    Args:
        records: that each CPU writes, and that are read at once.
        rounds: measurements of each.
    """
    from usdt.bpf.rings.array_rings import can_use_array  # noqa: PLC0415 - --help does not pay
    from usdt.bpf.rings.groups import ONE_RING  # noqa: PLC0415

    records = min(records, _SIZE // 2 // (_RECORD + 8))
    print(f"ring buffers: {records:,} records of {_RECORD} bytes from each CPU, of {rounds} rounds")
    cpus = len(os.sched_getaffinity(0))
    for writers, count in ((1, 1), (2, 1), (2, 2))[: 3 if cpus > 1 else 1]:
        kinds = (
            [_in_kernel_rings, _in_array] if can_use_array(ONE_RING, _SIZE) else [_in_kernel_rings]
        )
        times: dict[Any, list[float]] = {kind: [] for kind in kinds}
        for _ in range(rounds):
            for kind, found in times.items():
                with kind(count) as programs:
                    found.append(_write(records, writers, programs))
        name = f"{writers} CPU{'s' * (writers > 1)} write to {count}"
        shown = [f"{statistics.median(found):8.1f}" for found in times.values()]
        array = f", {shown[1].strip()} in an array" if len(shown) > 1 else ""
        print(f"  {name:36} {shown[0]} ns a record{array}")
    for count in (1, 2, 16):
        each = [_read(min(records, 1 << 16), count) for _ in range(rounds)]
        name = f"records of {count}, put in order"
        print(f"  {name:36} {statistics.median(each):8.1f} ns of CPU a record")


def _write(records: int, writers: int, programs: Sequence[Any]) -> float:
    context = multiprocessing.get_context("fork")
    answers, ready = context.Queue(), context.Barrier(writers)
    workers = [
        context.Process(
            target=_run,
            args=(programs[cpu % len(programs)].fd.fileno(), cpu, records, ready, answers),
        )
        for cpu in range(writers)
    ]
    for worker in workers:
        worker.start()
    found = [answers.get() for _ in workers]
    for worker in workers:
        worker.join()
    return float(statistics.mean(found))


@contextlib.contextmanager
def _in_kernel_rings(count: int) -> Iterator[list[Any]]:
    from usdt.bpf.rings.ringbuf import RingBuffer  # noqa: PLC0415

    with contextlib.ExitStack() as stack:
        rings = [stack.enter_context(RingBuffer(_SIZE)) for _ in range(count)]
        yield [stack.enter_context(_program({"events": one.map})) for one in rings]


@contextlib.contextmanager
def _in_array(count: int) -> Iterator[list[Any]]:
    from usdt.bpf.rings.array_rings import ArrayRings  # noqa: PLC0415

    with contextlib.ExitStack() as stack:
        arrays = [stack.enter_context(ArrayRings(_SIZE, 1)) for _ in range(count)]
        yield [
            stack.enter_context(_program({"events": one.map, "bell": one.bell.map}, _SIZE))
            for one in arrays
        ]


def _program(maps: dict[str, Any], array_size: int = 0) -> Any:
    from usdt.bpf._uapi import ProgType  # noqa: PLC0415
    from usdt.bpf.asm.assembler import Assembler  # noqa: PLC0415
    from usdt.bpf.asm.insn import R0, R7  # noqa: PLC0415
    from usdt.bpf.program import ProgramSpec  # noqa: PLC0415
    from usdt.bpf.rings.groups import RingGroups  # noqa: PLC0415
    from usdt.engine.compiler.codegen.ring_writes import RingWriter  # noqa: PLC0415

    asm = Assembler()
    writer = RingWriter(asm, R7, _RECORD, RingGroups(1, 0, array_size))
    writer.reserve("full")
    for at in range(0, _RECORD, 8):
        asm.store(R7, at, at)
    writer.submit()
    asm.label("full")
    asm.mov(R0, 0)
    asm.exit()
    kind: ProgType = int.__new__(ProgType, _XDP)
    return ProgramSpec(asm.assemble(), type=kind, name="rings").load(maps)


def _run(program: int, cpu: int, records: int, ready: Any, answers: Any) -> None:
    from usdt.bpf._syscall import bpf  # noqa: PLC0415
    from usdt.bpf._uapi import Command  # noqa: PLC0415

    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[cpu]})
    packet = (program, 0, _PACKET, 0, bytes(_PACKET), None)  # attr.test, then the repetitions
    ready.wait()
    began = time.perf_counter_ns()
    bpf(Command.PROG_TEST_RUN, "IIIIPPIIIIPPIII4x", *packet, records, *[0] * 3, None, None, 0, 0, 0)
    answers.put((time.perf_counter_ns() - began) / records)


def _read(records: int, count: int) -> float:
    from usdt.bpf.rings.time_order import TakenRecords, TimeOrder  # noqa: PLC0415

    data = _written(records, count)
    order = TimeOrder(count)
    began = time.process_time_ns()
    order.next(TakenRecords(1 << 62, tuple(data), (True,) * count))
    return (time.process_time_ns() - began) / records


def _written(records: int, count: int) -> Sequence[bytes]:
    # Records whose times alternate between the ring buffers.
    body = bytes(_RECORD - 8)
    data = [bytearray() for _ in range(count)]
    for number in range(records):
        data[number % count] += struct.pack("=IIQ", _RECORD, 0, number) + body
    return [bytes(one) for one in data]
