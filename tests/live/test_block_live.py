"""Block I/O: its latency while a program syncs, as text and as a picture; by functions as well."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import pytest
from aggregating import log2_buckets
from blockdevice import on_block_device
from kernelprobes import results, tracing_kernel

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("ringbuf", "cookies", "vmlinux_btf")

_RAW = ("rawtp:block_rq_issue", "rawtp:block_rq_complete", "--key", "rq", "--unit", "us")
_FUNCTIONS = ("blk_mq_start_request", "blk_mq_end_request", "--key", "rq", "--unit", "us")
_SYNCS = 20


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    """What is written there and synced reaches a block device."""
    path = tmp_path / "file"
    with on_block_device(path):
        yield path


def load(path: Path, syncs: int = _SYNCS) -> None:
    """Write and sync, again and again."""
    with path.open("wb") as file:
        for _ in range(syncs):
            file.write(bytes(8192))
            file.flush()
            os.fsync(file.fileno())


def rows_of(lines: list[str]) -> list[tuple[str, int]]:
    """Cells and count of every row of a heatmap in text."""
    rows = re.findall(r"^\d\d:\d\d:\d\d(?:\.\d+)? \|(.*)\| (\d+)$", "\n".join(lines), re.MULTILINE)
    return [(cells, int(count)) for cells, count in rows]


def test_a_heatmap_of_a_load_as_text(file: Path) -> None:
    with tracing_kernel("heatmap", *_RAW, "-i", "0.1", "-d", "60") as tool:
        load(file)
        tool.process.send_signal(signal.SIGINT)
        tool.finish()
    rows = rows_of(tool.lines)
    assert sum(count for _, count in rows) == tool.closing[0] >= _SYNCS
    assert all(bool(cells.strip()) == bool(count) for cells, count in rows)
    assert tool.lines[0].endswith("| us; count")
    assert re.fullmatch(r" +columns \[\d+K?, \d+K?\) to .* us; hits: \.\.1\+ .*", tool.lines[-1])


def test_a_heatmap_of_a_load_as_a_picture(file: Path, tmp_path: Path) -> None:
    picture = tmp_path / "latency.svg"
    with tracing_kernel("heatmap", *_RAW, "-o", picture, "-i", "0.1", "-d", "60") as tool:
        load(file)
        tool.process.send_signal(signal.SIGINT)
        tool.finish()
    root = ET.fromstring(picture.read_text())
    titles = [title.text or "" for title in root.iter("{http://www.w3.org/2000/svg}title")]
    counts = [int(m[1]) for title in titles if (m := re.search(r"(\d+)\D*$", title))]
    assert sum(counts) == tool.closing[0] >= _SYNCS


def test_a_request_takes_as_long_by_functions_as_by_tracepoints(file: Path, kprobes: None) -> None:
    del kprobes
    ends = ("--key", "rq", "--by", "comm")
    with contextlib.ExitStack() as stack:
        # Both at once: other processes use the disk, too.
        tools = [
            stack.enter_context(tracing_kernel("latency", *pair, *ends, "--json"))
            for pair in (_FUNCTIONS[:2], _RAW[:2])
        ]
        load(file)
        for tool in tools:
            tool.process.send_signal(signal.SIGINT)
        for tool in tools:
            tool.finish()
    found = []
    for tool in tools:
        times = [line for line in tool.records if "key" in line]
        found.append(sum(line["count"] for line in times))
        assert all(0 < line["min"] <= line["max"] for line in times)
    functions, tracepoints = found
    # A request that is under way when one of them begins or ends may be in the other alone.
    assert min(functions, tracepoints) >= _SYNCS
    assert abs(functions - tracepoints) <= max(functions, tracepoints) // 4


def test_write_sizes_by_a_kernel_function_are_those_of_the_call(kprobes: None) -> None:
    del kprobes
    command = "dd if=/dev/zero of=/dev/null bs=1536 count=50 status=none"
    (call,) = results("hist", "syscall:write(count)", "-c", command)
    (whole,) = results("hist", "ksys_write(count)", "-c", command)
    (third,) = results("hist", "ksys_write(arg2, fd == 1, arg2 > 1000)", "-c", command)
    (named,) = results(
        *("hist", 'vfs_write(count, str(file->f_path.dentry->d_name.name) == "null")'),
        *("-c", command),
    )
    expected = log2_buckets([1536] * 50)
    assert [one["buckets"] for one in (call, whole, third, named)] == [expected] * 4
    assert not results("hist", "ksys_write(count, fd == 7)", "-c", command)
