"""The index of functions and types, and what is kept of debug files between programs."""

from __future__ import annotations

import errno
import os
import struct
import subprocess
import sys
import zlib
from typing import TYPE_CHECKING

import pytest
from debug_programs import CXX_SOURCE, compiled
from skips import need_program

from usdt.dwarf.index import index
from usdt.dwarf.index.abbrev_skim import AbbrevSection
from usdt.dwarf.index.files import DiePosition
from usdt.dwarf.index.indexer import UnitIndexer
from usdt.dwarf.info import DebugInfo
from usdt.dwarf.units import cache, sections
from usdt.dwarf.units.errors import DwarfError
from usdt.dwarf.units.sections import DebugSections
from usdt.dwarf.units.units import Unit
from usdt.elf.file import ElfFile
from usdt.elf.format import ELF_STRUCTS
from usdt.uprobes.functions import FunctionFile

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of one's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/usdt-toolkit/dwarf"


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that an index was made of."""
    made: list[str] = []
    build = index.build

    def counted(files):
        made.append(files.name)
        return build(files)

    monkeypatch.setattr(index, "build", counted)
    return made


def names(program: Path) -> dict[str, int]:
    with ElfFile(program) as elf, DebugInfo.of(elf) as info:
        assert info.btf.size_of(info.type_id("struct point")) == 8
        return dict(info.functions())


@pytest.mark.parametrize("compiler", ["gcc", "g++"])
def test_functions_are_collected_without_reading_strings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str
) -> None:
    source = {"source": CXX_SOURCE} if compiler == "g++" else {}
    program = compiled(tmp_path, compiler, **source)
    with ElfFile(program) as elf, DebugInfo.of(elf) as info:
        main = info._files.main
        units = [main.unit(header) for header in main.headers]
        section = AbbrevSection(main.abbreviation_bytes, "program")
        whole, quick = UnitIndexer(section), UnitIndexer(section, names=False)
        for number, unit in enumerate(units):
            whole.add_unit(unit, DiePosition(number, 0))
        monkeypatch.setattr(Unit, "string", None)
        for number, unit in enumerate(units):
            quick.add_unit(unit, DiePosition(number, 0))
        assert quick.functions == whole.functions != []
        assert quick.names == [] != whole.names


def test_it_is_made_once(tmp_path: Path, kept: Path, builds: list[str]) -> None:
    program = compiled(tmp_path, "gcc")
    first = names(program)
    assert {"walk", "nothing", "main"} <= set(first)
    assert names(program) == first
    assert len(builds) == 1
    (file,) = kept.iterdir()
    assert file.suffix == ".index"
    assert file.stat().st_mode & 0o777 == 0o600
    assert kept.stat().st_mode & 0o777 == 0o700


def test_another_build_has_another(tmp_path: Path, kept: Path, builds: list[str]) -> None:
    names(compiled(tmp_path, "gcc"))
    names(compiled(tmp_path, "gcc", "-O2"))
    assert len(builds) == len(list(kept.iterdir())) == 2
    bare = compiled(tmp_path, "gcc", "-Wl,--build-id=none")
    names(bare)
    os.utime(bare, (1, 1))  # without a build ID the time counts
    names(bare)
    assert len(builds) == 4


SPLIT = """
struct point { int x, y; %s };
int walk(struct point *p) { return p->x; }
int main(void) { struct point p = {0, 0%s}; return walk(&p); }
"""


def split(folder: Path, more: str = "") -> Path:
    """A program whose types are in one.dwo beside it."""
    (folder / "one.c").write_text(SPLIT % (f"int {more};" if more else "", ", 0" if more else ""))
    command = [need_program("gcc"), "-g", "-gdwarf-5", "-gsplit-dwarf", "-c", "one.c"]
    subprocess.run(command, cwd=folder, check=True, timeout=60)
    subprocess.run(["gcc", "one.o", "-o", "program"], cwd=folder, check=True, timeout=60)
    return folder / "program"


def said(program: Path) -> str:
    """What is said of walk()."""
    with ElfFile(program) as elf, DebugInfo.of(elf) as info, FunctionFile(str(program)) as file:
        (found,) = file.find("walk")
        function = info.function(found.start)
        return info.missing_reason if function is None else function.declaration


def test_split_files_that_changed_are_read_anew(
    tmp_path: Path, kept: Path, builds: list[str]
) -> None:
    program, told = split(tmp_path), "int walk(struct point *p)"
    assert [said(program), said(program)] == [told, told]
    assert not builds  # its unit alone was read
    half = tmp_path / "one.dwo"
    whole = half.read_bytes()
    half.rename(tmp_path / "away")
    gone = "part of the debug information is in one.dwo, which was not found, nor a package (.dwp)"
    assert [said(program), said(program)] == [gone, gone]
    assert len(builds) == 2  # what is not whole is not kept
    half.write_bytes(whole)
    assert said(program) == told
    # Of another build: its number says so.
    kept_program = program.read_bytes()
    split(tmp_path, "more")
    program.write_bytes(kept_program)
    stale = (
        f"part of the debug information is in one.dwo, but {half} is damaged or of another build"
    )
    assert said(program) == stale
    half.write_bytes(b"no ELF file")
    assert said(program) == stale
    half.write_bytes(whole)
    assert [said(program), said(program)] == [told, told]
    assert len(builds) == 4


DAMAGES = {
    "empty": lambda data: b"",
    "cut short": lambda data: data[:-9],
    "longer": lambda data: data + b"\0",
    "a header without anything": lambda data: data[:64],
    "of another version": lambda data: data[:8] + b"\xff" + data[9:],
    "of another file": lambda data: data[:32] + bytes(32) + data[64:],
    "a byte changed": lambda data: data[:-20] + bytes((data[-20] ^ 1,)) + data[-19:],
    "noise": lambda data: os.urandom(4096),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_what_is_damaged_is_made_anew(
    tmp_path: Path, kept: Path, builds: list[str], damage
) -> None:
    program = compiled(tmp_path, "gcc")
    first = names(program)
    (file,) = kept.iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert names(program) == first
    assert len(builds) == 2
    assert file.read_bytes() == whole


def without_ranges(program: Path) -> Path:
    """A program without .debug_aranges, so that only its index finds functions."""
    command = [need_program("objcopy", "binutils"), "-R", ".debug_aranges", program]
    subprocess.run(command, check=True, timeout=60)
    return program


def declared(program: Path, addresses: dict[str, int]) -> dict[str, str | None]:
    """The prototype of each function, or None."""
    with ElfFile(program) as elf, DebugInfo.of(elf) as info:
        found = {name: info.function(at, name) for name, at in addresses.items()}
        return {name: one and one.declaration for name, one in found.items()}


def test_one_function_needs_no_index(tmp_path: Path, kept: Path, builds: list[str]) -> None:
    program = compiled(tmp_path, "gcc")
    addresses = names(program)
    next(kept.iterdir()).unlink()
    found = declared(program, addresses)
    assert len(builds) == 1
    assert not list(kept.iterdir())
    assert found["main"] == "int main(int argc, char **argv)"
    assert declared(without_ranges(program), addresses) == found
    assert len(builds) == 2


@pytest.mark.parametrize(
    "bad", [b"", b"\xff", b"\xff\xff\xff\xff" * 4], ids=["none", "cut", "long"]
)
def test_damaged_ranges_of_units_leave_it_to_the_index(
    tmp_path: Path, kept: Path, builds: list[str], bad: bytes
) -> None:
    program = compiled(tmp_path, "gcc")
    addresses = names(program)
    found = declared(program, addresses)
    (tmp_path / "bad").write_bytes(bad)
    changed = ["objcopy", "--update-section", f".debug_aranges={tmp_path / 'bad'}", program]
    subprocess.run(changed, check=True, timeout=60)
    assert declared(program, addresses) == found
    assert len(builds) == 2


def test_lies_under_a_right_checksum_do_not_pass(tmp_path: Path, kept: Path) -> None:
    program = without_ranges(compiled(tmp_path, "gcc"))
    address = names(program)["walk"]
    with ElfFile(program) as elf:
        key = f"{DebugSections(elf).identity} "
    data = bytes(cache.load(key, "index"))
    head = struct.unpack_from("<QQQ", data)
    for place in (0, 1, 1 << 40, (1 << 64) - 1, 0x20):
        lie = bytearray(data)
        for number in range(head[1]):
            struct.pack_into("<Q", lie, 24 + 8 * (head[1] + number), place)
        cache.store(key, "index", lambda lie=lie: iter((bytes(lie),)))
        with (
            ElfFile(program) as elf,
            DebugInfo.of(elf) as info,
            pytest.raises(DwarfError, match=r"^[^\n]+$"),
        ):
            info.function(address)


def test_nothing_is_kept_where_others_can_write(
    tmp_path: Path, kept: Path, builds: list[str]
) -> None:
    program = compiled(tmp_path, "gcc")
    kept.mkdir(parents=True)
    kept.chmod(0o777)
    names(program)
    names(program)
    assert len(builds) == 2
    assert not list(kept.iterdir())


def test_a_link_in_its_place_is_not_followed(tmp_path: Path, kept: Path, builds: list[str]) -> None:
    program = compiled(tmp_path, "gcc")
    names(program)
    (file,) = kept.iterdir()
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    names(program)
    assert len(builds) == 2


def test_it_does_without_a_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, builds: list[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/nowhere")
    program = compiled(tmp_path, "gcc", "-gz")
    assert names(program) == names(program)
    assert len(builds) == 2


def test_the_oldest_go_first(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MAX_CACHE", 5000)
    for number in range(4):
        before = set(kept.iterdir()) if kept.exists() else set()
        assert cache.store(f"key {number}", "x", lambda: iter((bytes(2000),))) is not None
        (file,) = set(kept.iterdir()) - before
        os.utime(file, (number, number))
    assert cache.load("key 0", "x") is None
    assert cache.load("key 3", "x") is not None


# ------------------------------------------------------------ sections


def compressed(data: bytes, *, size: int, kind: int = 1) -> bytes:
    return struct.pack("<IIQQ", kind, 0, size, 1) + data


def with_section(program: Path, data: bytes) -> Path:
    """The program with other bytes for .debug_info, said to be compressed."""
    need_program("objcopy", "binutils")
    (program.parent / "section").write_bytes(data)
    made = program.with_name("changed")
    command = ["objcopy", "--update-section", f".debug_info={program.parent / 'section'}"]
    subprocess.run([*command, program, made], check=True, capture_output=True)
    image = bytearray(made.read_bytes())
    with ElfFile(made) as elf:
        at = next(i for i, one in enumerate(elf.sections) if one.name == ".debug_info")
        place = elf._header.shoff + at * ELF_STRUCTS[64, "little"].shdr.size + 8
    struct.pack_into("<Q", image, place, 1 << 11)
    made.write_bytes(image)
    return made


TEXT = bytes(3 << 20)
PACKED = zlib.compress(TEXT)


@pytest.fixture(params=["zlib", "isal"])
def inflater(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both modules that decompress large sections."""
    if request.param == "isal":
        pytest.importorskip("isal.isal_zlib", reason="needs the extra isal")
    else:
        monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)


def refused(program: Path) -> str:
    """Why debug information is refused."""
    with ElfFile(program) as elf, DebugInfo.of(elf) as info:
        try:
            info.function(0x1000)
        except DwarfError as err:
            return str(err)
    return ""


@pytest.mark.usefixtures("inflater")
@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(compressed(PACKED, size=1 << 40), "cannot decompress to", id="far too much"),
        pytest.param(compressed(PACKED, size=len(TEXT) + 1), "header says", id="one more"),
        pytest.param(compressed(PACKED, size=len(TEXT) - 1), "header says", id="one less"),
        pytest.param(compressed(PACKED[:-100], size=len(TEXT)), "header says", id="cut off"),
        pytest.param(compressed(b"noise" * 99, size=99), "cannot be decompressed", id="noise"),
        pytest.param(compressed(b"", size=9, kind=7), "method 7", id="an unknown method"),
        pytest.param(b"abc", "3 bytes, 24 of header expected", id="no header"),
    ],
)
def test_sections_that_lie_about_their_size(
    tmp_path: Path, kept: Path, data: bytes, message: str
) -> None:
    program = with_section(compiled(tmp_path, "gcc"), data)
    refusal = refused(program)
    assert message in refusal
    assert "\n" not in refusal
    assert not kept.exists() or not list(kept.iterdir())


@pytest.mark.usefixtures("inflater")
def test_large_sections_are_decompressed_once(
    tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(1 << 20) * 3
    program = with_section(
        compiled(tmp_path, "gcc"), compressed(zlib.compress(data), size=len(data))
    )
    with ElfFile(program) as elf:
        whole = DebugSections(elf)
        assert whole[".debug_info"][:] == data
        whole.close()
    assert [one.suffix for one in kept.iterdir()] == [".section"]
    monkeypatch.setattr(DebugSections, "_pieces", None)  # not asked for again
    with ElfFile(program) as elf:
        whole = DebugSections(elf)
        assert whole[".debug_info"][:] == data
        whole.close()


@pytest.mark.usefixtures("inflater")
def test_a_section_is_decompressed_as_far_as_it_is_read(
    tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(1 << 20) * 5
    program = with_section(
        compiled(tmp_path, "gcc"), compressed(zlib.compress(data), size=len(data))
    )
    monkeypatch.setattr(sections, "_PIECE", 1 << 16)
    stored = []
    for end in (2 << 20, 1 << 20, 3 << 20, len(data)):
        with ElfFile(program) as elf:
            found = DebugSections(elf)
            assert found[".debug_info"][end - 9 : end] == data[end - 9 : end]
            found.close()
        (file,) = kept.iterdir()
        stored.append(file.stat().st_size - 64)
    assert stored[0] == stored[1]
    assert 2 << 20 <= stored[0] < 3 << 20 <= stored[2] < 4 << 20
    assert stored[3] == len(data)


@pytest.fixture
def overlapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sections of any size are used while they are decompressed, in small pieces."""
    monkeypatch.setattr(sections, "_MIN_CACHED", 0)
    monkeypatch.setattr(sections, "_PIECE", 200)


@pytest.mark.usefixtures("overlapped", "inflater")
@pytest.mark.parametrize("compiler", ["gcc", "g++"])
def test_a_section_is_looked_through_while_it_comes(
    tmp_path: Path, kept: Path, compiler: str
) -> None:
    for name in ("plain", "packed"):
        (tmp_path / name).mkdir()
    source = {"source": CXX_SOURCE} if compiler == "g++" else {}
    plain = compiled(tmp_path / "plain", compiler, **source)
    packed = compiled(tmp_path / "packed", compiler, "-gz", **source)
    found = []
    for program in (plain, packed, packed):
        with ElfFile(program) as elf, DebugInfo.of(elf) as info:
            types = {(kind, name) for kind, name, _ in info._index.types()}
            found.append((sorted(info.functions()), types))
    assert found[0] == found[1] == found[2]
    assert sorted(one.suffix for one in kept.iterdir()) == [".index", ".index", *[".section"] * 3]


@pytest.mark.usefixtures("overlapped", "inflater")
@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(compressed(PACKED, size=len(TEXT) + 1), "header says", id="one more"),
        pytest.param(compressed(PACKED, size=len(TEXT) - 1), "header says", id="one less"),
        pytest.param(compressed(b"noise" * 99, size=99), "cannot be decompressed", id="noise"),
    ],
)
def test_one_that_lies_is_refused_as_it_comes(
    tmp_path: Path, kept: Path, data: bytes, message: str
) -> None:
    refusal = refused(with_section(compiled(tmp_path, "gcc"), data))
    assert message in refusal
    assert "\n" not in refusal
    assert not list(kept.iterdir())


@pytest.mark.usefixtures("overlapped", "inflater")
def test_a_full_disk_costs_the_cache_alone(
    tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = compiled(tmp_path, "gcc")
    first = names(program)
    packed = compiled(tmp_path, "gcc", "-gz")
    write = cache.Draft.write

    def full(draft: cache.Draft, data: bytes) -> None:
        if draft._end > 1000:
            raise OSError(errno.ENOSPC, "no space left on device")
        write(draft, data)

    monkeypatch.setattr(cache.Draft, "write", full)
    assert names(packed) == first
    sizes = {one.suffix: one.stat().st_size for one in kept.iterdir()}
    assert ".index" in sizes
    assert sizes.get(".section", 0) <= 1000


@pytest.mark.usefixtures("overlapped", "inflater")
def test_an_interrupted_decompression_is_not_kept(
    tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(5000)
    program = with_section(
        compiled(tmp_path, "gcc"), compressed(zlib.compress(data), size=len(data))
    )
    write = cache.Draft.write

    def interrupted(draft: cache.Draft, data: bytes) -> None:
        write(draft, data)
        if draft._end > 1000:
            raise KeyboardInterrupt

    with ElfFile(program) as elf:
        found = DebugSections(elf)
        with monkeypatch.context() as patched:
            patched.setattr(cache.Draft, "write", interrupted)
            with pytest.raises(KeyboardInterrupt):
                found[".debug_info"][4000:]
        with pytest.raises(DwarfError, match="interrupted"):
            found[".debug_info"][4000:]
        found.close()
    assert not list(kept.iterdir())
