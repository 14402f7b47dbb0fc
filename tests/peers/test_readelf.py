"""Beside readelf: every probe of real programs and libraries, of nine CPUs, note by note."""

from __future__ import annotations

import functools
import json
import mmap
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import debian
import pytest
from click.testing import CliRunner
from elftools.elf.elffile import ELFFile
from elfwriter import FORMATS, Format, note, probe_elf
from skips import need_program

from usdt.cli.group import usdt as command
from usdt.elf.file import ElfFile
from usdt.probes.notes import parse_notes
from usdt.probes.probe import read_probes

if TYPE_CHECKING:
    from collections.abc import Iterator

# Packages of Debian bookworm, and a number of notes that each has more of on every CPU: compilers
# copy call sites as they see fit. It is only there lest nothing be compared.
PACKAGES = [
    ("openjdk-17-jre-headless", 400),
    ("openjdk-17-jre-zero", 400),
    ("postgresql-15", 50),
    ("libruby3.1", 30),
    ("php8.2-cli", 10),
    ("php8.2-fpm", 10),
    ("php8.2-cgi", 20),
    ("php8.2-phpdbg", 10),
    ("libapache2-mod-php8.2", 10),
    ("libphp8.2-embed", 10),
    ("libvirt0", 30),
    ("libvirt-daemon", 5),
    ("libvirt-daemon-driver-qemu", 5),
    ("python3.11-minimal", 4),
    ("libpython3.11", 4),
    ("libstdc++6", 2),
]

# Debian's CPU -> suite, and the first bytes of a nop there (arm's is Thumb's).
CPUS = {
    "amd64": ("bookworm", b"\x90"),
    "arm64": ("bookworm", b"\x1f\x20\x03\xd5"),
    "armhf": ("bookworm", b"\x00\xbf"),
    "i386": ("bookworm", b"\x90"),
    "mips64el": ("bookworm", b"\0\0\0\0"),
    "ppc64el": ("bookworm", b"\0\0\0\x60"),
    "s390x": ("bookworm", b"\x47\0\0\0"),
    "riscv64": ("trixie", b"\x01\0"),
    "loong64": ("forky", b"\0\0\x40\x03"),
}
# What the packages are called in other suites.
RENAMED = {
    "trixie": {
        "openjdk-17-jre-headless": "openjdk-21-jre-headless",
        "openjdk-17-jre-zero": "openjdk-21-jre-zero",
        "postgresql-15": "postgresql-17",
        "python3.11-minimal": "python3.13-minimal",
        "libpython3.11": "libpython3.13",
    },
    "forky": {
        "openjdk-17-jre-headless": "openjdk-21-jre-headless",
        "postgresql-15": "postgresql-18",
        "python3.11-minimal": "python3.13-minimal",
        "libpython3.11": "libpython3.13",
    },
}

# Built without probes there, or not at all. PHP has them on three CPUs of bookworm's, and Ruby and
# PHP have none in trixie and later (libruby3.3, php8.4).
WITHOUT = {
    *(("openjdk-17-jre-headless", cpu) for cpu in ("ppc64el", "s390x")),
    *(("openjdk-17-jre-zero", cpu) for cpu in ("ppc64el", "s390x", "mips64el", "loong64")),
    *(
        (package, cpu)
        for package, _ in PACKAGES
        if "php8.2" in package
        for cpu in ("arm64", "mips64el", "ppc64el", "s390x", "riscv64", "loong64")
    ),
    *(("libruby3.1", cpu) for cpu in ("riscv64", "loong64")),
}

# Where this machine may have some; whatever is there is compared.
LOCAL = [
    "usr/bin/python3*",
    "usr/lib/*/libpython3*.so.*",
    "usr/lib/*/libstdc++.so.*",
    "usr/lib/postgresql/*/bin/postgres",
    "usr/lib/jvm/*/lib/server/libjvm.so",
    "usr/lib*/libc.so.6",
    "usr/lib/*/libvirt*.so.*",
    "usr/bin/node",
]


OPERAND = re.compile(r"(?:[^\s\[]|\[[^\]]*\])+")  # arm's have blanks in their brackets
HALF = "holds a part of its"  # what no note can tell, on 32-bit CPUs


class Row(NamedTuple):
    """A note as readelf prints it."""

    provider: str
    name: str
    location: int
    base: int
    semaphore: int
    args: str


NOTE = re.compile(
    r"NT_STAPSDT .*\s    Provider: (?P<provider>.*)\n"
    r"    Name: (?P<name>.*)\n"
    r"    Location: 0x(?P<location>\w+), Base: 0x(?P<base>\w+), Semaphore: 0x(?P<semaphore>\w+)\n"
    r"    Arguments: (?P<args>.*)$",
    re.MULTILINE,
)


def readelf(path: Path, *options: str) -> str:
    program = need_program("readelf", "binutils")
    done = subprocess.run(
        [program, "-W", *options, path],
        capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C"},
    )  # fmt: skip
    return done.stdout


def rows(path: Path) -> list[Row]:
    return [
        Row(
            found["provider"],
            found["name"],
            int(found["location"], 16),
            int(found["base"], 16),
            int(found["semaphore"], 16),
            found["args"],
        )
        for found in NOTE.finditer(readelf(path, "-n"))
    ]


def adjusted(path: Path, notes: list[Row]) -> list[Row]:
    """The notes moved as prelink has moved the file, by readelf's list of sections."""
    found = re.search(r" \.stapsdt\.base +\w+ +(\w+) ", readelf(path, "-S"))
    assert found
    section = int(found[1], 16)
    return [
        row._replace(
            location=row.location + section - row.base,
            semaphore=row.semaphore and row.semaphore + section - row.base,
        )
        for row in notes
    ]


def with_notes(folder: Path) -> Iterator[Path]:
    """ELF files under a folder that mention the section, found without the code under test."""
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_file() or path.stat().st_size < 64:
            continue
        if mentions_notes(path):
            yield path


def mentions_notes(path: Path) -> bool:
    with path.open("rb", buffering=0) as file:
        if file.read(4) != b"\x7fELF":  # nine files of ten
            return False
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as contents:
            return contents.rfind(b".note.stapsdt\0") >= 0


def compare(path: Path, nop: bytes = CPUS["amd64"][1]) -> int:
    """Compare a file's probes with readelf's; returns how many notes there were."""
    expected = rows(path)
    assert notes_in_order(path) == expected
    assert read_probes(path).warnings == ()
    listed = list_json(path)
    assert Counter(
        Row(
            *(probe["provider"], probe["name"], site["address"], site["base"]),
            *(site["semaphore"], site["args"]),
        )
        for probe in listed
        for site in probe["sites"]
    ) == Counter(adjusted(path, expected))
    assert [(probe["provider"], probe["name"]) for probe in listed] == list(
        dict.fromkeys((row.provider, row.name) for row in expected)
    )
    check_places(path, nop)
    check_operands(path, listed)
    return len(expected)


def list_json(path: Path) -> list[dict[str, Any]]:
    """What ``usdt list --json`` prints."""
    done = CliRunner().invoke(command, ["list", "--json", str(path)])
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def check_operands(path: Path, listed: list[dict[str, Any]]) -> None:
    """Each operand that is listed is understood; one that cannot be read says why."""
    for site in (site for probe in listed for site in probe["sites"]):
        assert len(site["operands"]) == len(OPERAND.findall(site["args"]))
        for operand in site["operands"]:
            assert operand["kind"] != "unknown", (path, site)
            if "error" in operand:
                assert HALF in operand["error"], (path, site)


def notes_in_order(path: Path) -> list[Row]:
    with ElfFile(path) as file:
        return [
            Row(one.provider, one.name, one.location, one.base, one.semaphore, one.args)
            for section in file.sections_named(".note.stapsdt")
            for one in parse_notes(
                file.contents(section), bits=file.bits, byteorder=file.byteorder
            ).notes
        ]


class Peer(ELFFile):
    """pyelftools, with segments parsed once: it parses all of them again for each address."""

    @functools.cached_property
    def _loaded(self) -> tuple[Any, ...]:
        return tuple(super().iter_segments("PT_LOAD"))

    def iter_segments(self, type: str | None = None) -> Iterator[Any]:  # noqa: A002 - its name
        return iter(self._loaded) if type == "PT_LOAD" else super().iter_segments(type)


def check_places(path: Path, nop: bytes) -> None:
    """Each site is a nop where pyelftools finds its address; each semaphore is there and 0."""
    with path.open("rb") as stream:
        peer = Peer(stream)
        for probe in read_probes(path).probes:
            for site in probe.sites:
                assert site.dead is None
                assert [site.offset] == list(peer.address_offsets(site.address))
                stream.seek(site.offset or 0)
                assert stream.read(len(nop)) == nop
                if site.semaphore:
                    assert [site.semaphore_offset] == list(peer.address_offsets(site.semaphore))
                    stream.seek(site.semaphore_offset)
                    assert stream.read(2) == b"\0\0"


@pytest.mark.parametrize(
    ("package", "least", "architecture"),
    [
        pytest.param(package, least, architecture, id=f"{package}-{architecture}")
        for package, least in PACKAGES
        for architecture in CPUS
        if (package, architecture) not in WITHOUT
    ],
)
def test_probes_of_debian_packages_are_those_readelf_prints(
    package: str, least: int, architecture: str
) -> None:
    suite, nop = CPUS[architecture]
    folder = debian.files(RENAMED.get(suite, {}).get(package, package), architecture, suite)
    assert sum(compare(path, nop) for path in with_notes(folder)) >= least


@functools.cache
def local_files() -> tuple[Path, ...]:
    found = {Path(sys.executable).resolve()}
    for pattern in LOCAL:
        found |= {path.resolve() for path in Path("/").glob(pattern)}
    return tuple(sorted(path for path in found if path.is_file() and mentions_notes(path)))


def test_probes_of_this_machine_are_those_readelf_prints() -> None:
    if not local_files():
        pytest.skip("needs a file with probes, python3 or libstdc++6 of Debian for example")
    for path in local_files():
        assert compare(path)


@pytest.mark.parametrize(
    "fmt", FORMATS, ids=[f"{fmt.bits} bits, {fmt.byteorder}" for fmt in FORMATS]
)
@pytest.mark.parametrize("padding", [4, 8])
def test_notes_made_here_are_what_readelf_takes_them_for(
    fmt: Format, padding: int, tmp_path: Path
) -> None:
    # That the writer of the other tests, which knows the format from us, is right about it.
    path = tmp_path / "file"
    data = b"".join(
        note(b"n" * count, b"8@%rax", location=0x400000 + count, fmt=fmt, padding=padding)
        for count in range(1, 10)
    )
    path.write_bytes(probe_elf(data, fmt=fmt, addralign=padding))
    expected = rows(path)
    assert [row.name for row in expected] == ["n" * count for count in range(1, 10)]
    assert [
        Row(probe.provider, probe.name, site.address, site.base, site.semaphore, site.args)
        for probe in read_probes(path).probes
        for site in probe.sites
    ] == expected


def test_a_moved_file_is_moved_by_the_base(tmp_path: Path) -> None:
    # No prelinked file is to be had any more; readelf prints what the note says.
    path = tmp_path / "file"
    path.write_bytes(probe_elf(note(base=0x400700, location=0x400010, semaphore=0x5FFF10)))
    (row,) = rows(path)
    assert (row.location, row.base, row.semaphore) == (0x400010, 0x400700, 0x5FFF10)
    (moved,) = adjusted(path, [row])
    (site,) = read_probes(path).probes[0].sites
    assert (site.address, site.semaphore) == (moved.location, moved.semaphore)
    assert (site.address, site.semaphore) == (0x400110, 0x600010)
