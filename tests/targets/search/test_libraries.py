"""Libraries by name, as the loader finds them."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import system_libc

from usdt.base.errors import TargetError
from usdt.targets.search.ldcache import CachedPaths, CacheEntry, parse_cache
from usdt.targets.search.libraries import (
    find_library,
    in_root,
    is_placeholder,
    library_names,
    name_rank,
    read_dynamic,
)

CACHE = Path("/etc/ld.so.cache")


def new_cache(*entries: tuple[str, str], count: int | None = None) -> bytes:
    """A cache in the new format; offsets are from its start."""
    strings, rows = b"", b""
    start = 48 + 24 * len(entries)
    for name, path in entries:
        key = start + len(strings)
        value = key + len(name.encode()) + 1
        rows += struct.pack("IIIIQ", 0x303, key, value, 0, 0)
        strings += f"{name}\0{path}\0".encode()
    counts = struct.pack("II20x", len(entries) if count is None else count, len(strings))
    return b"glibc-ld.so.cache1.1" + counts + rows + strings


def old_cache(*entries: tuple[str, str]) -> bytes:
    """A cache in the old format; offsets are from the end of the table."""
    strings, rows = b"", b""
    for name, path in entries:
        rows += struct.pack("III", 3, len(strings), len(strings) + len(name) + 1)
        strings += f"{name}\0{path}\0".encode()
    return b"ld.so-1.7.0\0" + struct.pack("I", len(entries)) + rows + strings


ENTRIES = (("libb.so.2", "/lib/libb.so.2"), ("liba.so", "/opt/a b/liba.so"))


def padded(data: bytes) -> bytes:
    """Up to the next multiple of eight, where the new cache begins inside an old one."""
    return data + bytes(-len(data) % 8)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(new_cache(*ENTRIES), id="the new format"),
        pytest.param(old_cache(*ENTRIES), id="the old format"),
        pytest.param(padded(old_cache()) + new_cache(*ENTRIES), id="the new one inside an old one"),
    ],
)
def test_a_cache(data: bytes) -> None:
    assert [(entry.name, entry.path) for entry in parse_cache(data)] == list(ENTRIES)


@pytest.mark.parametrize(
    ("data", "count"),
    [
        pytest.param(b"", 0, id="nothing"),
        pytest.param(b"glibc-ld.so.cache1.0" + bytes(100), 0, id="another version"),
        pytest.param(new_cache(*ENTRIES)[:40], 0, id="half a header"),
        pytest.param(new_cache(*ENTRIES)[:60], 0, id="half an entry"),
        pytest.param(new_cache(*ENTRIES)[:-1], 1, id="a string without its end"),
        pytest.param(new_cache(*ENTRIES, count=2**32 - 1), 2, id="more entries than bytes"),
        pytest.param(new_cache(("x", "y" * 5000)), 0, id="a path longer than paths can be"),
        pytest.param(b"ld.so-1.7.0\0" + b"\xff" * 4, 0, id="an old header alone"),
    ],
)
def test_a_damaged_cache_gives_what_can_be_read(data: bytes, count: int) -> None:
    assert len([entry for entry in parse_cache(data) if entry.path.startswith("/")]) == count


@given(st.binary(max_size=300))
def test_any_bytes_are_some_cache(data: bytes) -> None:
    for magic in (b"", b"glibc-ld.so.cache1.1", b"ld.so-1.7.0\0"):
        found = parse_cache(magic + data)
        assert all(isinstance(entry, CacheEntry) for entry in found)
        check_paths(magic + data)


def check_paths(data: bytes) -> None:
    entries = parse_cache(data)
    cached = CachedPaths(data)
    for name in {entry.name for entry in entries} | {"", "no such name"}:
        assert cached.of(name) == [entry.path for entry in entries if entry.name == name]


def test_paths_of_a_name() -> None:
    twice = (*ENTRIES, ("liba.so", "/lib/liba.so"), ("libö.so", "/lib/libö.so"), ("odd", ""))
    for make in (new_cache, old_cache):
        check_paths(make(*twice))
        assert CachedPaths(make(*twice)).of("liba.so") == ["/opt/a b/liba.so", "/lib/liba.so"]
    if CACHE.exists():
        check_paths(CACHE.read_bytes())


def test_the_cache_agrees_with_ldconfig() -> None:
    if not CACHE.exists():
        pytest.skip("needs /etc/ld.so.cache")
    ldconfig = shutil.which("ldconfig", path=os.environ["PATH"] + ":/sbin:/usr/sbin")
    if not ldconfig:
        pytest.skip("needs the program ldconfig: apt-get install libc-bin")
    text = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, check=True).stdout
    rows = [line.strip().split(" => ") for line in text.splitlines() if " => " in line]
    expected = [(left.split(" (")[0], path) for left, path in rows]
    assert [(entry.name, entry.path) for entry in parse_cache(CACHE.read_bytes())] == expected


@pytest.mark.parametrize(
    ("word", "name", "rank"),
    [
        pytest.param("libc.so.6", "libc.so.6", 0, id="the whole name"),
        pytest.param("libc", "libc.so.6", 1, id="without suffix and version"),
        pytest.param("libjvm", "libjvm.so", 1, id="without suffix"),
        pytest.param("libc.so", "libc.so.6", 1, id="without version"),
        pytest.param("libstdc++", "libstdc++.so.6.0.30", 1, id="a name with signs in it"),
        pytest.param("libc", "libc-2.31.so", 2, id="version before the suffix"),
        pytest.param("libpython3", "libpython3.11.so.1.0", 2, id="part of a version"),
        pytest.param("libpython", "libpython3.11.so.1.0", 2, id="a version without a dash"),
        pytest.param("libLLVM", "libLLVM-14.so.1", 2, id="a number after a dash"),
        pytest.param("libc", "libc.musl-x86_64.so.1", 2, id="musl"),
        pytest.param("libx", "libx264.so.164", None, id="a name that ends in a number"),
        pytest.param("libc", "libc-client.so.2007", None, id="a name that goes on after a dash"),
        pytest.param("libc", "libcrypt.so.1", None, id="another library that begins so"),
        pytest.param("libc.so.6", "libc.so.66", None, id="another version that begins so"),
        pytest.param("libc.so", "libc.sock", None, id="no suffix at all"),
        pytest.param("libc", "libc.a", None, id="no shared library"),
        pytest.param("c", "libc.so.6", None, id="the end of a name"),
        pytest.param("", "libc.so.6", None, id="no name"),
    ],
)
def test_how_well_a_name_fits(word: str, name: str, rank: int | None) -> None:
    assert name_rank(word, name) == rank


@pytest.mark.parametrize("word", ["libc", "libc.so", "libc.so.6"])
def test_libc_is_the_one_that_runs(word: str) -> None:
    if not (found := find_library(word)) and not CACHE.exists():
        pytest.skip("needs glibc")
    assert Path(found[0]).samefile(system_libc())


def test_what_is_a_part_of_libc_is_found_there(tmp_path: Path) -> None:
    libc = system_libc()
    for name in ("libc.so.6", "libpthread.so.0"):
        shutil.copy(libc, tmp_path / name)
    environment = {"LD_LIBRARY_PATH": str(tmp_path)}
    word = "libpthread"
    assert find_library(word, environment=environment)[0] == f"{tmp_path}/libpthread.so.0"
    assert not is_placeholder(f"{tmp_path}/libpthread.so.0")
    # The start of a library, and the name that glibc leaves in what is left of this one.
    start = libc.read_bytes()[:4096]
    (tmp_path / "libpthread.so.0").write_bytes(start + b"\0__libpthread_version_placeholder\0")
    assert is_placeholder(f"{tmp_path}/libpthread.so.0")
    assert find_library(word, environment=environment)[0] == f"{tmp_path}/libc.so.6"
    (tmp_path / "libc.so.6").unlink()
    assert find_library(word, environment=environment)[0] == f"{tmp_path}/libpthread.so.0"
    assert not is_placeholder("/no/such/libpthread.so.0")


def test_only_the_word_size_asked_for() -> None:
    assert all(read_dynamic(path).bits == 32 for path in find_library("libc", machine_bits=32))
    assert all(read_dynamic(path).bits == 64 for path in find_library("libc", machine_bits=64))


def test_library_path_goes_first_and_files_that_are_no_elf_are_no_libraries(tmp_path: Path) -> None:
    (tmp_path / "libc.so.6").write_text("GROUP ( a linker script )")
    environment = {"LD_LIBRARY_PATH": str(tmp_path)}
    assert find_library("libc", environment=environment) == find_library("libc", environment={})
    shutil.copy(system_libc(), tmp_path / "libc.so.6")
    assert find_library("libc", environment=environment)[0] == f"{tmp_path}/libc.so.6"


def test_the_newest_version_goes_first(tmp_path: Path) -> None:
    for version in ("9", "10", "2"):
        (tmp_path / f"libprobes.so.{version}").write_bytes(system_libc().read_bytes()[:4096])
    found = find_library("libprobes", environment={"LD_LIBRARY_PATH": str(tmp_path)})
    assert [Path(path).name for path in found] == [f"libprobes.so.{n}" for n in ("10", "9", "2")]


def test_a_library_that_is_not_there() -> None:
    assert find_library("libnosuchthing") == []
    assert find_library("") == []


def test_libraries_of_another_root(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "opt").mkdir()
    shutil.copy(system_libc(), tmp_path / "opt" / "libprobes.so.1")
    (tmp_path / "link").symlink_to("/opt")
    cache = new_cache(("libprobes.so.1", "/link/libprobes.so.1"))
    (tmp_path / "etc" / "ld.so.cache").write_bytes(cache)
    assert find_library("libprobes", root=str(tmp_path)) == ["/link/libprobes.so.1"]
    assert library_names(str(tmp_path)) == {"libprobes.so.1"}


@pytest.mark.parametrize(
    ("path", "reached"),
    [
        pytest.param("/opt/x", "/opt/x", id="no link"),
        pytest.param("/absolute/x", "/opt/x", id="an absolute link stays inside"),
        pytest.param("/opt/up/x", "/opt/x", id="a relative link"),
        pytest.param("/escape/etc", "/etc", id="a link above the root stays inside"),
        pytest.param("/opt/../../etc", "/etc", id="a path above the root stays inside"),
        pytest.param("/nowhere/x", "/nowhere/x", id="a name that is not there"),
    ],
)
def test_links_are_followed_inside_a_root(tmp_path: Path, path: str, reached: str) -> None:
    (tmp_path / "opt").mkdir()
    (tmp_path / "opt" / "x").touch()
    (tmp_path / "absolute").symlink_to("/opt")
    (tmp_path / "opt" / "up").symlink_to("../opt")
    (tmp_path / "escape").symlink_to("../../..")
    assert in_root(str(tmp_path), path) == f"{tmp_path}{reached}"


def test_links_that_go_round_are_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("/loop/x")
    with pytest.raises(TargetError, match=r"^/loop: more than 40 symbolic links"):
        in_root(str(tmp_path), "/loop")
