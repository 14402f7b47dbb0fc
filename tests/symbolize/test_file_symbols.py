"""Functions of files: of every table and debug file there can be, and of damaged ones."""

from __future__ import annotations

import bisect
import random
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from fixtures import build
from skips import need_program
from symbol_programs import TELLER, compiled

from usdt.base.errors import ElfError
from usdt.symbolize import FileSymbols


@pytest.fixture(scope="module")
def teller(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("teller"), TELLER, "-O0", "-g", "-Wl,--build-id")


def run(*words: object) -> str:
    tool = need_program(str(words[0]), "binutils")
    done = subprocess.run(
        [tool, *map(str, words[1:])], check=True, capture_output=True, text=True, timeout=60
    )
    return done.stdout


def addresses(path: Path) -> dict[str, int]:
    """Functions of .symtab by nm's account."""
    rows = [line.split() for line in run("nm", "--defined-only", path).splitlines()]
    return {name: int(value, 16) for value, kind, name in rows if kind in "tT"}


def sizes(path: Path) -> dict[str, int]:
    """The bytes of functions by nm's account."""
    rows = [line.split() for line in run("nm", "-S", "--defined-only", path).splitlines()]
    return {row[3]: int(row[1], 16) for row in rows if len(row) == 4}


def name_at(symbols: FileSymbols, address: int) -> str:
    found = symbols.find(address)
    return "" if found is None else found.name


def check(path: Path, known: dict[str, int], debug_root: Path, *, missing: str = "") -> None:
    """Both functions are found in the middle of their code; but for the missing one."""
    with FileSymbols(str(path), debug_root=str(debug_root)) as symbols:
        for name in ("exported_function", "hidden_function"):
            expected = "" if name == missing else name
            assert name_at(symbols, known[name] + 3) == expected, f"{path}: {name}"


def test_symtab(teller: Path, tmp_path: Path) -> None:
    check(teller, addresses(teller), tmp_path)


def test_a_stripped_file_has_what_others_link_to(teller: Path, tmp_path: Path) -> None:
    known = addresses(teller)
    library = compiled(tmp_path, TELLER, "-O0", "-shared", "-fPIC", name="libteller.so")
    known = addresses(library)
    run("strip", library)
    check(library, known, tmp_path, missing="hidden_function")


def test_a_debug_file_is_found_by_build_id(teller: Path, tmp_path: Path) -> None:
    known = addresses(teller)
    build_id = FileSymbols(str(teller)).build_id
    assert build_id is not None
    folder = tmp_path / ".build-id" / build_id[:2]
    folder.mkdir(parents=True)
    run("objcopy", "--only-keep-debug", teller, folder / f"{build_id[2:]}.debug")
    stripped = tmp_path / "stripped"
    run("objcopy", "--strip-all", teller, stripped)
    check(stripped, known, tmp_path)
    with FileSymbols(str(stripped), debug_root=str(tmp_path / "nowhere")) as symbols:
        assert not name_at(symbols, known["hidden_function"] + 3)


def test_a_debug_file_of_another_build_is_not_taken(teller: Path, tmp_path: Path) -> None:
    known = addresses(teller)
    build_id = FileSymbols(str(teller)).build_id
    assert build_id is not None
    folder = tmp_path / ".build-id" / build_id[:2]
    folder.mkdir(parents=True)
    other = compiled(tmp_path, TELLER + "int more;", "-g", "-Wl,--build-id", name="other")
    run("objcopy", "--only-keep-debug", other, folder / f"{build_id[2:]}.debug")
    stripped = tmp_path / "stripped"
    run("objcopy", "--strip-all", teller, stripped)
    with FileSymbols(str(stripped), debug_root=str(tmp_path)) as symbols:
        assert not name_at(symbols, known["hidden_function"] + 3)


@pytest.mark.parametrize("place", ["", ".debug"])
def test_a_debug_file_is_found_by_its_link(teller: Path, tmp_path: Path, place: str) -> None:
    plain = tmp_path / "plain"
    run("objcopy", "--remove-section=.note.gnu.build-id", teller, plain)
    known = addresses(plain)
    folder = tmp_path / place
    folder.mkdir(exist_ok=True)
    debug = folder / "plain.debug"
    run("objcopy", "--only-keep-debug", plain, debug)
    stripped = tmp_path / "stripped"
    run("objcopy", "--strip-all", f"--add-gnu-debuglink={debug}", plain, stripped)
    check(stripped, known, tmp_path / "nowhere")
    debug.write_bytes(debug.read_bytes() + b"\0")  # the CRC is another now
    with FileSymbols(str(stripped), debug_root=str(tmp_path / "nowhere")) as symbols:
        assert not name_at(symbols, known["hidden_function"] + 3)


def test_mini_debug_info(teller: Path, tmp_path: Path) -> None:
    known = addresses(teller)
    mini, stripped = tmp_path / "mini", tmp_path / "stripped"
    run("objcopy", "--strip-debug", "--remove-section=.comment", teller, mini)
    run("objcopy", "--only-keep-debug", mini)
    subprocess.run([need_program("xz", "xz-utils"), str(mini)], check=True, timeout=60)
    packed = f".gnu_debugdata={mini}.xz"
    run("objcopy", "--strip-all", f"--add-section={packed}", teller, stripped)
    check(stripped, known, tmp_path / "nowhere")


@pytest.mark.parametrize("content", [b"", b"no xz", b"\xfd7zXZ\0" + bytes(40)])
def test_mini_debug_info_that_is_none(teller: Path, tmp_path: Path, content: bytes) -> None:
    known = addresses(teller)
    (tmp_path / "data").write_bytes(content)
    section = f".gnu_debugdata={tmp_path / 'data'}"
    stripped = tmp_path / "stripped"
    run("objcopy", "--strip-all", f"--add-section={section}", teller, stripped)
    with FileSymbols(str(stripped), debug_root=str(tmp_path)) as symbols:
        assert not name_at(symbols, known["hidden_function"] + 3)


def test_every_function_of_a_large_library_is_found_as_nm_has_it() -> None:
    found = sorted(Path("/usr/lib/jvm").glob("*/lib/server/libjvm.so"))
    found += sorted(Path("/usr/lib").glob("*/libstdc++.so.6"))
    if not found:
        pytest.skip("needs a large library: apt-get install libstdc++6")
    path = max(found, key=lambda one: one.stat().st_size)
    rows = [line.split() for line in run("nm", "-S", "--defined-only", path).splitlines()]
    rows += [line.split() for line in run("nm", "-DS", "--defined-only", path).splitlines()]
    sized = [
        (int(row[0], 16), int(row[1], 16), row[3].partition("@")[0])
        for row in rows
        if len(row) == 4 and row[2] in "tTwW" and not row[3].startswith("$")
    ]
    assert len(sized) > 1000
    names: dict[int, set[str]] = {}
    for start, _, name in sized:
        names.setdefault(start, set()).add(name)
    starts = sorted(names)
    with FileSymbols(str(path)) as symbols:
        for start, size, _ in random.Random(1).sample(sized, 1000):
            middle = start + size // 2
            inner = starts[bisect.bisect_right(starts, middle) - 1]
            if inner == start:  # else another function begins within this one
                symbol = symbols.find(middle)
                assert symbol is not None
                assert symbol.address == start
                assert symbol.name in names[start]


def test_an_address_outside_every_function_has_no_name(teller: Path, tmp_path: Path) -> None:
    with FileSymbols(str(teller), debug_root=str(tmp_path)) as symbols:
        for address in (0, 1, 0x3, 1 << 40, (1 << 64) - 1):
            assert symbols.find(address) is None


def test_damaged_symbol_tables_end_in_names_or_in_none(teller: Path, tmp_path: Path) -> None:
    whole = teller.read_bytes()
    known = addresses(teller)
    (section_offset,) = struct.unpack_from("<Q", whole, 40)
    chance = random.Random(3)
    target = tmp_path / "damaged"
    survived = 0
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 6)):
            # section headers, or anything behind the code: tables and strings
            low = section_offset if chance.random() < 0.5 else len(data) // 2
            data[chance.randrange(low, len(data))] = chance.choice((0, 1, 0x7F, 0xFF))
        target.write_bytes(bytes(data))
        try:
            with FileSymbols(str(target), debug_root=str(tmp_path)) as symbols:
                survived += symbols.find(known["main"] + 1) is not None
                symbols.find(known["hidden_function"] + (1 << 33))
        except ElfError:
            continue
    assert survived > 20, "the damage hardly ever leaves a file that is read"


@pytest.mark.parametrize("size", [0, 1 << 20, (1 << 64) - 1])
def test_a_symbol_of_a_damaged_size_hides_no_other(size: int, teller: Path, tmp_path: Path) -> None:
    data = bytearray(teller.read_bytes())
    known = addresses(teller)
    first, other = known["exported_function"], known["main"]
    patched = 0
    at = data.find(struct.pack("<Q", first))
    while at >= 0:  # in symbols the size is the next word
        if data[at + 8 : at + 16] == struct.pack("<Q", sizes(teller)["exported_function"]):
            data[at + 8 : at + 16] = struct.pack("<Q", size)
            patched += 1
        at = data.find(struct.pack("<Q", first), at + 1)
    assert patched
    target = tmp_path / "damaged"
    target.write_bytes(data)
    with FileSymbols(str(target), debug_root=str(tmp_path)) as symbols:
        assert name_at(symbols, first) == "exported_function"
        assert name_at(symbols, other) == "main"
        assert name_at(symbols, other + (1 << 20)) in ("", "exported_function")
        assert name_at(symbols, first - 1) != "exported_function"


def test_a_file_that_is_cut_short(teller: Path, tmp_path: Path) -> None:
    whole = teller.read_bytes()
    target = tmp_path / "short"
    for size in range(0, len(whole), 997):
        target.write_bytes(whole[:size])
        try:
            with FileSymbols(str(target), debug_root=str(tmp_path)) as symbols:
                symbols.find(0x1139)
        except ElfError:
            continue


def test_what_is_no_elf_file_is_an_error(tmp_path: Path) -> None:
    shutil.copy(__file__, tmp_path / "text")
    with pytest.raises(ElfError, match="not an ELF file"):
        FileSymbols(str(tmp_path / "text"))


@pytest.mark.parametrize("variant", ["m32", "m32nopie", "static"])
def test_functions_of_other_kinds_of_program(variant: str) -> None:
    path = build(variant, "args")
    rows = [line.split() for line in run("nm", "-S", "--defined-only", path).splitlines()]
    sized = {
        (int(row[0], 16), int(row[1], 16)): row[3]
        for row in rows
        if len(row) == 4 and row[2] in "tT"
    }
    assert "main" in sized.values()
    with FileSymbols(str(path)) as symbols:
        for (start, size), name in sized.items():
            if name == "main" or name.startswith("fire"):
                assert name_at(symbols, start + size - 1) == name


def test_addresses_with_one_answer_are_found_together(teller: Path) -> None:
    for path in (teller, Path("/bin/sh")):
        chance = random.Random(3)
        with FileSymbols(str(path)) as symbols, FileSymbols(str(path)) as fresh:
            for _ in range(2000):
                address = chance.randrange(0x8000) + (symbols.code_start or (0, 0))[1]
                low, high, name, start = symbols.span(address)
                symbol = symbols.find(address)
                assert start == (symbol.address if symbol else 0)
                assert low <= address < high
                assert name == (symbol.name if symbol else "")
                for one in (low, high - 1, chance.randrange(low, high)):
                    assert fresh.find(max(0, one)) == symbol, (path, address, one)
                    assert fresh.span(max(0, one))[2:] == (name, start)
                    fresh.spans.clear()
                    fresh.starts.clear()


@pytest.mark.parametrize("options", [("-no-pie",), ("-static-pie",)])
def test_offsets_that_lie_as_link_time_addresses_do(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    program = compiled(tmp_path, TELLER, "-O0", *options)
    with FileSymbols(str(program)) as symbols:
        for offset in range(0, program.stat().st_size + 0x3000, 0x123):
            low, high, difference = symbols.part(offset)
            assert low <= offset < high
            for one in (max(0, low), offset, min(high - 1, 1 << 40)):
                assert symbols.address_of(one) == one + difference
