"""Where records begin: the kernel's from a file that must fit, words that overlap themselves."""

from __future__ import annotations

import mmap
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from usdt.base.errors import BtfError
from usdt.btf.files import KERNEL, read_btf
from usdt.btf.format import Kind
from usdt.btf.positions import kernel_positions, occurrences, record_positions
from usdt.btf.reader import Btf

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

need_vmlinux = pytest.mark.skipif(
    not Path(KERNEL).exists(), reason="needs CONFIG_DEBUG_INFO_BTF: /sys/kernel/btf/vmlinux"
)
SIZES = {int(Kind.PTR): (0, 0), int(Kind.ARRAY): (12, 0)}
POINTER, ARRAY = [0, Kind.PTR << 24, 1], [0, Kind.ARRAY << 24, 0, 1, 1, 3]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the positions, in a cache of one's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "usdt-toolkit/dwarf/kernel.positions"


def _positions(words: Sequence[int]) -> list[int]:
    return [*kernel_positions(memoryview(_bytes(words)).cast("I"), SIZES, "the kernel")]


def _bytes(words: Sequence[int]) -> bytes:
    return b"".join(word.to_bytes(4, "little") for word in words)


def test_positions_are_kept(file: Path) -> None:
    words = [*POINTER, *ARRAY, *POINTER]
    assert _positions(words) == [0, 3, 9]
    assert file.stat().st_mode & 0o777 == 0o600
    # Were they not from the file, these records would be found at other places.
    assert _positions([*ARRAY, *POINTER, *POINTER]) == [0, 3, 9]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        pytest.param(lambda data: data[:-4], [*POINTER, *POINTER], id="cut off"),
        pytest.param(lambda data: data[:4], [*POINTER, *POINTER], id="nearly empty"),
        pytest.param(lambda _: b"", [*POINTER, *POINTER], id="empty"),
        pytest.param(lambda data: data[:-4] + b"\xff\0\0\0", [*POINTER, *POINTER], id="outside"),
        pytest.param(lambda data: data[:-4] + b"\0\0\0\0", [*POINTER, *POINTER], id="not the last"),
        pytest.param(
            lambda data: data.replace(b"-", b"_"), [*POINTER, *POINTER], id="another boot"
        ),
        pytest.param(lambda data: data, [*POINTER, *POINTER, *POINTER], id="another kernel"),
    ],
)
def test_what_does_not_fit_is_made_anew(
    file: Path, damage: Callable[[bytes], bytes], words: list[int]
) -> None:
    _positions([*POINTER, *POINTER])
    file.write_bytes(damage(file.read_bytes()))
    expected = [*range(0, len(words), 3)]
    assert _positions(words) == expected
    kept = file.read_bytes()
    assert kept.endswith(_bytes(expected))
    assert _positions(words) == expected
    assert file.read_bytes() == kept


def test_a_file_that_others_can_write_is_not_used(file: Path) -> None:
    words = [*POINTER, *ARRAY, *POINTER]
    _positions(words)
    file.chmod(0o666)
    assert _positions([*ARRAY, *POINTER, *POINTER]) == [0, 6, 9]
    assert file.stat().st_mode & 0o777 == 0o600


def test_without_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/none")
    assert _positions([*POINTER, *ARRAY]) == [0, 3]


def test_damaged_records_are_not_kept(file: Path) -> None:
    with pytest.raises(BtfError, match="the kernel: BTF type 2 is cut off"):
        _positions([*POINTER, *ARRAY[:-1]])
    assert not file.exists()


@need_vmlinux
def test_positions_of_the_running_kernel(file: Path) -> None:
    types = read_btf(KERNEL).types
    plain = Btf(types, name="a copy")
    words = plain._words
    sizes = plain._header.sizes
    expected = record_positions(words, sizes, 1, "a copy")
    assert [*kernel_positions(words, sizes, KERNEL)] == [*expected]
    assert file.stat().st_size > len(plain)
    assert [*kernel_positions(words, sizes, KERNEL)] == [*expected]


@need_vmlinux
@pytest.mark.parametrize("name", ["tcp_sendmsg", "do_sys_openat2", "no_such_function"])
def test_a_mapping_has_the_types_of_its_bytes(name: str) -> None:
    kernel, plain = Btf.from_sysfs(), Btf(read_btf(KERNEL).types)
    found = kernel.find(name, Kind.FUNC)
    assert found == plain.find(name, Kind.FUNC)
    assert [kernel.type(one) for one in found] == [plain.type(one) for one in found]


@pytest.mark.parametrize("order", ["little", "big"])
@pytest.mark.parametrize("word", [0x00010001, 0x05050505, 0x07000007, 0x5B2A2E00, 1])
def test_words_are_found_wherever_they_are(word: int, order: str) -> None:
    one = word.to_bytes(4, "little" if order == "little" else "big")
    data = b"head" + one[2:] + one * 3 + one[:2] + b"\xee" + one + one[:3] + b"tail"
    within = 4, len(data) - 4
    expected = [at for at in range(*within) if data[at : at + 4] == one and at + 4 <= within[1]]
    assert len(expected) >= 4
    assert [*occurrences(data, word, order, within)] == expected
    with mmap.mmap(-1, len(data)) as mapped:
        mapped[:] = data
        assert [*occurrences(mapped, word, order, within)] == expected


@need_vmlinux
def test_the_example_of_the_docs_runs(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    del file  # the positions are found anew
    docs = (Path(__file__).resolve().parents[2] / "docs/btf.md").read_text()
    start = docs.index("    from usdt.btf.reader import Btf")
    source = docs[start : docs.index("\n\nThe reader supports", start)]
    exec(textwrap.dedent(source), {})
    assert capsys.readouterr().out.startswith("int tcp_sendmsg(struct sock *sk, ")
