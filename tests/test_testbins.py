"""The programs of testbins/ do what other tests take for granted: print, wait, hold shapes."""

from __future__ import annotations

import functools
import json
import math
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import fixtures
import pytest
from fixtures import CROSS, FIXTURES, PROGRAMS, build, cross, run, start
from skips import need_program

# Providers that are others' than the program's own: -static brings the C++ library's along.
_FOREIGN = {"libstdcxx", "libc", "rtld", "libm", "libpthread"}

# Noted, but not hit when nobody traces: guarded by a semaphore, by an option, or nowhere.
_SILENT = {
    "sema_shared:guarded",
    "sema_each:guarded",
    "forker:sharing",
    "oddnotes:dead",
    "oddnotes:in_data",
}

_EVERY = pytest.mark.parametrize(
    ("variant", "program"), [pytest.param(*pair, id="/".join(pair)) for pair in FIXTURES]
)
_NOTE = re.compile(
    r"^    Provider: (?P<provider>.*)\n    Name: (?P<name>.*)\n"
    r"    Location: (?P<location>0x[0-9a-f]+), "
    r"Base: 0x[0-9a-f]+, Semaphore: (?P<semaphore>0x[0-9a-f]+)\n"
    r"    Arguments: (?P<args>.*)$",
    re.MULTILINE,
)


@functools.cache
def notes(path: Path) -> tuple[dict[str, str], ...]:
    """The probe notes of a file as readelf has them: provider, name, location, semaphore, args."""
    text = subprocess.run(
        [need_program("readelf", "binutils"), "--notes", "--wide", str(path)],
        capture_output=True,
        check=True,
        timeout=100,
    ).stdout.decode(errors="surrogateescape")
    # readelf --wide joins the header line of each note with the next one.
    text = text.replace("\t    Provider: ", "\n    Provider: ")
    return tuple(match.groupdict() for match in _NOTE.finditer(text))


def by_name(hits: list[dict[str, Any]]) -> dict[str, list[list[Any]]]:
    """The arguments of all hits, by probe."""
    found: dict[str, list[list[Any]]] = {}
    for hit in hits:
        found.setdefault(hit["probe"], []).append(hit["args"])
    return found


def _count(args: str) -> int:
    # x86 operands have no blanks inside; a text that begins with a colon stands for no arguments
    return 0 if args.startswith(":") else len(args.split())


def files_of(variant: str, program: str) -> list[Path]:
    """A program and the library that it fires probes of."""
    path = build(variant, program)
    return [path, *path.parent.glob({"dlopened": "libplugin.so"}.get(program, f"{program}.so"))]


def test_the_table_of_programs_is_the_makefiles() -> None:
    make = need_program("make")
    listed = subprocess.run(
        [make, "--no-print-directory", "-C", str(fixtures.TESTBINS), "list"],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
        env={"PATH": os.environ["PATH"]},
    ).stdout.split()
    assert {f"{variant}/{program}" for variant, program in FIXTURES} == {
        pair for pair in listed if not pair.endswith(".so")
    }


@_EVERY
def test_prints_what_it_fires_and_notes_what_it_prints(variant: str, program: str) -> None:
    hits = run(build(variant, program), "-n", 2, *(["args"] if program == "execer" else [])).hits
    own = [hit for hit in hits if program != "execer" or not hit["probe"].startswith("args:")]
    assert own
    assert all(set(hit) == {"probe", "pid", "tid", "args"} for hit in own)
    if program == "oddnames":  # readelf's text cannot hold line feeds
        return
    noted = {
        f"{note['provider']}:{note['name']}": _count(note["args"])
        for path in files_of(variant, program)
        for note in notes(path)
        if note["provider"] not in _FOREIGN
    }
    fired = {hit["probe"]: len(hit["args"]) for hit in own if "libstdcxx" not in hit["probe"]}
    assert fired == {probe: count for probe, count in noted.items() if probe not in _SILENT}


@pytest.mark.parametrize("variant", ["default", "O0", "m32", "m32O0"])
@pytest.mark.parametrize(
    ("probe", "least", "greatest"),
    [
        pytest.param("i8", -(2**7), 2**7 - 1, id="signed 8 bits"),
        pytest.param("u8", 0, 2**8 - 1, id="unsigned 8 bits"),
        pytest.param("i16", -(2**15), 2**15 - 1, id="signed 16 bits"),
        pytest.param("u16", 0, 2**16 - 1, id="unsigned 16 bits"),
        pytest.param("i32", -(2**31), 2**31 - 1, id="signed 32 bits"),
        pytest.param("u32", 0, 2**32 - 1, id="unsigned 32 bits"),
        pytest.param("i64", -(2**63), 2**63 - 1, id="signed 64 bits"),
        pytest.param("u64", 0, 2**64 - 1, id="unsigned 64 bits"),
        pytest.param("plain_bool", 0, 1, id="bool"),
        pytest.param("plain_char", -(2**7), 2**7 - 1, id="char"),
    ],
)
def test_integers_reach_both_ends_of_their_type(
    variant: str, probe: str, least: int, greatest: int
) -> None:
    first, second = by_name(run(build(variant, "ints"), "-n", 2).hits)[f"ints:{probe}"]
    ones = greatest if least == 0 else -1  # what -1 is in the type
    assert first[1:] == second[1:] == [least, greatest, ones, least, greatest]
    assert first[0] != second[0]


def test_every_round_has_values_of_its_own() -> None:
    hits = by_name(run(build("default", "args"), "-n", 3).hits)
    assert hits["args:count12"] == [[100 * n + i for i in range(1, 13)] for n in range(3)]
    assert hits["args:count0"] == [[], [], []]


def test_floats_keep_their_sign_and_kind() -> None:
    hits = by_name(run(build("default", "floats")).hits)
    assert hits["floats:infinite64"] == [[math.inf, -math.inf]]
    nan, minus_zero = hits["floats:special64"][0]
    assert math.isnan(nan)
    assert math.copysign(1, minus_zero) == -1
    assert all(type(value) is float for value in hits["floats:const64"][0])


def test_strings_are_any_bytes() -> None:
    hits = by_name(run(build("default", "strings")).hits)
    texts = [args[0]["str"].encode(errors="surrogateescape") for args in hits["strings:bytes"]]
    assert texts[0] == b"\xff\xfe not UTF-8 \x80"
    assert texts[2].decode() == "na\xefve \u20ac \U0001f40d"
    assert b"\xed\xa0\x80 surrogate" in texts
    assert b"line\nfeed\ttab\r\x1b[31mred\x7f" in texts
    lengths = [(len(text["str"]), length) for text, length in hits["strings:long"]]
    assert [a for a, _ in lengths] == [b for _, b in lengths]
    assert max(lengths) == (5000, 5000)
    assert [args[0]["ptr"] for args in hits["strings:null"]] == [0]
    assert all(args[0]["str"] is None for args in hits["strings:bad"])


@pytest.mark.parametrize("variant", ["default", "static", "stripped", "m32"])
def test_untouched_pages_are_not_resident_when_the_probe_fires(variant: str) -> None:
    hits = by_name(run(build(variant, "strings"), "-n", 70).hits)
    pages = [args[0] for args in hits["strings:untouched"]]
    assert len({page["ptr"] for page in pages}) == 64
    for probe in ("untouched", "untouched_data", "untouched_crossing", "untouched_half"):
        assert not any(args[0]["resident"] for args in hits[f"strings:{probe}"])


@pytest.mark.parametrize(
    ("variant", "program", "shape"),
    [
        pytest.param("default", "sib", r"-4@\(%r\w+,%r\w+,4\)", id="base, index and scale"),
        pytest.param("default", "sib", r"-1@\(%r\w+,%r\w+\)", id="index without a scale"),
        pytest.param("default", "sib", r"-4@4\(%r\w+,%r\w+,8\)", id="displaced element"),
        pytest.param("nopie", "sib", r"-4@ints\(,%r\w+,4\)", id="array's name for a base"),
        pytest.param("nopie", "sib", r"-1@bytes\(%r\w+\)", id="array's name and one register"),
        pytest.param("nopie", "sib", r"2@shorts\((%r\w+),\1\)", id="name, base and index"),
        pytest.param("nopie", "sib", r"-4@pairs\+4\(,%r\w+,8\)", id="name and sum, no base"),
        pytest.param("m32", "sib", r"-4@\(%e\w+,%e\w+,4\)", id="32-bit base, index and scale"),
        pytest.param("default", "globals", r"-4@g_int\(%rip\)", id="symbol by rip"),
        pytest.param("default", "globals", r"-2@10\+g_array\(%rip\)", id="number before symbol"),
        pytest.param("nopie", "globals", r"-2@g_array\+10\(%rip\)", id="number after symbol"),
        pytest.param("default", "globals", r"-4@counter\.\d+\(%rip\)", id="symbol with a dot"),
        pytest.param("m32", "globals", r"-4@g_int@GOTOFF\(%e\w+\)", id="GOTOFF"),
        pytest.param("m32nopie", "globals", r"-4@g_int(?: |$)", id="bare symbol"),
        pytest.param("default", "tls", r"-4@%fs:t_int@tpoff", id="64-bit thread-local"),
        pytest.param("nopie", "tls", r"-2@%fs:t_array@tpoff\+6", id="thread-local and sum after"),
        pytest.param("default", "tls", r"-2@%fs:6\+t_array@tpoff", id="thread-local, sum before"),
        pytest.param("m32", "tls", r"-4@%gs:t_int@ntpoff", id="32-bit thread-local"),
        pytest.param("default", "floats", r"4f@\.LC\d+\(%rip\)", id="float constant"),
        pytest.param("default", "floats", r"8f@%r\w+", id="double in a general register"),
        pytest.param("m32nopie", "floats", r"4f@\.LC\d+(?: |$)", id="32-bit float constant"),
        pytest.param("m32nopie", "floats", r"8f@%e\w+", id="double in half a register pair"),
        pytest.param("default", "structs", r"16@(?:\d+)?\(%rsp\)", id="structure on the stack"),
        pytest.param("default", "structs", r"24@(?:\d+)?\(%rsp\)", id="structure of 24 bytes"),
        pytest.param("default", "structs", r"5@value5\(%rip\)", id="structure of 5 bytes"),
        pytest.param("O0", "ints", r"-16@%r\w+", id="128 bits in half a register pair"),
        pytest.param("O0", "ints", r"-4@-\d+\(%rbp\)", id="local by rbp"),
        pytest.param("default", "consts", r"8@\$-1(?: |$)", id="greatest unsigned as -1"),
        pytest.param("default", "consts", r"-8@\$-9223372036854775808", id="least constant"),
        pytest.param("default", "ints", r"-1@%\w+b", id="low byte of a numbered register"),
        pytest.param("default", "ints", r"1@%bpl", id="low byte that needs REX"),
        pytest.param("m32", "ints", r"-1@%e\w+", id="register wider than the value"),
        pytest.param("m32", "ints", r"-8@%e\w+", id="64 bits in half a register pair"),
        *(
            pytest.param("default", "regs", shape, id=name)
            for name, shape in {
                "high byte a": "1@%ah",
                "high byte b": "-1@%bh",
                "high byte c": "1@%ch",
                "high byte d": "-1@%dh",
                "every numbered register": r"8@%r15 -8@%r15 4@%r15d -4@%r15d 2@%r15w .* 1@%r15b",
                "byte of rsi": "1@%sil",
                "stack pointer": "8@%rsp",
                "greatest constant": r"8@\$18446744073709551615",
                "no size": r"(?:^| )%rdi",
                "no size in memory": r"(?:^| )\(%rbx\)",
                "sum of displacements": r"-4@-8\+3\+1\+4\(%rbx\)",
                "no base": r"8@\(,%rdx,8\)",
                "sum around a symbol": r"8@24\+regs_data-8\(%rip\)",
                "thread-local": r"8@%fs:regs_tls@tpoff",
                "segment and register": r"-8@%fs:8\(%rdi\)",
                "xmm": r"8f@%xmm0",
                "16 bytes on the stack": r"16@\(%rsp\)",
                "more than 12": r"4@\$0 (?:4@\$\d+ ){14}4@\$15",
            }.items()
        ),
        pytest.param("nopie", "regs", r"-8@8\+regs_data\(,%rcx,8\)", id="named index by hand"),
        pytest.param("m32", "regs", r"8@%eax", id="pair by hand"),
    ],
)
def test_the_compiler_still_chooses_this_operand(variant: str, program: str, shape: str) -> None:
    texts = [note["args"] for note in notes(build(variant, program))]
    assert any(re.search(shape, text) for text in texts), "\n".join(sorted(set(texts)))


def test_inlined_sites_are_many_and_differ() -> None:
    found = notes(build("default", "inline"))
    assert len({note["location"] for note in found}) == len(found) == 320
    assert len({note["args"] for note in found}) > 300


def test_generated_sites_are_ten_thousand_and_differ() -> None:
    found = notes(build("default", "many10k"))
    assert len({note["location"] for note in found}) == len(found) == 10_000
    assert len({note["args"] for note in found}) > 9_000
    assert len({note["name"] for note in found}) == 100


@pytest.mark.parametrize("variant", ["default", "nopie", "m32"])
def test_semaphores_are_shared_or_one_for_each_site(variant: str) -> None:
    shared = notes(build(variant, "sema_shared"))
    guarded = [note["semaphore"] for note in shared if note["name"] == "guarded"]
    assert len(guarded) == 3
    assert len(set(guarded)) == 1
    each = notes(build(variant, "sema_each"))
    guarded = [note["semaphore"] for note in each if note["name"] == "guarded"]
    assert len(set(guarded)) == 5
    assert all(int(note["semaphore"], 16) for note in (*shared, *each))


def test_one_probe_in_a_program_and_its_library() -> None:
    found = [notes(path) for path in files_of("default", "libpair")]
    assert len(found) == 2
    assert all("both" in {note["name"] for note in file} for file in found)
    both = by_name(run(build("default", "libpair")).hits)["libpair:both"]
    assert [args[1]["str"] for args in both] == ["program", "library"]


def test_a_static_name_in_two_files_is_two_symbols() -> None:
    path = build("default", "globals")
    symbols = subprocess.run(
        [need_program("readelf", "binutils"), "--symbols", "--wide", str(path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    ).stdout
    assert len(re.findall(r" twin$", symbols, re.MULTILINE)) == 2


def test_stripped_programs_have_notes_and_no_symbols() -> None:
    path = build("stripped", "globals")
    assert notes(path) == notes(build("default", "globals"))
    text = subprocess.check_output(["readelf", "--sections", "--wide", str(path)], timeout=100)
    assert b" .symtab " not in text


def test_odd_names_reach_the_file_as_bytes() -> None:
    content = build("default", "oddnames").read_bytes()
    probes = {hit["probe"] for hit in run(build("default", "oddnames")).hits}
    assert {"oddnames:", ":no_provider", "odd:names:name", "oddnames:line\nfeed"} <= probes
    for probe in probes - {"oddnames:", ":no_provider", "odd:names:name", "oddnames:colon:colon"}:
        provider, _, name = probe.partition(":")
        note = b"\0".join(word.encode(errors="surrogateescape") for word in (provider, name))
        assert note + b"\0" in content, probe


def test_waits_before_it_fires_and_before_it_ends() -> None:
    with start(build("default", "args"), "-w") as program:
        program.wait_ready()
        assert not program.hits
        assert program.lines == [f"ready {program.pid}"]
        first = program.fire()
        assert first == len(program.hits)
        assert program.fire() == 2 * first
        assert program.process.poll() is None
        assert len(program.finish()) == 2 * first


def test_fires_at_the_end_of_its_input_too() -> None:
    done = subprocess.run(
        [build("default", "args"), "-w"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=100,
    )
    lines = done.stdout.splitlines()
    assert lines[0].startswith(b"ready ")
    assert lines[-1] == b"done %d" % (len(lines) - 2)


def test_is_gone_when_the_block_ends() -> None:
    with start(build("default", "forker"), "-w") as program:
        program.wait_ready()
    assert program.process.returncode == -9


def test_a_missing_line_is_told_instead_of_waited_for() -> None:
    with (
        start(build("default", "args")) as program,
        pytest.raises(AssertionError, match="'ready' awaited, program ended"),
    ):
        program.wait_ready()


def test_quiet_counts_without_a_word() -> None:
    program = run(build("default", "args"), "-q", "-e", "-n", 7)
    assert not program.hits
    per_round = len(run(build("default", "args")).hits)
    assert program.results == [{"hits": 7 * per_round}]


def test_sleeps_between_rounds() -> None:
    began = time.monotonic()
    run(build("default", "consts"), "-n", 3, "-s", 100_000)
    assert time.monotonic() - began >= 0.2


def test_loop_measures_itself() -> None:
    (result,) = run(build("default", "loop"), "-n", 1_000_000, "-q").results
    assert result["hits"] == 1_000_000
    assert 0 < result["ns_per_hit"] < 1000


def test_each_thread_fires_under_its_own_id() -> None:
    program = run(build("default", "threads"), "-t", 8, "-n", 5)
    hits = [hit for hit in program.hits if hit["probe"] == "threads:hit"]
    assert len(hits) == 40
    assert all(hit["tid"] == hit["args"][2] for hit in hits)
    assert len({hit["tid"] for hit in hits}) == 8
    assert {hit["pid"] for hit in program.hits} == {program.pid}


def test_children_and_grandchildren_fire() -> None:
    program = run(build("default", "forker"), "-c", 2)
    found = {hit["probe"]: hit["pid"] for hit in program.hits}
    assert len(set(found.values())) == 3
    assert found["forker:parent"] == program.pid
    forked = [hit["args"][0] for hit in program.hits if hit["probe"] == "forker:forked"]
    assert found["forker:child"] in forked


def test_becomes_another_program_under_the_same_pid() -> None:
    program = run(build("default", "execer"), build("default", "consts"), "-n", 2)
    assert {hit["probe"].split(":")[0] for hit in program.hits} == {"execer", "consts"}
    assert {hit["pid"] for hit in program.hits} == {program.pid}


def test_a_plugin_comes_and_goes_on_request() -> None:
    def mapped(pid: int) -> bool:
        return "libplugin.so" in Path(f"/proc/{pid}/maps").read_text()

    with start(build("default", "dlopened"), "-w") as program:
        program.wait_ready()
        assert not mapped(program.pid)
        program.send("open")
        program.wait_line("opened")
        assert mapped(program.pid)
        program.fire()
        program.send("close")
        program.wait_line("closed")
        assert not mapped(program.pid)
        assert {"plugin:hit", "plugin:counter"} <= {hit["probe"] for hit in program.finish()}


@pytest.mark.parametrize("program", ["sema_shared", "sema_each", "libpair"])
def test_semaphores_are_told_on_request(program: str) -> None:
    with start(build("default", program), "-w") as fixture:
        state = fixture.wait_ready().state()
        assert not any(value for values in state.values() for value in values)


def test_the_generator_makes_what_it_is_asked_for() -> None:
    generator = fixtures.TESTBINS / "gen_sites.py"
    text = subprocess.check_output(
        [need_program("python3"), str(generator), "--sites", "7", "--names", "3"],
        text=True,
        timeout=100,
    )
    assert len(re.findall(r"STAP_PROBE2\(many10k, p[012], ", text)) == 7


def test_a_variant_that_cannot_be_built_names_what_it_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setattr(fixtures, "_built", fixtures._built.__wrapped__)
    monkeypatch.setattr(fixtures, "_missing", fixtures._missing.__wrapped__)
    with pytest.raises(pytest.skip.Exception, match=r"default needs gcc .*no-such-compiler"):
        build("default", "args")


def test_a_program_is_made_again_after_a_change_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fixtures, "TESTBINS", tmp_path)
    monkeypatch.setattr(fixtures, "_last_change", fixtures._last_change.__wrapped__)
    monkeypatch.delenv("CC", raising=False)
    source, program = tmp_path / "args.c", tmp_path / "args"
    source.touch()
    assert not fixtures.is_current(program, sources=tmp_path)
    (tmp_path / "folder").mkdir()
    program.touch()
    os.utime(source, (1, 1))
    os.utime(program, (2, 2))
    sources = tmp_path / "folder"
    assert fixtures.is_current(program, sources=sources)
    (sources / "more.c").touch()
    assert not fixtures.is_current(program, sources=sources)
    (sources / "more.c").unlink()
    os.utime(source, (3, 3))
    assert not fixtures.is_current(program, sources=sources)


@pytest.mark.parametrize("cpu", CROSS)
def test_every_program_is_there_for_every_cpu(cpu: str) -> None:
    made = {(path.parent.name, path.name) for path in cross(cpu)}
    for variant in ("default", "O0"):
        names = {name for found, name in made if found == variant and ".so" not in name}
        assert names >= set(PROGRAMS["O0"])
    machines = {notes_machine(path) for path in cross(cpu)}
    assert len(machines) == 1
    assert machines != {notes_machine(build("default", "args"))}


def notes_machine(path: Path) -> str:
    """What readelf calls a file's CPU."""
    header = subprocess.run(
        [need_program("readelf", "binutils"), "--file-header", str(path)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return header.partition("Machine:")[2].partition("\n")[0].strip()


def test_json_has_one_line_for_each_hit() -> None:
    out = subprocess.check_output(
        [build("default", "threads"), "-t", "4", "-n", "200"], timeout=100
    )
    assert all(json.loads(line) for line in out.splitlines())
    assert len(out.splitlines()) == 1000
