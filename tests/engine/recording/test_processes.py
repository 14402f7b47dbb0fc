"""What a recording keeps of processes and of the kernel, and that no other process is looked at."""

from __future__ import annotations

import io
import os
import struct
import zlib
from pathlib import Path

import pytest
from planning import plan
from recordings import header, make, read, record

from usdt.engine.compiler.record.columns import SymbolKind, stack_column
from usdt.engine.language.tree import StackKind
from usdt.engine.output.formatters.event import EventFormatter
from usdt.engine.output.frames import Frame
from usdt.engine.output.output_file import OutputFile
from usdt.engine.recording import processes
from usdt.engine.recording.blocks import KSYM, MAPS, PYTHON, Block, RecordingError, read_block
from usdt.engine.recording.description import dump
from usdt.engine.recording.processes import (
    ProcessSnapshots,
    RecordedStacks,
    pids_in,
    wants_kernel,
    wants_processes,
    wants_stacks,
)
from usdt.engine.recording.writer import Recorder
from usdt.symbolize import Symbolizer


def own_code() -> int:
    """An address of code of this process: of the interpreter itself, or of its library."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, flags, _, _, _, *path = line.split()
        if flags.startswith("r-x") and path and "python" in path[0]:
            return int(span.split("-")[0], 16) + 64
    pytest.fail("this process has no code of Python mapped")


def taken(*blocks: Block) -> RecordedStacks:
    """The stacks of a recording with these blocks."""
    stacks = RecordedStacks(Symbolizer, "little")
    for block in blocks:
        stacks.take(block)
    return stacks


def noted(*pids: int) -> list[Block]:
    """Blocks that note what processes have mapped."""
    snapshots = ProcessSnapshots(Symbolizer)
    try:
        snapshots.look(pids)
        found = [read_block(io.BytesIO(item)) for item in snapshots.blocks()]
        assert not [*snapshots.blocks()], "there is nothing new"
        assert not [*snapshots.blocks(final=True)]
    finally:
        snapshots.close()
    return [block for block in found if block is not None]


def test_a_process_is_noted_and_restored() -> None:
    (block,) = noted(os.getpid())
    assert block.kind == MAPS
    address = own_code()
    with taken(block) as stacks:
        (frame,) = stacks.frames(StackKind.USER, os.getpid(), [address])
    assert frame.address == address
    assert "python" in frame.module


def test_a_process_that_was_not_noted_stays_numbers_though_its_number_lives_here() -> None:
    address = own_code()
    with taken() as stacks:
        assert stacks.frames(StackKind.USER, os.getpid(), [address]) == [Frame(address)]
        assert stacks.frame(SymbolKind.USER, os.getpid(), address) == Frame(address)
    with taken(*noted(os.getppid())) as stacks:
        assert stacks.frames(StackKind.USER, os.getpid(), [address]) == [Frame(address)]
    with taken(*noted(os.getpid())) as stacks:
        assert stacks.frame(SymbolKind.USER, os.getpid(), address) != Frame(address)


def test_the_number_of_processes_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_PROCESSES", 1)
    own, parent = noted(os.getpid()), noted(os.getppid())
    address = own_code()
    with taken(*own, *parent) as stacks:
        assert stacks.frame(SymbolKind.USER, os.getpid(), address) == Frame(address)
    with taken(*parent, *own) as stacks:
        assert stacks.frame(SymbolKind.USER, os.getpid(), address) != Frame(address)


def test_the_size_of_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_KEPT", 10)
    address = own_code()
    own = noted(os.getpid())
    with taken(*own * 3) as stacks:  # each takes the place of the last
        assert stacks.frame(SymbolKind.USER, os.getpid(), address).module
        assert not stacks.take_notices()
    with taken(*own, *noted(os.getppid())) as stacks:  # the older one is forgotten
        assert stacks.frame(SymbolKind.USER, os.getpid(), address) == Frame(address)
        assert stacks.take_notices() == [
            "too many snapshots of processes: some addresses stay numbers"
        ]


def test_large_snapshots_are_not_repeated_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_LARGE", 0)
    jit = Path(f"/tmp/perf-{os.getpid()}.map")
    snapshots = ProcessSnapshots(Symbolizer)
    try:
        snapshots.look([os.getpid()])
        assert len([*snapshots.blocks()]) == 1
        jit.write_text("1000 10 compiled\n")
        monkeypatch.setattr("usdt.symbolize.process_maps._REFRESH_INTERVAL", 0)
        snapshots.look([os.getpid()])
        assert not [*snapshots.blocks()], "a second has not passed"
        (last,) = snapshots.blocks(final=True)
        assert b"compiled" in last
    finally:
        jit.unlink(missing_ok=True)
        snapshots.close()


def test_a_snapshot_too_large_for_a_block_keeps_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "MAX_CONTENT", 200)
    found = processes._described(7, {"mappings": [], "perf_map": "x" * 1000})
    assert found == dump({"pid": 7, "snapshot": {"mappings": [], "perf_map": ""}})


def _python(codes: str) -> Block:
    snapshot = f'{{"pid": 1, "snapshot": {{"reason": "", "codes": {codes}}}}}'
    return Block(PYTHON, snapshot.encode())


def test_python_functions_of_a_recording() -> None:
    column = stack_column(StackKind.PYTHON)
    slot = struct.pack("<QQII", 1, 2, 4, 3)
    with taken(_python('[[1, 2, 3, "f", "a.py", "8a"], [1, 2, 4, "g", "b.py", "zz"]]')) as stacks:
        for data, text in (
            (slot, "\n        f (a.py:3)"),
            # the table ends before the instruction
            (struct.pack("<QQII", 1, 2, 6, 3), "\n        f (a.py:?)"),
            (struct.pack("<QQII", 1, 2, (1 << 24) - 2, 3), "\n        f (a.py:3)"),
            (struct.pack("<QQII", 1, 2, 0, 4), "\n        g (b.py:?)"),
            (struct.pack("<QQII", 9, 2, 0, 4), "\n        0x9 [python]"),
            (bytes(24), "?(no frames: the thread runs no Python function)"),
        ):
            assert stacks.text(column, 1, data, len(data)) == text
        cut = stacks.text(column, 1, slot, 24 + 1)
        assert cut.endswith("\n        (the stack has more frames)")


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(Block(MAPS, b"{}"), id="no process"),
        pytest.param(Block(MAPS, b"[]"), id="no object"),
        pytest.param(Block(MAPS, b'{"pid": 1}'), id="no mappings"),
        pytest.param(Block(MAPS, b'{"pid": 1, "snapshot": [1]}'), id="a list of mappings"),
        pytest.param(Block(MAPS, b'{"pid": 1, "snapshot": {"mappings": [[1]]}}'), id="no mapping"),
        pytest.param(Block(PYTHON, b"{}"), id="no Python process"),
        pytest.param(Block(PYTHON, b'{"pid": 1}'), id="no code objects"),
        pytest.param(_python("[[1]]"), id="no code object"),
        pytest.param(_python('[[1, 2, -3, "", "", ""]]'), id="a negative line"),
        pytest.param(_python('[[1, 2, 3, "", "", 4]]'), id="a line table that is a number"),
    ],
)
def test_damaged_notes(block: Block) -> None:
    with pytest.raises(RecordingError):
        taken(block).close()


def test_damaged_symbols_of_the_kernel() -> None:
    with taken(Block(KSYM, b"not compressed")) as stacks, pytest.raises(RecordingError):
        stacks.frame(SymbolKind.KERNEL, 1, 1 << 63)


def test_symbols_of_the_kernel() -> None:
    lines = b"ffffffff81000000 T first\nffffffff81000100 t second\t[mod]\n"
    with taken(Block(KSYM, zlib.compress(lines))) as stacks:
        first, second = stacks.frames(StackKind.KERNEL, 1, [0xFFFFFFFF81000010, 0xFFFFFFFF81000104])
    assert (first.symbol, first.offset) == ("first", 0x10)
    assert (second.symbol, second.offset, second.module) == ("second", 4, "[mod]")
    with taken() as stacks:
        assert stacks.frame(SymbolKind.KERNEL, 1, 1 << 63) == Frame(1 << 63), (
            "not this machine's kernel"
        )
        assert not stacks.take_notices()


@pytest.mark.parametrize(
    ("items", "user", "kernel", "whole"),
    [
        pytest.param("arg6", False, False, False, id="numbers"),
        pytest.param("ustack", True, False, True, id="user stacks"),
        pytest.param("kstack", False, True, True, id="kernel stacks"),
        pytest.param("usym(arg7)", True, False, False, id="a user symbol"),
        pytest.param("ksym(arg7)", False, True, False, id="a kernel symbol"),
    ],
)
def test_what_is_noted_for_which_records(items: str, user: bool, kernel: bool, whole: bool) -> None:
    layout = plan(items).layout
    assert (wants_processes(layout), wants_kernel(layout), wants_stacks(layout)) == (
        user,
        kernel,
        whole,
    )


def test_the_processes_of_records() -> None:
    numbers = [*range(10, 20), 10, 10, 10, 4_000_000_000]
    mixed = b"".join(record(bytes(8 * (pid % 3)), pid=pid) for pid in numbers)
    assert pids_in(mixed) == set(numbers)
    assert pids_in(b"".join(record(bytes(8), pid=n % 7) for n in range(1000))) == set(range(7))
    assert pids_in(b"") == set()


@pytest.fixture
def stack_payload() -> tuple[bytes, int]:
    """A user stack of one frame in this process, and its address."""
    address = own_code()
    (output,) = plan("ustack").outputs
    return struct.pack("=qQ", 8, address) + bytes(output.size - 8), address


def test_processes_of_recorded_stacks_are_noted(
    stack_payload: tuple[bytes, int], tmp_path: Path
) -> None:
    payload, address = stack_payload
    recorder = Recorder(Symbolizer)
    with OutputFile(str(tmp_path / "it")) as sink:
        recorder.begin(header(), sink)
        recorder.add(1, "p:q", plan("ustack"))
        recorder.write(record(payload, pid=os.getpid()))
        recorder.end([])
        recorder.close()
    content = (tmp_path / "it").read_bytes()
    with RecordedStacks(Symbolizer, header().byteorder) as stacks:
        (event,) = read(content, EventFormatter(stacks), stacks)
    (frame,) = event.args["ustack"]
    assert frame.address == address
    assert "python" in frame.module
    # Nothing is noted where nothing will ask for it.
    plain = make([(1, "p:q", plan("ustack"))], [record(payload, pid=os.getpid())])
    with RecordedStacks(Symbolizer, header().byteorder) as stacks:
        (event,) = read(plain, EventFormatter(stacks), stacks)
    assert event.args["ustack"] == [Frame(address)]
