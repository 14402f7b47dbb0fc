"""Names of user stacks from directories and from servers, through the Python interface."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from fixtures import build
from skips import need_program, requires_root
from test_symbols_of_servers import serving
from tracing_tools import private

import kprobe
import usdt
from usdt.base.errors import TargetError
from usdt.elf.file import ElfFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = requires_root


def attached(probe: str, **options: Any) -> list[Any]:
    with usdt.attach(probe, **options) as events:
        return [event.args["ustack"] for event in events]


def paired(probe: str, **options: Any) -> list[Any]:
    with usdt.spans(probe, probe.partition("(")[0], **options) as spans:
        return [span.args["ustack"] for span in spans]


@pytest.fixture
def stripped(tmp_path: Path) -> Path:
    """A program without symbols; its file with symbols is in the folder "symbols"."""
    program = private(build("default", "loop"), tmp_path)
    (tmp_path / "symbols").mkdir()
    kept = program.rename(tmp_path / "symbols" / "loop.debug")
    subprocess.run([need_program("objcopy", "binutils"), "--strip-all", kept, program], check=True)
    return program


@pytest.mark.parametrize("stacks_of", [attached, paired])
def test_symbols_of_a_directory(
    stacks_of: Callable[..., list[Any]], stripped: Path, tmp_path: Path
) -> None:
    command = [str(stripped), "-q", "-n", "2"]
    probe = f"{stripped}:loop:hit(ustack)"
    unnamed = stacks_of(probe, command=command)
    named = stacks_of(probe, command=command, symbols=[str(tmp_path / "symbols")])
    assert unnamed[0][0].symbol != "quick"
    assert named[0][0].symbol == "quick"


def test_aggregates_and_callbacks_have_the_symbols_of_a_directory(
    stripped: Path, tmp_path: Path
) -> None:
    found: list[Any] = []
    with kprobe.Session(symbols=[str(tmp_path / "symbols")]) as session:
        counts = session.count(f"usdt:{stripped}:loop:hit", by="ustack")
        session.on(f"usdt:{stripped}:loop:hit(ustack)", found.append)
        subprocess.run([stripped, "-q", "-n", "3"], check=True)
        session.run(0.2)
    ((stack, number),) = counts.items()
    assert (stack[0].partition("+")[0], number) == ("quick", 3)
    assert [event.args["ustack"][0].symbol for event in found] == ["quick"] * 3


def test_symbols_of_a_server(
    stripped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ElfFile(stripped) as elf:
        build_id = elf.build_id
    folder = tmp_path / "served" / "buildid" / str(build_id)
    folder.mkdir(parents=True)
    (tmp_path / "symbols" / "loop.debug").rename(folder / "debuginfo")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with serving(tmp_path / "served") as server:
        monkeypatch.setenv("DEBUGINFOD_URLS", server)
        command = [str(stripped), "-q", "-n", "1"]
        (stack,) = attached(f"{stripped}:loop:hit(ustack)", command=command, debuginfod=True)
    assert stack[0].symbol == "quick"


def test_sources_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TargetError, match=r"^symbols /nowhere: no such directory$"):
        usdt.attach("a:b", symbols=["/nowhere"])
    monkeypatch.delenv("DEBUGINFOD_URLS", raising=False)
    with pytest.raises(TargetError, match=r"^debuginfod needs servers, http"):
        usdt.Session(debuginfod=True)
