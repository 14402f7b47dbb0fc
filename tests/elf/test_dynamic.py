"""The dynamic section, and the libraries that a program needs."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kept_builds import compile_in
from skips import need_program

from usdt.base.errors import ElfError, TargetError
from usdt.elf.dynamic import Dynamic, parse_dynamic
from usdt.targets.search.libraries import dependencies, read_dynamic


def elf(
    *,
    bits: int = 64,
    order: str = "<",
    needed: str = "libc.so.6",
    runpath: str = "",
    segments: int | None = None,
    string: int | None = None,
) -> bytes:
    """A small shared library: an ELF header, two program headers, a dynamic section, strings."""
    wide = bits == 64
    word = order + ("QQ" if wide else "II")
    table = f"\0{needed}\0libx.so.1\0{runpath}\0".encode()
    at_soname = 2 + len(needed)
    header, entry = (64, 56) if wide else (52, 32)
    dynamic = header + 2 * entry
    strings = dynamic + 6 * struct.calcsize(word)
    tags = [(1, 1 if string is None else string), (14, at_soname), (5, 0x10000 + strings)]
    tags += [(29, at_soname + 10)] if runpath else [(0, 0)]
    body = b"".join(struct.pack(word, *tag) for tag in (*tags, (0, 0), (0, 0))) + table
    size = strings + len(table)
    rows = [(1, 0, 0x10000, size), (2, dynamic, 0x10000 + dynamic, len(body))]
    headers = b"".join(_program_header(order, row, wide=wide) for row in rows)
    ident = b"\x7fELF" + bytes([bits // 32, 1 if order == "<" else 2, 1]) + bytes(9)
    count = 2 if segments is None else segments
    form = order + ("HHIQQQIHHHHHH" if wide else "HHIIIIIHHHHHH")
    rest = struct.pack(form, 3, 62, 1, 0, header, 0, 0, header, entry, count, 0, 0, 0)
    return ident + rest + headers + body


def _program_header(order: str, row: tuple[int, int, int, int], *, wide: bool) -> bytes:
    kind, offset, address, size = row
    if wide:
        return struct.pack(order + "IIQQQQQQ", kind, 5, offset, address, address, size, size, 8)
    return struct.pack(order + "IIIIIIII", kind, offset, address, address, size, size, 5, 4)


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("order", ["<", ">"])
def test_each_class_and_byte_order(bits: int, order: str) -> None:
    found = parse_dynamic(elf(bits=bits, order=order, runpath="$ORIGIN:/opt"), "x")
    assert found == Dynamic(
        bits=bits,
        machine=62,
        soname="libx.so.1",
        needed=("libc.so.6",),
        runpath=("$ORIGIN", "/opt"),
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"", "x: empty file, not an ELF file", id="empty"),
        pytest.param(b"#!/bin/sh\n" + bytes(100), "x: a script, not an ELF file", id="a script"),
        pytest.param(
            b"\x7fELF\3\1" + bytes(100), "damaged ELF header: class 3", id="no such class"
        ),
        pytest.param(elf()[:60], "x: truncated ELF header", id="half a header"),
        pytest.param(elf()[:100], "x: truncated: 2 program headers", id="half a program header"),
        pytest.param(elf(segments=0xFFFF), "truncated: 65535 program", id="too many segments"),
    ],
)
def test_damaged_files_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(ElfError, match=message):
        parse_dynamic(data, "x")


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(elf(string=2**63), id="a string outside the file"),
        pytest.param(elf(needed=""), id="a string that is empty"),
        pytest.param(elf(needed="x" * 5000), id="a string longer than names can be"),
        pytest.param(elf()[:200], id="the file ends in the dynamic section"),
        pytest.param(elf(segments=1), id="no dynamic section"),
    ],
)
def test_names_that_cannot_be_read_are_left_out(data: bytes) -> None:
    assert parse_dynamic(data, "x").needed == ()


@given(st.integers(0, 300), st.binary(min_size=1, max_size=16), st.sampled_from([32, 64]))
def test_any_damage_is_told_as_such(offset: int, patch: bytes, bits: int) -> None:
    data = elf(bits=bits, runpath="/opt")
    damaged = data[:offset] + patch + data[offset + len(patch) :]
    try:
        found = parse_dynamic(damaged, "x")
    except ElfError:
        return
    assert isinstance(found, Dynamic)


def pyelftools(path: str) -> Dynamic:
    """What an independent reader makes of a file."""
    from elftools.elf.elffile import ELFFile
    from elftools.elf.enums import ENUM_E_MACHINE

    with Path(path).open("rb") as stream:
        file = ELFFile(stream)
        segments: dict[str, Any] = {segment["p_type"]: segment for segment in file.iter_segments()}
        dynamic = segments.get("PT_DYNAMIC")
        tags = [(tag.entry.d_tag, tag) for tag in dynamic.iter_tags()] if dynamic else []
        interpreter = segments.get("PT_INTERP")
        paths = {name: tag for name, tag in tags if name in {"DT_RPATH", "DT_RUNPATH"}}
        runpath = tuple(paths["DT_RUNPATH"].runpath.split(":")) if "DT_RUNPATH" in paths else ()
        rpath = tuple(paths["DT_RPATH"].rpath.split(":")) if "DT_RPATH" in paths else ()
        flags: dict[str, int] = {name: tag.entry.d_val for name, tag in tags}
        return Dynamic(
            bits=file.elfclass,
            machine=ENUM_E_MACHINE[file["e_machine"]],
            interpreter=interpreter.get_interp_name() if interpreter else "",
            soname=next((tag.soname for name, tag in tags if name == "DT_SONAME"), ""),
            needed=tuple(tag.needed for name, tag in tags if name == "DT_NEEDED"),
            rpath=() if runpath else rpath,
            runpath=runpath,
            symbolic="DT_SYMBOLIC" in flags or bool(flags.get("DT_FLAGS", 0) & 2),
            pie=bool(flags.get("DT_FLAGS_1", 0) & 0x08000000),
        )


def system_files() -> list[str]:
    """Programs and libraries of this machine, a few of each folder."""
    folders = ("/usr/bin", "/usr/sbin", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib")
    found: list[str] = []
    for folder in folders:
        files = [path for path in sorted(Path(folder).glob("*")) if path.is_file()]
        elves = [str(path) for path in files if is_elf(path)]
        found += elves[:: max(len(elves) // 15, 1)]
    return found


def is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def test_an_independent_reader_agrees_on_this_machines_files() -> None:
    files = [*system_files(), str(Path(sys.executable).resolve())]
    assert [read_dynamic(path) for path in files] == [pyelftools(path) for path in files]


def ldd(path: str) -> set[Path]:
    """The files that the loader itself names; a library that cannot be found is no line of it."""
    program = need_program("ldd", "libc-bin")
    text = subprocess.run([program, path], capture_output=True, text=True, check=False).stdout
    words = [word for line in text.splitlines() for word in line.split() if word[0] == "/"]
    return {Path(word).resolve() for word in words if not word.endswith(":")}


@pytest.mark.parametrize("name", ["python", "gcc", "git", "java", "gdb", "ssh", "ldconfig"])
def test_the_loader_agrees(name: str) -> None:
    # ldd does not resolve the program's own name for $ORIGIN; the kernel does.
    path = str(Path(sys.executable if name == "python" else need_program(name)).resolve())
    if not is_elf(Path(path)):
        pytest.skip(f"needs {path} to be a program, not a script")
    if "ld-linux" in (loader := read_dynamic(path).interpreter) and not loader.startswith("/lib"):
        pytest.skip(f"needs {path} to start with the system's loader, which ldd asks")
    if not (expected := ldd(path)):
        assert dependencies(path) == []
        return
    assert {Path(library).resolve() for library in dependencies(path)} == expected


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """main needs liba, which needs libb: each found in another way."""
    gcc = need_program("gcc")
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()

    def build(output: str, source: str, *flags: str) -> None:
        (tmp_path / "source.c").write_text(source)
        command = [gcc, "-o", output, "source.c", "-Wl,--no-as-needed", *flags]
        compile_in(tmp_path, command)

    build("b/libb.so", "int b(void) { return 2; }", "-shared", "-fPIC", "-Wl,-soname,libb.so")
    build("a/liba.so", "int a(void) { return 1; }", "-shared", "-fPIC", "-Lb", "-lb")
    for tags in ("enable", "disable"):
        flags = ("-La", "-la", f"-Wl,--{tags}-new-dtags,-rpath,$ORIGIN/a:${{ORIGIN}}/b")
        build(tags, "int main(void) { return 0; }", *flags, "-Wl,--allow-shlib-undefined")
    return tmp_path


def ours(folder: Path, name: str, **environment: str) -> list[str]:
    """The libraries below the folder that a program there needs, as paths in it."""
    found = dependencies(str(folder / name), environment=environment)
    return [str(Path(p).relative_to(folder)) for p in found if p.startswith(str(folder))]


def test_runpath_serves_the_file_that_has_it_alone(built: Path) -> None:
    assert ours(built, "enable") == ["a/liba.so"]


def test_rpath_serves_the_libraries_below_as_well(built: Path) -> None:
    assert ours(built, "disable") == ["a/liba.so", "b/libb.so"]


def test_library_path_serves_all(built: Path) -> None:
    assert ours(built, "enable", LD_LIBRARY_PATH=f"{built}/b") == ["a/liba.so", "b/libb.so"]


def test_preloaded_libraries_come_first(built: Path) -> None:
    preload = f"{built}/b/libb.so"
    assert ours(built, "enable", LD_PRELOAD=preload) == ["b/libb.so", "a/liba.so"]


def test_the_interpreter_is_among_them(built: Path) -> None:
    interpreter = read_dynamic(str(built / "enable")).interpreter
    assert dependencies(str(built / "enable"))[0] == interpreter


def test_a_damaged_library_does_not_hide_the_others(built: Path) -> None:
    liba = built / "a" / "liba.so"
    liba.write_bytes(liba.read_bytes()[:64])
    found = dependencies(str(built / "enable"), environment={})
    assert any("libc.so" in path for path in found)


def test_libraries_that_need_each_other(tmp_path: Path) -> None:
    for name, needs in (("libx.so", "liby.so"), ("liby.so", "libx.so")):
        machine = struct.pack("<H", read_dynamic(sys.executable).machine)
        data = elf(needed=needs)
        (tmp_path / name).write_bytes(data[:18] + machine + data[20:])
    environment = {"LD_LIBRARY_PATH": str(tmp_path)}
    found = dependencies(str(tmp_path / "libx.so"), environment=environment)
    assert found == [f"{tmp_path}/liby.so"]


@pytest.mark.parametrize(
    ("name", "error"),
    [
        pytest.param("missing", TargetError, id="missing"),
        pytest.param("empty", TargetError, id="empty"),
        pytest.param("text", ElfError, id="no ELF file"),
        pytest.param("", ElfError, id="a folder"),
    ],
)
def test_what_has_no_dependencies(tmp_path: Path, name: str, error: type[Exception]) -> None:
    (tmp_path / "empty").touch()
    shutil.copy(__file__, tmp_path / "text")
    with pytest.raises(error, match=str(tmp_path / name)):
        dependencies(str(tmp_path / name))
