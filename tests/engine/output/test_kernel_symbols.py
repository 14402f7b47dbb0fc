"""The kernel's symbols: of this kernel, of a kernel that hides them, of damaged text."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from skips import requires_root

from usdt.btf.kernel_files import running_build_id
from usdt.engine.output.frames import Frame, frame_json, frame_text
from usdt.engine.output.kernel_symbols import KALLSYMS, KernelSymbols

TEXT = b"""\
ffffffff81000000 T first
ffffffff81000000 t alias
ffffffff81000100 t second
ffffffff81000200 D data
ffffffffc0000000 t handler\t[nf_tables]
ffffffffc0000080 t bpf_prog_6deef7357e7b4530\t[bpf]
"""


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (0xFFFFFFFF81000000, "first+0x0 [kernel]"),
        (0xFFFFFFFF81000012, "first+0x12 [kernel]"),
        (0xFFFFFFFF810001FF, "second+0xff [kernel]"),
        (0xFFFFFFFF81000200, "data+0x0 [kernel]"),
        (0xFFFFFFFFC0000010, "handler+0x10 [nf_tables]"),
        (0xFFFFFFFFC0000090, "bpf_prog_6deef7357e7b4530+0x10 [bpf]"),
        (0xFFFFFFFF81100200, "data+0x100000 [kernel]"),
        (0xFFFFFFFF81100201, "0xffffffff81100201 [unknown]"),  # beyond a section's last symbol
        (0xFFFFFFFFBFFFFFFF, "0xffffffffbfffffff [unknown]"),  # before the first module
        (0xFFFFFFFF80FFFFFF, "0xffffffff80ffffff [unknown]"),
        (0xFFFFFFFFD0000000, "0xffffffffd0000000 [unknown]"),
        (0, "0x0 [unknown]"),
    ],
)
def test_an_address_is_named(address: int, text: str) -> None:
    assert frame_text(KernelSymbols(TEXT).frame(address)) == text


def test_return_addresses_belong_to_the_function_before_them() -> None:
    inner, outer = KernelSymbols(TEXT).frames([0xFFFFFFFF81000100, 0xFFFFFFFF81000100])
    assert (inner.symbol, inner.offset) == ("second", 0)
    assert (outer.symbol, outer.offset) == ("first", 0x100)


PROGRAM = b"""\
ffffffff81000000 T probed
ffffffff81000100 t bpf_trace_run2
ffffffff81000200 t __bpf_trace_sys_enter
ffffffffc0000080 t bpf_prog_6deef7357e7b4530_usdt\t[bpf]
ffffffffc0100000 t bpf_dispatcher_xdp\t[bpf]
ffffffffc0300000 t overlay_open\t[overlay]
"""


@pytest.mark.parametrize(
    ("addresses", "names"),
    [
        pytest.param([0xC0000090, 0x81000110, 0x81000210, 0x81000010], ["probed"], id="named"),
        pytest.param([0xB0000000, 0x81000110, 0x81000010], ["probed"], id="without its symbol"),
        pytest.param([0xC0100080, 0x81000110, 0x81000010], ["probed"], id="unloaded"),
        pytest.param([0xC0300080, 0x81000110, 0x81000010], ["probed"], id="behind a module"),
        pytest.param([0xC0300080, 0x81000010], ["overlay_open", "probed"], id="of a module"),
        pytest.param([0x81000010, 0x81000110], ["probed", "bpf_trace_run2"], id="called later"),
        pytest.param([0xB0000000, 0x81000010], ["", "probed"], id="an address that is none"),
        pytest.param([0xC0000090], [], id="nothing but the program"),
        pytest.param([], [], id="no frames"),
    ],
)
def test_a_stack_begins_at_the_probed_function(addresses: list[int], names: list[str]) -> None:
    frames = KernelSymbols(PROGRAM).frames([0xFFFFFFFF00000000 + one for one in addresses])
    assert [frame.symbol for frame in frames] == names


def test_hidden_addresses_are_said_once() -> None:
    symbols = KernelSymbols(b"0000000000000000 T first\n0000000000000000 T second\n")
    assert symbols.frame(0xFFFFFFFF81000000) == Frame(0xFFFFFFFF81000000)
    assert len(symbols.notices) == 1
    assert "kptr_restrict" in symbols.notices[0]


def test_a_recording_keeps_them() -> None:
    symbols = KernelSymbols.from_bytes(KernelSymbols(TEXT).to_bytes())
    assert symbols.frame(0xFFFFFFFFC0000010) == Frame(
        0xFFFFFFFFC0000010, "handler", 16, "[nf_tables]"
    )
    with pytest.raises(ValueError, match="damaged"):
        KernelSymbols.from_bytes(b"none")


def test_lines_that_make_no_sense_are_left_out() -> None:
    chance = random.Random(5)
    for _ in range(200):
        data = bytearray(TEXT)
        for _ in range(10):
            data[chance.randrange(len(data))] = chance.randrange(256)
        KernelSymbols(bytes(data)).frame(0xFFFFFFFF81000012)


@requires_root
def test_functions_of_this_kernel() -> None:
    rows = [line.split() for line in Path(KALLSYMS).read_text().splitlines()]
    unique: dict[str, list[str]] = {}
    for row in rows:
        unique.setdefault(row[0], []).append(row[2])
    symbols = KernelSymbols.running()
    assert not symbols.notices
    for name in ("vfs_read", "schedule", "do_exit"):
        address = next(int(row[0], 16) for row in rows if row[1] in "tT" and row[2] == name)
        assert symbols.frame(address + 1).symbol in unique[f"{address:016x}"]


def test_build_ids_are_those_of_kernel_and_modules_and_stay_in_recordings() -> None:
    found = {"": "ab12", "loop": "cd34"}
    text = b"1000 T first\n2000 t second\t[loop]\n3000 t third\t[bpf]\n"
    live = KernelSymbols(text, lambda module: found.get(module, ""))
    for symbols in (live, KernelSymbols.from_bytes(live.to_bytes())):
        frames = [symbols.frame(address) for address in (0x1001, 0x2001, 0x3001)]
        assert [frame.build_id for frame in frames] == ["ab12", "cd34", None]
        assert frame_json(frames[1]).endswith(', "build_id": "cd34"}')
        assert "build_id" not in frame_json(frames[2])


def test_the_running_kernel_has_the_build_id_of_its_notes() -> None:
    wanted = running_build_id()
    if not wanted:
        pytest.skip("needs /sys/kernel/notes with a build ID")
    frames = (KernelSymbols(b"1000 T first\n", running_build_id).frame(0x1001),)
    assert frames[0].build_id == wanted
    assert running_build_id("no such module") == ""
