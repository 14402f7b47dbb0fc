"""The text of /proc/kallsyms that a run keeps for the next one: when it is used, and when not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tracing_tools import KPROBE

from kprobe.functions.symbols import kallsyms_loader
from usdt.btf.files import KERNEL

KALLSYMS = Path("/proc/kallsyms")
pytestmark = pytest.mark.skipif(not KALLSYMS.exists(), reason="needs CONFIG_KALLSYMS")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the text, in a cache of one's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "usdt-toolkit/dwarf/kernel.symbols"


def _has(name: str, word: str) -> bool:
    return bool(kallsyms_loader([word]).result().named(name))


def _add(file: Path, name: str) -> None:
    # In place of the last line, so that the lengths still fit.
    text = file.read_bytes()
    line = b"\n0000000000000001 T " + name.encode() + b"\n"
    file.write_bytes(text[: -len(line)] + line)


@pytest.mark.parametrize("word", ["tcp_sendmsg", "vmlinux:tcp_sendmsg"])
def test_names_are_looked_up_in_what_was_kept(file: Path, word: str) -> None:
    assert not _has("only_in_the_file", word)
    assert file.stat().st_mode & 0o777 == 0o600
    _add(file, "only_in_the_file")
    assert _has("only_in_the_file", word)


@pytest.mark.parametrize(
    "word", ["tcp_*", "tcp_sendms?", "nf*:x", "bpf_prog_x", "m:ftrace_stub", "*"]
)
def test_what_comes_and_goes_is_read_anew(file: Path, word: str) -> None:
    assert not _has("only_in_the_file", word)
    assert not file.exists()
    _has("", "tcp_sendmsg")
    _add(file, "only_in_the_file")
    assert not _has("only_in_the_file", word)


def test_other_privileges_are_other_text(file: Path) -> None:
    _has("", "tcp_sendmsg")
    _add(file, "only_in_the_file")
    # Addresses that this process does not see: those of the first lines are in the head.
    first = KALLSYMS.read_bytes()[:16]
    file.write_bytes(file.read_bytes().replace(first, b"00000000000000ff", 1))
    assert not _has("only_in_the_file", "tcp_sendmsg")
    assert not _has("only_in_the_file", "tcp_sendmsg")
    assert file.read_bytes().count(first) >= 1


def test_the_kept_text_is_that_of_the_kernel(file: Path) -> None:
    text = KALLSYMS.read_bytes()
    for _ in range(2):
        _has("", "tcp_sendmsg")
        assert file.read_bytes()[-100_000:-50_000] in text


@pytest.mark.skipif(not Path(KERNEL).exists(), reason="needs CONFIG_DEBUG_INFO_BTF")
def test_info_says_the_same_again(file: Path) -> None:
    command = [KPROBE, "info", "tcp_sendmsg", "--json"]
    first = subprocess.check_output(command)
    assert file.exists()
    assert subprocess.check_output(command) == first
