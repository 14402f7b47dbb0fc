"""Probes of a file: grouping, prelink adjustment, offsets, dead sites, semaphores."""

from __future__ import annotations

import gc
import json
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from elfwriter import (
    BASE,
    CODE,
    CODE_OFFSET,
    DATA,
    DATA_OFFSET,
    FORMATS,
    Format,
    Section,
    Segment,
    elf,
    note,
    patched,
    probe_elf,
    raw_note,
)

from usdt.base.errors import ElfError, TargetError
from usdt.elf.file import ElfFile
from usdt.probes import probe as probes_module
from usdt.probes.probe import FileProbes, Probe, Site, read_probes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Read = Callable[[bytes], FileProbes]

FORMAT_IDS = [f"{fmt.bits}-bit {fmt.byteorder}-endian" for fmt in FORMATS]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def save_and_read(data: bytes) -> FileProbes:
        path = tmp_path / "file.elf"
        path.write_bytes(data)
        return read_probes(path)

    return save_and_read


def only_site(found: FileProbes) -> Site:
    (probe,) = found.probes
    (site,) = probe.sites
    return site


@pytest.mark.parametrize("fmt", FORMATS, ids=FORMAT_IDS)
def test_a_probe_is_read_whatever_the_class_and_byte_order(fmt: Format, tmp_path: Path) -> None:
    path = tmp_path / "file.elf"
    data = note(b"gc", b"4@x", provider=b"py", location=CODE + 9, semaphore=DATA + 2, fmt=fmt)
    path.write_bytes(probe_elf(data, fmt=fmt, machine=183))
    site = Site(CODE + 9, CODE_OFFSET + 9, BASE, DATA + 2, DATA_OFFSET + 2, "4@x", None)
    machine = "aarch64" if fmt.byteorder == "little" else "aarch64_be"
    assert read_probes(path) == FileProbes(
        str(path),
        (Probe(str(path), "py", "gc", machine, fmt.bits, fmt.byteorder, (site,)),),
        (),
    )


def test_sites_of_one_name_are_one_probe_in_the_order_of_their_first_notes(read: Read) -> None:
    notes = [
        note(b"b", location=CODE + 1),
        note(b"a", location=CODE + 2),
        note(b"b", location=CODE + 3, provider=b"other"),
        note(b"b", location=CODE + 4, args=b"4@%eax"),
        note(b"b", location=CODE + 1),
    ]
    found = read(probe_elf(b"".join(notes)))
    assert [
        (probe.full_name, [site.address - CODE for site in probe.sites]) for probe in found.probes
    ] == [("prov:b", [1, 4, 1]), ("prov:a", [2]), ("other:b", [3])]
    assert [site.args for site in found.probes[0].sites] == ["", "4@%eax", ""]


def test_a_colon_in_a_name_does_not_mix_probes(read: Read) -> None:
    notes = note(b"b:c", provider=b"a") + note(b"c", provider=b"a:b")
    assert len(read(probe_elf(notes)).probes) == 2


def test_every_section_of_the_name_is_read(read: Read) -> None:
    found = read(probe_elf([note(b"a"), raw_note(b"GNU\0", 3, b""), note(b"b") + note(b"a")]))
    assert [(probe.name, len(probe.sites)) for probe in found.probes] == [("a", 2), ("b", 1)]


def test_a_file_without_probes_has_none(read: Read) -> None:
    found = read(elf([Section(b".text")]))
    assert (found.probes, found.warnings) == ((), ())


def test_a_file_without_probes_costs_no_look_at_its_sections(
    read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `usdt list -a` opens thousands of files, nearly all of them like this.
    def refuse(_: ElfFile) -> None:
        raise AssertionError("sections were decoded")

    monkeypatch.setattr(ElfFile, "sections", property(refuse))
    assert read(elf([Section(b".text")])).probes == ()
    with pytest.raises(AssertionError):
        read(probe_elf(note()))


def test_a_nameless_and_a_providerless_probe_are_listed(read: Read) -> None:
    found = read(probe_elf(note(b"", provider=b"p") + note(b"n", provider=b"")))
    assert [probe.full_name for probe in found.probes] == ["p:", ":n"]


# Prelink adjustment


@pytest.mark.parametrize(
    ("section", "base", "semaphore", "moved"),
    [
        pytest.param(BASE, BASE, DATA, 0, id="not moved"),
        pytest.param(BASE, BASE - 8, DATA, 8, id="moved up"),
        pytest.param(BASE, BASE + 8, DATA, -8, id="moved down"),
        pytest.param(BASE, BASE - 8, 0, 8, id="no semaphore stays none"),
        pytest.param(BASE, 0, DATA, 0, id="the note knows no base"),
        pytest.param(None, BASE - 8, DATA, 0, id="the file has no base section"),
        pytest.param(0, 8, DATA, -8, id="a base section at address 0"),
    ],
)
@pytest.mark.parametrize("fmt", FORMATS, ids=FORMAT_IDS)
def test_location_and_semaphore_follow_the_base(
    fmt: Format, section: int | None, base: int, *, semaphore: int, moved: int, read: Read
) -> None:
    location, semaphore = CODE + 0x20, semaphore and semaphore + 0x10
    data = note(location=location, base=base, semaphore=semaphore, fmt=fmt)
    site = only_site(read(probe_elf(data, fmt=fmt, base=section)))
    assert (site.address, site.offset) == (location + moved, CODE_OFFSET + 0x20 + moved)
    assert site.base == base
    assert site.semaphore == (semaphore and semaphore + moved)
    assert site.semaphore_offset == (semaphore and DATA_OFFSET + 0x10 + moved)
    assert site.dead is None


@pytest.mark.parametrize("fmt", FORMATS, ids=FORMAT_IDS)
def test_the_adjustment_wraps_at_the_word(fmt: Format, read: Read) -> None:
    top = 1 << fmt.bits
    # Up by CODE + 0x10, from an address that stands for a negative one.
    data = note(location=top - 4, base=1, semaphore=0, fmt=fmt)
    site = only_site(read(probe_elf(data, fmt=fmt, base=CODE + 0x10 + 1)))
    assert (site.address, site.offset, site.dead) == (CODE + 12, CODE_OFFSET + 12, None)


def test_a_site_that_the_linker_removed_is_not_moved(read: Read) -> None:
    site = only_site(read(probe_elf(note(location=0, base=BASE - 8))))
    assert (site.address, site.offset) == (0, None)


# Dead sites


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        pytest.param(0, "its address is 0: the linker removed the code around it", id="address 0"),
        pytest.param(DATA, f"address {DATA:#x} is not in an executable segment", id="in data"),
        pytest.param(
            DATA + 0x48, f"address {DATA + 0x48:#x} is in no segment loaded", id="in .bss"
        ),
        pytest.param(CODE + 0x100, f"address {CODE + 0x100:#x} is in no segment", id="behind"),
        pytest.param(2**64 - 1, "address 0xffffffffffffffff is in no segment", id="wild"),
    ],
)
def test_a_dead_site_is_listed_with_the_reason_beside_living_ones(
    location: int, reason: str, read: Read
) -> None:
    found = read(probe_elf(note(location=location) + note(location=CODE)))
    dead, alive = found.probes[0].sites
    assert (dead.address, dead.offset) == (location, None)
    assert dead.dead is not None
    assert dead.dead.startswith(reason)
    assert (alive.offset, alive.dead) == (CODE_OFFSET, None)
    assert found.warnings == ()


def test_sites_of_an_object_file_are_dead(read: Read) -> None:
    found = read(probe_elf(note(location=0x10) + note(b"b", location=0), kind=1, segments=[]))
    for probe in found.probes:
        assert probe.sites[0].offset is None
        assert "relocatable object" in (probe.sites[0].dead or "")


def test_sites_of_a_separate_debug_file_are_dead(read: Read) -> None:
    data = patched(probe_elf(note(semaphore=DATA)), section=(1, {"type": 8}))
    found = read(data)
    assert "separate debug information" in (only_site(found).dead or "")
    assert found.warnings == ()


# Semaphores


@pytest.mark.parametrize(
    ("semaphore", "reason"),
    [
        pytest.param(DATA + 0x44, "is in no segment loaded from the file", id="in .bss"),
        pytest.param(CODE + 2, "is not writable", id="in code"),
        pytest.param(7, "is in no segment loaded from the file", id="nowhere"),
    ],
)
def test_a_semaphore_that_cannot_be_raised_is_a_warning(
    semaphore: int, reason: str, read: Read
) -> None:
    found = read(probe_elf(note(semaphore=semaphore)))
    site = only_site(found)
    assert (site.semaphore, site.semaphore_offset) == (semaphore, 0)
    assert (site.offset, site.dead) == (CODE_OFFSET + 0x10, None)
    (warning,) = found.warnings
    assert warning.startswith(f"{found.path}: semaphore {semaphore:#x} of prov:name {reason}")


def test_a_shared_semaphore_is_complained_about_once(read: Read) -> None:
    found = read(probe_elf(note(semaphore=7) * 3 + note(b"b", semaphore=7)))
    assert len(found.warnings) == 1


def test_many_bad_semaphores_are_counted(read: Read) -> None:
    count = probes_module.MAX_WARNINGS + 4
    found = read(probe_elf(b"".join(note(semaphore=number + 1) for number in range(count))))
    assert len(found.warnings) == probes_module.MAX_WARNINGS + 1
    assert found.warnings[-1].endswith(": 4 more semaphores cannot be used")


def test_each_site_keeps_its_own_semaphore(read: Read) -> None:
    found = read(probe_elf(note(semaphore=DATA + 2) + note(semaphore=DATA + 4) + note()))
    offsets = [site.semaphore_offset for site in found.probes[0].sites]
    assert offsets == [DATA_OFFSET + 2, DATA_OFFSET + 4, 0]


def test_a_semaphore_may_be_in_a_segment_that_is_executable_too(read: Read) -> None:
    segments = [Segment(1, 7, CODE_OFFSET, CODE, 0x100)]
    site = only_site(read(probe_elf(note(semaphore=CODE + 0x80), segments=segments)))
    assert site.semaphore_offset == CODE_OFFSET + 0x80


# Sections that hold no notes


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(
            probe_elf(note(), section_type=1), "its type is 1, expected SHT_NOTE", id="PROGBITS"
        ),
        pytest.param(
            probe_elf(note(), section_type=8), "its type is 8, expected SHT_NOTE", id="NOBITS"
        ),
        pytest.param(
            patched(probe_elf(note()), section=(3, {"flags": 1 << 11})),
            "compressed",
            id="compressed",
        ),
        pytest.param(
            patched(probe_elf(note()), section=(3, {"size": 1 << 62})), "truncated", id="too large"
        ),
        pytest.param(
            patched(probe_elf(note()), section=(3, {"offset": 2**64 - 8})),
            "truncated",
            id="far off",
        ),
    ],
)
def test_a_section_that_cannot_be_read_is_a_warning(data: bytes, reason: str, read: Read) -> None:
    found = read(data)
    assert found.probes == ()
    (warning,) = found.warnings
    assert warning.startswith(f"{found.path}: section .note.stapsdt skipped: ")
    assert reason in warning


def test_damage_within_a_section_names_the_file_and_the_place(read: Read) -> None:
    found = read(probe_elf([note(b"a") + b"\1\2\3", note(b"b")]))
    assert [probe.name for probe in found.probes] == ["a", "b"]
    (warning,) = found.warnings
    assert warning == (
        f"{found.path}: section .note.stapsdt, offset {len(note(b'a')):#x}: truncated:"
        " a note's header needs 12 bytes, the section has 3 left"
    )


def test_sections_that_all_claim_the_same_bytes_are_not_read_again_and_again(read: Read) -> None:
    # 200 headers over one large section would be the work of 200 files.
    data = probe_elf([note() * 1000, *([b""] * 200)])
    same = {"offset": data.index(note()), "size": len(note() * 1000)}
    for index in range(4, 204):
        data = patched(data, section=(index, same))
    found = read(data)
    assert len(found.probes[0].sites) <= len(data) // len(note())
    assert found.warnings[0].endswith("skipped: it overlaps others of that name")


def test_a_section_padded_to_eight_is_read(read: Read) -> None:
    notes = b"".join(note(b"n%d" % index, b"8@%rax", padding=8) for index in range(3))
    found = read(probe_elf(notes, addralign=8))
    assert [probe.name for probe in found.probes] == ["n0", "n1", "n2"]
    assert found.warnings == ()


# Paths


def test_the_path_shown_may_differ_from_the_one_opened(tmp_path: Path) -> None:
    path = tmp_path / "real"
    path.write_bytes(probe_elf(note(semaphore=7)))
    found = read_probes("/usr/bin/shown", open_path=path)
    assert found.path == "/usr/bin/shown"
    assert found.probes[0].path == "/usr/bin/shown"
    assert found.warnings[0].startswith("/usr/bin/shown: ")
    path.write_bytes(b"x")
    with pytest.raises(ElfError, match=r"^/usr/bin/shown: not an ELF file"):
        read_probes("/usr/bin/shown", open_path=path)


def test_a_missing_file_is_a_target_error(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="cannot be opened"):
        read_probes(tmp_path / "missing")


def test_100_000_notes_are_grouped_in_one_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # bcc needs a minute for four times as many. A note is looked up in the segments at most twice.
    calls = 0
    original = ElfFile.offset_of

    def counted(
        self: ElfFile, address: int, *, executable: bool, writable: bool = False
    ) -> int | None:
        nonlocal calls
        calls += 1
        return original(self, address, executable=executable, writable=writable)

    monkeypatch.setattr(ElfFile, "offset_of", counted)
    path = tmp_path / "large.elf"
    notes = (
        note(b"n%d" % (index % 1000), b"8@%rax", location=CODE + index % 256, semaphore=DATA)
        for index in range(100_000)
    )
    path.write_bytes(probe_elf(b"".join(notes)))
    found = read_probes(path)
    assert len(found.probes) == 1000
    assert {len(probe.sites) for probe in found.probes} == {100}
    assert calls == 100_000 + 1
    assert gc.isenabled()  # it pauses meanwhile


# JSON


def test_json_has_exactly_the_keys_of_the_contract(read: Read) -> None:
    pytest.importorskip("usdt.probes.argspec")
    found = read(probe_elf(note(b"n", b"-4@%eax 8@%rdi", semaphore=DATA)))
    shown = json.loads(json.dumps(found.probes[0].to_json()))
    (site,) = shown.pop("sites")
    assert shown == {"path": found.path, "provider": "prov", "name": "n", "machine": "x86_64"}
    operands = site.pop("operands")
    assert site == {
        "address": CODE + 0x10,
        "offset": CODE_OFFSET + 0x10,
        "base": BASE,
        "semaphore": DATA,
        "semaphore_offset": DATA_OFFSET,
        "args": "-4@%eax 8@%rdi",
    }
    assert [(one["kind"], one["size"], one["type"], one["register"]) for one in operands] == [
        ("register", 4, "signed", "eax"),
        ("register", 8, "unsigned", "rdi"),
    ]


@pytest.mark.parametrize("args", [b"", b":", b":8@%rax"])
def test_a_site_without_arguments_has_no_operands(args: bytes, read: Read) -> None:
    pytest.importorskip("usdt.probes.argspec")
    probe = read(probe_elf(note(args=args))).probes[0]
    assert probe.operands(probe.sites[0]) == ()


def test_a_dead_site_has_no_offset_in_json(read: Read) -> None:
    pytest.importorskip("usdt.probes.argspec")
    shown = read(probe_elf(note(location=0))).probes[0].to_json()
    assert shown["sites"][0]["offset"] is None


# What a compiler makes

SOURCE = """
#include <sys/sdt.h>
#define SEMAPHORE(name) unsigned short name##_semaphore __attribute__((section(".probes")))
#ifdef _SDT_HAS_SEMAPHORES
SEMAPHORE(demo_twice); SEMAPHORE(demo_once); SEMAPHORE(demo_bare);
#endif
int twice(int x) { STAP_PROBE1(demo, twice, x); x *= 3; STAP_PROBE1(demo, twice, x); return x; }
int once(long *p) { STAP_PROBE2(demo, once, p, *p); STAP_PROBE(demo, bare); return *p; }
"""


def compiled(tmp_path: Path, *options: str) -> Path:
    compiler = shutil.which("gcc")
    if not compiler:
        pytest.skip("needs the program gcc")
    source = tmp_path / "demo.c"
    source.write_text(SOURCE)
    check = [compiler, "-E", "-x", "c", "-", "-o", "/dev/null"]
    if subprocess.run(
        check, input=b"#include <sys/sdt.h>\n", capture_output=True, check=False
    ).returncode:
        pytest.skip("needs <sys/sdt.h>: apt-get install systemtap-sdt-dev")
    built = tmp_path / "demo.so"
    subprocess.run([compiler, "-O2", *options, "-o", built, source], check=True)
    return built


def test_probes_of_a_real_compiler_are_on_their_nops(tmp_path: Path) -> None:
    built = compiled(tmp_path, "-shared", "-fPIC", "-D_SDT_HAS_SEMAPHORES")
    found = read_probes(built)
    assert found.warnings == ()
    assert {probe.full_name: len(probe.sites) for probe in found.probes} == {
        "demo:twice": 2,
        "demo:once": 1,
        "demo:bare": 1,
    }
    contents = built.read_bytes()
    nop = {"x86_64": b"\x90", "i386": b"\x90", "aarch64": b"\x1f\x20\x03\xd5"}
    for probe in found.probes:
        for site in probe.sites:
            assert site.dead is None
            assert site.offset is not None
            if probe.machine in nop:
                assert contents[site.offset :].startswith(nop[probe.machine])


def test_probes_of_an_object_file_are_dead_not_an_error(tmp_path: Path) -> None:
    found = read_probes(compiled(tmp_path, "-c"))
    assert sum(len(probe.sites) for probe in found.probes) == 4
    assert all("relocatable" in (site.dead or "") for probe in found.probes for site in probe.sites)


def test_a_debug_file_made_by_objcopy_is_recognised(tmp_path: Path) -> None:
    built = compiled(tmp_path, "-shared", "-fPIC", "-g")
    objcopy = shutil.which("objcopy")
    if not objcopy:
        pytest.skip("needs the program objcopy: apt-get install binutils")
    debug = tmp_path / "demo.debug"
    subprocess.run([objcopy, "--only-keep-debug", built, debug], check=True)
    for probe in read_probes(debug).probes:
        assert all("separate debug" in (site.dead or "") for site in probe.sites)
    subprocess.run(["strip", "--strip-all", built], check=True)
    assert len(read_probes(built).probes) == 3
