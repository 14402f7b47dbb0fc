"""Measure how many sk_buff structures a second become text, JSON or Python objects.

The buffers are those of packets over the loopback interface, taken by a raw tracepoint: what they
hold is what a trace shows, mostly zeroes. CPU time of one process is counted.
"""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

from usdt.bpf.rings.ringbuf import HEADER
from usdt.btf.lookup import find_type
from usdt.engine.compiler.record.layout import HEADER_SIZE
from usdt.engine.language import parse_probe
from usdt.engine.output.decode import Decoder
from usdt.engine.output.formatters.event import EventFormatter
from usdt.engine.output.formatters.json import JsonFormatter
from usdt.engine.output.formatters.text import TextFormatter
from usdt.engine.runtime.session import RingBufferSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from usdt.engine.compiler.plan import ProbePlan
    from usdt.engine.output.python_processes import PythonProcesses

__all__ = ("rendering",)

PROBE = 'rawtp:netif_receive_skb(skb->dev->name == "lo", skb)'
PACKETS = 200
SECONDS = 1.0


class Taken:
    """A record consumer that keeps records as they are."""

    def __init__(self) -> None:
        self.cases: list[tuple[int, str, ProbePlan]] = []

    def add(self, number: int, probe: str, plan: ProbePlan) -> None:
        """Ignore a variant."""
        self.cases.append((number, probe, plan))

    def batches(self, data: bytes) -> Iterator[list[bytes]]:
        """Keep records."""
        yield [data]

    def python_processes(self, pids: Sequence[int]) -> PythonProcesses:
        """Refuse: no Python stacks are recorded."""
        raise NotImplementedError


def _records() -> tuple[Taken, bytes]:
    from kprobe.tracepoints.provider import attach  # noqa: PLC0415 - --help does not pay for it

    taken, found = Taken(), b""
    ours = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with ours, RingBufferSession(taken) as session:
        ours.bind(("127.0.0.1", 0))
        attach(session, [parse_probe(PROBE)], counts=False)
        for _ in range(PACKETS):
            ours.sendto(b"x" * 100, ours.getsockname())
            ours.recv(200)
        for batch in session.drain():
            found += b"".join(batch)
    return taken, found


def _rate(work: Callable[[], int]) -> float:
    work()  # what is compiled once
    done, start = 0, time.process_time()
    while time.process_time() - start < SECONDS:
        done += work()
    return done / (time.process_time() - start)


def _whole(
    taken: Taken, data: bytes, form: TextFormatter | JsonFormatter | EventFormatter
) -> float:
    # Decode and render records, as a trace does.
    decoder = Decoder(form)
    for number, probe, plan in taken.cases:
        decoder.add(number, probe, plan)
    return _rate(lambda: sum(map(len, decoder.batches(data))))


def rendering() -> None:
    """Measure, and print one line per format."""
    from usdt.btf.reader import Btf  # noqa: PLC0415 - --help does not pay for it
    from usdt.btf.values import Options, Renderer  # noqa: PLC0415
    from usdt.btf.values.compact import CompactFormatter  # noqa: PLC0415

    taken, data = _records()
    layout = taken.cases[0][2].layout
    place = HEADER + (layout.fields[0].offset or 0) + 16
    step = HEADER + layout.size
    btf = Btf.from_kernel()
    number = find_type(btf, "struct sk_buff")
    size = btf.size_of(number)
    values = [data[at + place : at + place + size] for at in range(0, len(data), step)]
    if layout.size <= HEADER_SIZE or not values:
        raise SystemExit("bench: no packet came over the loopback interface")
    text, short = Renderer(btf).text_of(number), Renderer(btf, Options(compact=True))
    compact, concise = short.text_of(number), CompactFormatter(btf)
    rows = (
        ("text, as libbpf has it", _rate(lambda: len([text(value) for value in values]))),
        ("text, compact", _rate(lambda: len([compact(value) for value in values]))),
        ("one short line", _rate(lambda: len([concise.line(number, v) for v in values]))),
        ("records to text", _whole(taken, data, TextFormatter())),
        ("records to JSON", _whole(taken, data, JsonFormatter())),
        ("records to Python events", _whole(taken, data, EventFormatter())),
    )
    print(f"\nstruct sk_buff ({size} bytes) rendered, per second of one core")
    for name, rate in rows:
        print(f"  {name:<28}{rate:>10,.0f}")
