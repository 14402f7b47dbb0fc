"""usdt.procfs.maps: lines of /proc/PID/maps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import running

from usdt.procfs.maps import Mapping, parse_maps, read_maps

LINE = b"5581d0a3e000-5581d0a43000 r-xp 00002000 fe:01 262357                     "

FIELDS: dict[str, Any] = {
    "start": 0x5581D0A3E000,
    "end": 0x5581D0A43000,
    "permissions": "r-xp",
    "offset": 0x2000,
    "device": (0xFE, 1),
    "inode": 262357,
}


@pytest.mark.parametrize(
    ("name", "path", "deleted"),
    [
        pytest.param(b"/usr/bin/cat", "/usr/bin/cat", False, id="a program"),
        pytest.param(b"/opt/a b/c  d", "/opt/a b/c  d", False, id="spaces in the name"),
        pytest.param(b"/opt/a ", "/opt/a ", False, id="a space at its end"),
        pytest.param(b"/opt/a\\012b", "/opt/a\nb", False, id="a newline, which the kernel escapes"),
        pytest.param(b"/opt/\xe9", "/opt/\udce9", False, id="bytes that are not UTF-8"),
        pytest.param(b"/usr/lib/x.so (deleted)", "/usr/lib/x.so", True, id="a deleted file"),
        pytest.param(b"/memfd:jit (deleted)", "/memfd:jit", True, id="a memfd"),
        pytest.param(b"[vdso]", "[vdso]", False, id="the kernel's own library"),
        pytest.param(
            b"[anon: a (deleted)", "[anon: a (deleted)", False, id="a name given by prctl"
        ),
        pytest.param(b"", "", False, id="anonymous memory"),
    ],
)
def test_a_line_of_maps(name: bytes, path: str, *, deleted: bool) -> None:
    expected = Mapping(**FIELDS, path=path, deleted=deleted)
    assert parse_maps(LINE + name + b"\n") == [expected]
    assert expected.executable


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"5581d0a3e000", id="one word"),
        pytest.param(b"5581d0a3e000-5581d0a43000 r-xp 00002000 fe:01", id="no inode"),
        pytest.param(LINE.replace(b"262357", b"x"), id="an inode that is no number"),
        pytest.param(LINE.replace(b"fe:01", b"fe"), id="half a device"),
        pytest.param(LINE.replace(b"r-xp", b"\xff"), id="permissions that are no ASCII"),
    ],
)
def test_a_damaged_line_is_passed_over(line: bytes) -> None:
    good = LINE + b"/usr/bin/cat"
    assert [m.path for m in parse_maps(line + b"\n" + good + b"\n")] == ["/usr/bin/cat"]


@given(st.binary(max_size=200))
def test_any_bytes_parse(data: bytes) -> None:
    assert all(isinstance(mapping, Mapping) for mapping in parse_maps(LINE + data))


def test_every_line_of_a_real_process_is_parsed() -> None:
    with running("sleep", "60", program="sleep") as child:
        data = Path(f"/proc/{child.pid}/maps").read_bytes()
    lines, mappings = data.splitlines(), parse_maps(data)
    starts = [f"{m.start:08x}-{m.end:08x} {m.permissions}".encode() for m in mappings]
    assert all(line.startswith(start) for line, start in zip(lines, starts, strict=True))


def test_a_process_that_executes_programs_always_has_mappings(tmp_path: Path) -> None:
    script = tmp_path / "again"
    script.write_text('#!/bin/sh\nexec "$0"\n')
    script.chmod(0o700)
    with running(script) as child:
        # About 12 of so many fall between the two halves of an exec, seen from a second CPU.
        for _ in range(5000):
            assert read_maps(child.pid)
