"""What writing to one ring buffer costs when several CPUs do, and what reading several costs."""

from __future__ import annotations

import multiprocessing
import os
import statistics
import struct
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    records = min(records, _SIZE // 2 // (_RECORD + 8))
    print(f"ring buffers: {records:,} records of {_RECORD} bytes from each CPU, of {rounds} rounds")
    cpus = len(os.sched_getaffinity(0))
    for writers, count in ((1, 1), (2, 1), (2, 2))[: 3 if cpus > 1 else 1]:
        each = [_write(records, writers, count) for _ in range(rounds)]
        name = f"{writers} CPU{'s' * (writers > 1)} write to {count}"
        print(f"  {name:36} {statistics.median(each):8.1f} ns a record")
    for count in (1, 2, 16):
        each = [_read(min(records, 1 << 16), count) for _ in range(rounds)]
        name = f"records of {count}, put in order"
        print(f"  {name:36} {statistics.median(each):8.1f} ns of CPU a record")


def _write(records: int, writers: int, count: int) -> float:
    from usdt.bpf._uapi import MapType  # noqa: PLC0415 - only this measurement loads programs
    from usdt.bpf.maps import MapSpec  # noqa: PLC0415

    maps = [MapSpec(MapType.RINGBUF, 0, 0, _SIZE, "events").create() for _ in range(count)]
    programs = [_program(one) for one in maps]
    context = multiprocessing.get_context("fork")
    answers, ready = context.Queue(), context.Barrier(writers)
    workers = [
        context.Process(
            target=_run,
            args=(programs[cpu % count].fd.fileno(), cpu, records, ready, answers),
        )
        for cpu in range(writers)
    ]
    for worker in workers:
        worker.start()
    found = [answers.get() for _ in workers]
    for worker in workers:
        worker.join()
    for one in (*programs, *maps):
        one.close()
    return float(statistics.mean(found))


def _program(ring: Any) -> Any:
    from usdt.bpf._uapi import Helper, ProgType  # noqa: PLC0415
    from usdt.bpf.asm.assembler import Assembler  # noqa: PLC0415
    from usdt.bpf.asm.insn import R0, R1, R2, R3, Jump  # noqa: PLC0415
    from usdt.bpf.program import ProgramSpec  # noqa: PLC0415

    asm = Assembler()
    asm.load_map(R1, "events")
    asm.mov(R2, _RECORD)
    asm.mov(R3, 0)
    asm.call(Helper.RINGBUF_RESERVE)
    asm.jump(Jump.EQ, R0, 0, "full")
    asm.mov(R1, R0)
    for at in range(0, _RECORD, 8):
        asm.store(R1, at, at)
    asm.mov(R2, 1)  # BPF_RB_NO_WAKEUP
    asm.call(Helper.RINGBUF_SUBMIT)
    asm.label("full")
    asm.mov(R0, 0)
    asm.exit()
    kind: ProgType = int.__new__(ProgType, _XDP)
    return ProgramSpec(asm.assemble(), type=kind, name="rings").load({"events": ring})


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
    from usdt.bpf.rings.groups import TakenRecords, TimeOrder  # noqa: PLC0415

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
