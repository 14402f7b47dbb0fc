"""Debug information that cannot be believed: an error of one line, in good time."""

from __future__ import annotations

import gc
import os
import random
import time
from typing import TYPE_CHECKING

import pytest
from debug_programs import CXX_SOURCE, assembled, compiled

from usdt.base.errors import TracingError
from usdt.btf.dump.c_dump import definition
from usdt.dwarf.info import DebugInfo
from usdt.elf.file import ElfFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_SECONDS = 10  # of one file; they take hundredths, but machines are busy
_MOST_TYPES = 300


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/nowhere")


@pytest.fixture
def uncollected() -> Iterator[None]:
    """No garbage collection: every file must be closed without it."""
    gc.disable()
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - it opens none that stays
    yield
    after = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    gc.enable()
    assert after == before


def attempts(info: DebugInfo) -> Iterator[Callable[[], object]]:
    """Everything that can be asked."""
    yield lambda: list(info.functions())
    yield lambda: [info.function(address) for address, *_ in info._index.functions()]
    yield lambda: [info.btf.id_of(die) for *_, die in info._names("")]
    for number in range(1, _MOST_TYPES):
        if number < info.btf.end:
            yield lambda number=number: info.btf.resolve(number)
            yield lambda number=number: info.btf.size_of(number)
            yield lambda number=number: info.btf.align_of(number)
            yield lambda number=number: info.type_text(number, "c++")
            yield lambda number=number: info.type_text(number, "rust")
            yield lambda number=number: definition(info.btf, number)
    for name in ("struct node", "node_t", "shop::Toy", "nothing"):
        yield lambda name=name: info.type_id(name)


def exercise(elf: ElfFile) -> list[str]:
    """What was refused."""
    refused = []
    try:
        info = DebugInfo.of(elf)
    except TracingError as err:
        return [str(err)]
    if info is None:
        return []
    with info:
        for attempt in attempts(info):
            try:
                attempt()
            except TracingError as err:
                refused.append(str(err))
    return refused


_WORDS = (b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\0", b"\x80\x80\x80\x80")


def mutated(data: bytes, places: list[tuple[int, int]], chance: random.Random) -> bytes:
    """A copy with some bytes of its debug sections changed."""
    made = bytearray(data)
    for _ in range(chance.choice((1, 2, 5, 30))):
        start, size = chance.choice(places[:2] if chance.random() < 0.8 else places)
        at = start + chance.randrange(size)
        way = chance.random()
        if way < 0.5:
            made[at] = chance.randrange(256)
        elif way < 0.8:
            word = chance.choice(_WORDS)[: start + size - at]
            made[at : at + len(word)] = word
        else:
            length = min(chance.randrange(1, 64), start + size - at)
            source = start + chance.randrange(size - length + 1)
            made[at : at + length] = data[source : source + length]
    return bytes(made)


@pytest.mark.parametrize(
    ("compiler", "options", "rounds"),
    [
        pytest.param("gcc", ("-gdwarf-5",), 60, id="gcc, DWARF 5"),
        pytest.param("gcc", ("-gdwarf-4", "-fdebug-types-section"), 40, id="gcc, .debug_types"),
        pytest.param("clang", ("-gdwarf-5", "-O2"), 60, id="clang, DWARF 5"),
        pytest.param("g++", ("-gdwarf-5",), 6, id="g++, DWARF 5"),
    ],
)
def test_changed_bytes_give_errors_of_one_line(
    tmp_path: Path, compiler: str, options: tuple[str, ...], rounds: int
) -> None:
    source = {"source": CXX_SOURCE} if compiler == "g++" else {}
    program = compiled(tmp_path, compiler, *options, **source)
    data = program.read_bytes()
    with ElfFile(program) as elf:
        assert not [one for one in exercise(elf) if "no type" not in one and "size" not in one]
        places = {
            one.name: (one.offset, one.size) for one in elf.sections if one.name[:6] == ".debug"
        }
    listed = [places.pop(".debug_info"), places.pop(".debug_abbrev"), *places.values()]
    refused = []
    for seed in range(rounds):
        started = time.process_time()
        with ElfFile.from_bytes(mutated(data, listed, random.Random(seed)), "changed") as elf:
            refused += exercise(elf)
        assert time.process_time() - started < _SECONDS, seed
    assert refused  # the changes did something
    assert not [one for one in refused if "\n" in one]


@pytest.mark.parametrize("part", [1, 2, 5, 9])
def test_sections_that_end_early(tmp_path: Path, part: int) -> None:
    program = compiled(tmp_path, "gcc")
    with ElfFile(program) as elf:
        section = elf.section(".debug_info")
    data = bytearray(program.read_bytes())
    end = section.offset + section.size
    data[section.offset + section.size * part // 10 : end] = bytes(
        end - section.offset - section.size * part // 10
    )
    with ElfFile.from_bytes(bytes(data), "cut") as elf:
        assert not [one for one in exercise(elf) if "\n" in one]


# ------------------------------------------------------------ written by hand

# Abbreviations: 1 unit, 2 typedef (name, type), 3 structure (name, size) with members,
# 4 member (name, type, place), 5 array (type) with 6 subrange (count of eight bytes), 7 pointer,
# 8 const (type), 9 function (name, address, type), 10 namespace (name).
ABBREVIATIONS = """
 .uleb128 1, 0x11
 .byte 1
 .uleb128 0x13, 0x0b, 0, 0
 .uleb128 2, 0x16
 .byte 0
 .uleb128 3, 8, 0x49, 0x13, 0, 0
 .uleb128 3, 0x13
 .byte 1
 .uleb128 3, 8, 0x0b, 0x07, 0, 0
 .uleb128 4, 0x0d
 .byte 0
 .uleb128 3, 8, 0x49, 0x13, 0x38, 0x0b, 0, 0
 .uleb128 5, 0x01
 .byte 1
 .uleb128 0x49, 0x13, 0, 0
 .uleb128 6, 0x21
 .byte 0
 .uleb128 0x37, 0x07, 0, 0
 .uleb128 7, 0x0f
 .byte 0
 .uleb128 0x49, 0x13, 0, 0
 .uleb128 8, 0x26
 .byte 0
 .uleb128 0x49, 0x13, 0, 0
 .uleb128 9, 0x2e
 .byte 0
 .uleb128 3, 8, 0x11, 0x01, 0x49, 0x13, 0, 0
 .uleb128 10, 0x39
 .byte 1
 .uleb128 3, 8, 0, 0
"""
FUNCTION = ' .uleb128 9\n .asciz "begin"\n .quad begin\n .long wrong - unit\n'

HANDMADE = {
    "a typedef of itself": 'wrong: .uleb128 2\n .asciz "t"\n .long wrong - unit\n',
    "qualifiers that go round": (
        "wrong: .uleb128 8\n .long other - unit\nother: .uleb128 8\n .long wrong - unit\n"
    ),
    "a structure that contains itself": (
        'wrong: .uleb128 3\n .asciz "t"\n .quad 8\n .uleb128 4\n .asciz "m"\n'
        " .long wrong - unit\n .byte 0\n .byte 0\n"
    ),
    "a structure of absurd size": 'wrong: .uleb128 3\n .asciz "t"\n .quad -1\n .byte 0\n',
    "an array of absurd length": (
        "wrong: .uleb128 5\n .long element - unit\n .uleb128 6\n .quad 1 << 62\n .byte 0\n"
        'element: .uleb128 3\n .asciz "t"\n .quad 8\n .byte 0\n'
    ),
    "an array of itself": (
        "wrong: .uleb128 5\n .long wrong - unit\n .uleb128 6\n .quad 2\n .byte 0\n"
    ),
    "a reference behind the unit": " .set wrong, end + 999\n",
    "a reference into an entry": (
        'inner: .uleb128 2\n .asciz "t"\n .long 0\n .set wrong, inner + 2\n'
    ),
    "an abbreviation that is not there": "wrong: .uleb128 99\n",
    "namespaces without an end": '.rept 5000\n .uleb128 10\n .asciz "n"\n.endr\nwrong: .byte 0\n',
    "structures nested without an end": (
        'wrong:\n.rept 20000\n .uleb128 3\n .asciz "s"\n .quad 8\n.endr\n'
    ),
    "a long chain of pointers": (
        "wrong:\n.rept 20000\n .uleb128 7\n .long . + 4 - unit\n.endr\n .uleb128 8\n"
        " .long wrong - unit\n"
    ),
    "a name without an end": "wrong: .uleb128 2\n .fill 200000, 1, 65\n",
}


@pytest.mark.parametrize("entries", HANDMADE.values(), ids=HANDMADE.keys())
def test_damage_by_design(tmp_path: Path, entries: str) -> None:
    body = f" .uleb128 1\n .byte 12\n{FUNCTION}{entries} .byte 0\n"
    library = assembled(tmp_path, ABBREVIATIONS, body)
    started = time.process_time()
    with ElfFile(library) as elf:
        refused = exercise(elf)
    assert time.process_time() - started < _SECONDS
    assert not [one for one in refused if "\n" in one]


def test_damage_names_the_file(tmp_path: Path) -> None:
    body = (
        f" .uleb128 1\n .byte 12\n{FUNCTION}"
        'wrong: .uleb128 3\n .asciz "bad"\n .quad 8\n .uleb128 4477\n .byte 0\n .byte 0\n'
    )
    library = assembled(tmp_path, ABBREVIATIONS, body)
    with ElfFile(library) as elf:
        refused = [one for one in exercise(elf) if "no abbreviation 4477" in one]
    assert refused
    assert not [one for one in refused if not one.startswith(f"{library}: ")]


def test_what_is_whole_is_read_beside_what_is_damaged(tmp_path: Path) -> None:
    body = (
        f" .uleb128 1\n .byte 12\n{FUNCTION}"
        'wrong: .uleb128 3\n .asciz "good"\n .quad 8\n .byte 0\n'
        ' .uleb128 2\n .asciz "bad"\n .long end + 99 - unit\n .byte 0\n'
    )
    with ElfFile(assembled(tmp_path, ABBREVIATIONS, body)) as elf, DebugInfo.of(elf) as info:
        (listed,) = info.functions()
        assert listed[0] == "begin"
        assert info.function(listed[1]).declaration == "struct good begin(void)"
        assert info.btf.size_of(info.type_id("struct good")) == 8
        assert "damaged debug information" in refusal(info, "bad")


def refusal(info: DebugInfo, name: str) -> str:
    try:
        info.btf.resolve(info.type_id(name))
    except TracingError as err:
        return str(err)
    return ""


# ------------------------------------------------------------ the whole way of a command


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize(
    ("options", "rounds"),
    [
        pytest.param(("-gdwarf-5", "-gz"), 60, id="packed"),
        pytest.param(("-gdwarf-5", "-gsplit-dwarf", "-fdebug-types-section"), 60, id="split"),
        pytest.param(("-gdwarf-4", "-fdebug-types-section", "-O2"), 60, id="DWARF 4"),
    ],
)
def test_what_a_command_says_of_changed_files(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    rounds: int,
) -> None:
    from usdt.cli import main

    program = compiled(tmp_path, "gcc", *options, kept=None)
    halves = list(tmp_path.glob("*.dwo"))
    target = halves[0] if halves else program
    data = target.read_bytes()
    with ElfFile(target) as elf:
        places = [(one.offset, one.size) for one in elf.sections if one.name[:6] == ".debug"]
    places = [one for one in places if one[1]]
    told = set()
    monkeypatch.setattr("sys.argv", ["usdt", "info", f"uprobe:{program}:walk"])
    for seed in range(-2, rounds):
        changed = data if seed < 0 else mutated(data, places, random.Random(seed))
        target.write_bytes(changed)
        # Now with the index of the whole file, now without.
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / (f"{seed}" if seed % 2 else "kept")))
        started = time.process_time()
        with pytest.raises(SystemExit) as ended:
            main()
        assert time.process_time() - started < _SECONDS, seed
        out, err = capfd.readouterr()
        assert ended.value.code in (0, 1), (seed, err)
        assert len(err.splitlines()) == ended.value.code, (seed, err)
        assert seed >= 0 or "const node_t *" in out, err
        told.add((out, err))
    assert len(told) > 3  # the changes did something
