"""What a fleet costs here: recorded streams of many machines, with delays, deaths and damage.

    python bench/fleet.py [--machines 1000] [--results 10] [--by-host]

The streams go through the same reading path as those of real machines: bytes in blocks → lines →
objects → merged results → attendance. Time is virtual: the blocks of all machines come mixed, each
after its machine's delay. Every count is checked against what was sent.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from usdt.fleet.attendance import attendance
from usdt.fleet.machine import Machine
from usdt.fleet.merged import Merged

if TYPE_CHECKING:
    from collections.abc import Iterator

_WORD = "bench"
_KEY = "str(arg0,20)"
_BLOCK = 4096  # bytes that come at a time
_SOUND, _DEAD, _DAMAGED, _SILENT = "sound", "dead", "damaged", "silent"
_FATES = (_SOUND,) * 17 + (_DEAD, _DAMAGED, _SILENT)  # three machines of twenty have bad luck


class Recorded:
    """The stream of one machine.

    Attributes:
        name: of the machine.
        fate: what happens to it.
        results: the number of results that come whole.
        damaged: the number of lines that do not.
        stream: its bytes.
    """

    def __init__(
        self, number: int, results: int, chance: random.Random, sent: dict[str, int]
    ) -> None:
        self.name = f"web{number}"
        self.fate = chance.choice(_FATES)
        objects = [_result(index, chance) for index in range(results)]
        lines = [json.dumps(one) + "\n" for one in objects]
        if self.fate in (_DEAD, _SILENT):
            objects = objects[: len(objects) // 2] if self.fate == _DEAD else []
            lines = [*lines[: len(objects)], lines[-1][:20]] if objects else []
        if self.fate == _DAMAGED:
            at = chance.randrange(len(lines))
            lines[at] = "\udc80" + lines[at][1:]
            del objects[at]
        self.results = len(objects)
        self.damaged = len(lines) - len(objects)
        for one in objects:
            sent[one["key"][_KEY]] = sent.get(one["key"][_KEY], 0) + one["count"]
        head = f"usdt-fleet {_WORD} run\n" if self.fate != _SILENT else ""
        tail = f"usdt-fleet {_WORD} exit 0\n" if self.fate in (_SOUND, _DAMAGED) else ""
        self.stream = (head + "".join(lines) + tail).encode("utf-8", "surrogateescape")


def _result(index: int, chance: random.Random) -> dict[str, Any]:
    # A result of hist: thirty buckets, one of some hundred keys.
    edges = [1 << bucket for bucket in range(31)]
    buckets = [{"low": low, "high": 2 * low, "count": chance.randrange(1000)} for low in edges[:30]]
    count = sum(bucket["count"] for bucket in buckets)
    key = {_KEY: f"query {index % 100}"}
    return {
        "probe": "postgresql:query__start",
        "value": "arg1",
        "key": key,
        "count": count,
        "min": index,
        "avg": 1.0,
        "max": 1 << 30,
        "sum": count * 7,
        "buckets": buckets,
    }


def _mixed(streams: list[Recorded], chance: random.Random) -> Iterator[tuple[int, bytes | None]]:
    # Yields blocks of all streams in the order of their virtual times, and None at each end.
    heap = [(chance.random() * 10, index, 0) for index in range(len(streams))]
    heapq.heapify(heap)
    while heap:
        when, index, at = heapq.heappop(heap)
        block = streams[index].stream[at : at + _BLOCK]
        yield index, block or None
        if block:
            heapq.heappush(heap, (when + chance.random(), index, at + len(block)))


def replay(
    streams: list[Recorded], sent: dict[str, int], seed: int, *, by_host: bool = False
) -> dict[str, Any]:
    """Merge the streams; return the times, the memory, and who answered."""
    merged = Merged(by_host=by_host)
    machines = [Machine(stream.name, _WORD, merged.add) for stream in streams]
    before = _memory()
    began = time.perf_counter()
    for index, block in _mixed(streams, random.Random(seed)):  # noqa: S311 - no secret
        if block is not None:
            machines[index].output(block)
        elif streams[index].fate == _SILENT:
            machines[index].give_up("no answer within 30 s")
        else:
            machines[index].close(0 if streams[index].fate != _DEAD else 255)
    found = attendance(machines)
    shown = sum(1 for _ in merged.lines())
    seconds = time.perf_counter() - began
    memory = _memory()
    _check(streams, sent, merged, found)
    results = sum(stream.results for stream in streams)
    return {
        "machines": len(streams),
        "results": results,
        "bytes": sum(len(stream.stream) for stream in streams),
        "lines": shown,
        "seconds": round(seconds, 3),
        "seconds per 1000 results": round(seconds / results * 1000, 3),
        "MiB at most": memory,
        "of these, the streams": before,
        "answered": found["answered"],
        "failed": found["failed"],
        "late": found["late"],
    }


def _memory() -> int:
    # MiB at most so far. ru_maxrss would begin with that of the parent.
    text = Path("/proc/self/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0]) >> 10


def _check(
    streams: list[Recorded], sent: dict[str, int], merged: Merged, found: dict[str, Any]
) -> None:
    came: dict[str, int] = {}
    for one in map(json.loads, merged.json()):
        if "key" in one:
            key = one["key"][_KEY]
            came[key] = came.get(key, 0) + one["count"]
    if came != sent:
        sys.exit("the sum is not what was sent")
    fates = [stream.fate for stream in streams]
    answered = fates.count(_SOUND) + fates.count(_DAMAGED)
    if (found["answered"], found["failed"], found["late"]) != (
        answered,
        fates.count(_DEAD),
        fates.count(_SILENT),
    ):
        sys.exit(f"who answered is not what was sent: {found}")
    if found.get("damaged", {}).get("lines", 0) != sum(stream.damaged for stream in streams):
        sys.exit(f"damaged lines: {found.get('damaged')}")


def main() -> None:
    """Replay, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", type=int, default=1000)
    parser.add_argument("--results", type=int, default=10, help="of each machine")
    parser.add_argument("--by-host", action="store_true", help="keep the machines apart")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    chance = random.Random(given.seed)  # noqa: S311 - no secret
    sent: dict[str, int] = {}
    streams = [Recorded(number, given.results, chance, sent) for number in range(given.machines)]
    sys.stdout.write(json.dumps(replay(streams, sent, given.seed, by_host=given.by_host)) + "\n")


if __name__ == "__main__":
    main()
