"""Memory of the traced process, in strings, buffers and numbers: there, not yet, and not at all."""

from __future__ import annotations

import mmap
import re
import struct
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest
from fixtures import TESTBINS, Fixture, compiler, start
from patience import patient

import usdt
from usdt.arch.locations import Unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from usdt.engine.output.formatters.event_records import Event

pytestmark = pytest.mark.usefixtures("ringbuf")

_COMM = "fifteen-bytes-x"
_PAGE = mmap.PAGESIZE
_UNREADABLE = Unreadable("memory not readable")

# What can be read from a pointer, byte by byte, before what cannot.
_TEXTS = {
    "text": b"GET /index.html\0",
    "its beginning": b"GET \0",
    "another": b"POST /\0",
    "empty": b"\0",
    "one byte": b"x\0",
    "254 bytes": b"y" * 254 + b"\0",
    "255 bytes": b"y" * 255 + b"\0",
    "256 bytes": b"y" * 256 + b"\0",
    "no UTF-8": b"\xff\xfe caf\xc3\xa9\0",
    "escape sequence": b"\x1b]0;title\x07\0",
}
_LAST = b"sixteen bytes..."  # of a page with nothing behind it
_PLACES = _TEXTS | {
    "to the end of a page": _LAST[:-1] + b"\0",
    "no end before the end of a page": _LAST,
    "across pages": b"across the border\0",
    "NULL": b"",
    "a small number": b"",
    "the kernel": b"",
    "not mapped": b"",
    "no permission": b"",
}
_LENGTHS = (0, 1, 5, -1, -(1 << 31), 128, 129, 1 << 30)

# What untouched pages hold: text, and behind it an integer, at these places.
_FRESH = (0, 100, _PAGE - 3, 2 * _PAGE - 12, 3 * _PAGE - 14)
_FRESH_TEXT = b"fresh text!\0"  # 12 bytes
_FRESH_NUMBER = -123456789


def _c_string(text: bytes) -> str:
    return '"' + "".join(f"\\{byte:03o}" for byte in text) + '"'


_SOURCE = r"""
#include <sys/sdt.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>
#include "note.h"

#define WORD HAND_TEXT(__SIZEOF_POINTER__)
struct sixteen { char bytes[16]; };

static char *pages(int number, int protection, int file)
{
    int flags = MAP_PRIVATE | (file < 0 ? MAP_ANONYMOUS : 0);
    return mmap(0, number * PAGE, protection, flags, file, 0);
}

static const char *const texts[] = { TEXT_LIST };
static const int lengths[] = { LENGTH_LIST };
static const int fresh[] = { FRESH_LIST };
#define LENGTH(array) (int)(sizeof array / sizeof *array)

int main(int argc, char **argv)
{
    char line[100];
    const char *places[PLACES];
    char *two = pages(2, PROT_READ | PROT_WRITE, -1);
    char *end = pages(2, PROT_READ | PROT_WRITE, -1) + PAGE;
    int file = open(argv[1], O_RDONLY);
    prctl(PR_SET_NAME, COMM);
    memcpy(places, texts, sizeof texts);
    mprotect(end, PAGE, PROT_NONE);
    memcpy(end - 16, LAST, 16);
    places[TEXTS + 1] = end - 16;
    end = pages(2, PROT_READ | PROT_WRITE, -1) + PAGE;
    mprotect(end, PAGE, PROT_NONE);
    memcpy(end - 16, TO_THE_END, 16);
    places[TEXTS] = end - 16;
    places[TEXTS + 2] = strcpy(two + PAGE - 5, ACROSS);
    places[TEXTS + 3] = 0;
    places[TEXTS + 4] = (char *)8;
    places[TEXTS + 5] = (char *)0xffffffff81000000ul;
    places[TEXTS + 7] = pages(1, PROT_NONE, -1);
    places[TEXTS + 6] = pages(1, PROT_READ, -1);
    munmap((char *)places[TEXTS + 6], PAGE); /* nothing is mapped before the probes fire */

    printf("ready %d\n", getpid());
    while (fflush(stdout), fgets(line, sizeof line, stdin)) {
        for (int i = 0; i < PLACES; i++)
            STAP_PROBE2(m, text, i, places[i]);
        for (int i = 0; i < LENGTH(lengths); i++)
            STAP_PROBE3(m, length, i, two, lengths[i]);
        for (int i = 0; i < LENGTH(fresh); i++) {
            char *text = pages(4, PROT_READ, file) + fresh[i];
            __asm__ volatile(HAND_NOTE(HAND_NOP, "m", "fresh",
                                       "-4@%0 " WORD "@%1 -4@%2 16@%3 " WORD "@%4", "0")
                             :: "r"(i), "r"(text), "m"(*(int *)(text + 12)),
                                "m"(*(struct sixteen *)text), "r"(two));
            munmap(text - fresh[i], 4 * PAGE);
        }
        char *zero = pages(1, PROT_READ | PROT_WRITE, -1);
        STAP_PROBE1(m, zero, zero);
        munmap(zero, PAGE);
        printf("done 0\n");
    }
}
"""


def _source() -> str:
    values = {
        "PAGE": f"{_PAGE}l",
        "COMM": f'"{_COMM}"',
        "LAST": _c_string(_LAST),
        "TO_THE_END": _c_string(_PLACES["to the end of a page"]),
        "ACROSS": _c_string(_PLACES["across pages"]),
        "TEXTS": len(_TEXTS),
        "PLACES": len(_PLACES),
        "TEXT_LIST": ", ".join(map(_c_string, _TEXTS.values())),
        "LENGTH_LIST": ", ".join(map(str, _LENGTHS)),
        "FRESH_LIST": ", ".join(map(str, _FRESH)),
    }
    return "\n".join(f"#define {name} {value}" for name, value in values.items()) + _SOURCE


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("memory")
    command = [*compiler(), "-O1", "-w", f"-I{TESTBINS}", "-x", "c", "-"]
    done = subprocess.run(
        [*command, "-o", folder / "memory"],
        input=_source(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    content = bytearray(4 * _PAGE)
    for place in _FRESH:
        what = _FRESH_TEXT + struct.pack("=i", _FRESH_NUMBER)
        content[place : place + len(what)] = what
    (folder / "content").write_bytes(content)
    return folder / "memory"


@pytest.fixture
def running(program: Path) -> Iterator[Fixture]:
    with start(program, program.with_name("content")) as process:
        yield process.wait_ready()


def _fired(running: Fixture, number: int, *probes: str) -> tuple[list[Event], int]:
    # The events of one firing, and how many predicates were not decided.
    with usdt.attach(*probes, pid=running.pid) as events:
        running.fire()
        found: list[Event] = []
        deadline = time.monotonic() + patient(100)
        while len(found) < number and time.monotonic() < deadline:
            found += events.poll(0.5)
        found += events.poll(0.03)
        assert not events.lost
        return found, sum(item.unread for item in events.losses)


def _read_string(place: bytes, size: int) -> bytes | None:
    """What bpf_probe_read_user_str() reads into so many bytes; None: it fails."""
    there = place[:size]
    if b"\0" in there:
        return there[: there.index(b"\0")]
    return there[:-1] if len(there) == size else None


def _shown(value: bytes | None) -> Any:
    return _UNREADABLE if value is None else value.decode("utf-8", "surrogateescape")


@pytest.mark.parametrize(
    ("item", "size"),
    [
        pytest.param("str(arg1)", 129, id="128 bytes where nothing is said"),
        pytest.param("str(arg1,15)", 16, id="15 bytes"),
        pytest.param("str(arg1,1)", 2, id="one byte"),
        pytest.param("str(arg1,16)", 17, id="16 bytes"),
        pytest.param("str(arg1,65535)", 65536, id="as many as there can be"),
    ],
)
def test_strings(item: str, size: int, running: Fixture) -> None:
    found, _ = _fired(running, len(_PLACES), f"m:text({item})")
    expected = {name: _shown(_read_string(place, size)) for name, place in _PLACES.items()}
    assert dict(zip(_PLACES, [event.args[item] for event in found], strict=True)) == expected


@pytest.mark.parametrize("size", [0, 1, 5, 16, 17, 255])
def test_buffers_of_constant_length(size: int, running: Fixture) -> None:
    item = f"buf(arg1,{size})"
    found, _ = _fired(running, len(_PLACES), f"m:text({item})")
    values = dict(zip(_PLACES, [event.args[item] for event in found], strict=True))
    for name, place in _PLACES.items():
        behind = name not in _TEXTS and name != "across pages"  # nothing can be read there
        if len(place) >= size and (size or name != "the kernel"):
            assert values[name] == _shown(place[:size]), name
        elif behind:
            assert values[name] == _UNREADABLE, name
        else:
            assert values[name].startswith(_shown(place)), name


def test_buffers_of_a_length_in_an_argument(running: Fixture) -> None:
    found, _ = _fired(running, len(_LENGTHS), "m:length(buf(arg1, arg2), buf(arg1, arg0 + 1))")
    lengths = [len(event.args["buf(arg1,arg2)"].encode()) for event in found]
    assert lengths == [min(max(0, length), 128) for length in _LENGTHS]
    assert [len(event.args["buf(arg1,arg0+1)"]) for event in found] == [*range(1, 9)]


_SOME = (
    *("GET /index.html", "GET *", "", "y" * 255, "y" * 255 + "*"),
    *("*index*", "GET*.*l", "*border"),
)
_OTHERS = (
    *("GET ", "GET  *", "*", "x", "x*", "y*", "y" * 254, "y" * 254 + "*", "sixteen bytes.."),
    *("sixteen *", "across the border", "across the borde*", "sixteen bytes...", "\x1b]0;*"),
    *("*html", "*the*", "*y", "y*y", "*x*", "*z*"),
)


def _equal(place: bytes, constant: str) -> bool | None:
    text = constant.encode()
    if b"*" in text[:-1]:
        found = _read_string(place, 257)
        if found is None or (len(found) > 255 and not text.endswith(b"*")):
            return None if found is None else False
        parts = map(re.escape, text.split(b"*"))
        return re.fullmatch(b".*".join(parts), found[:255], re.DOTALL) is not None
    if text.endswith(b"*"):
        found = _read_string(place, len(text))
        return None if found is None else found.startswith(text[:-1])
    found = _read_string(place, len(text) + 2)
    return None if found is None else found == text


@pytest.mark.parametrize(
    "constants",
    [pytest.param(_SOME, id="some of each kind"), pytest.param(_OTHERS, id="the others")],
)
def test_strings_compared(constants: Sequence[str], running: Fixture) -> None:
    answers = {
        (n, place): _equal(_PLACES[place], constant)
        for n, constant in enumerate(constants)
        for place in _PLACES
    }
    for op, wanted in (("==", True), ("!=", False)):
        probes = [
            f'm:text(str(arg1) {op} "{constant}", arg0, {n})'
            for n, constant in enumerate(constants)
        ]
        expected = {key for key, answer in answers.items() if answer is wanted}
        found, unread = _fired(running, len(expected), *probes)
        names = list(_PLACES)
        passed = [(int(list(e.args)[1]), names[e.args["arg0"]]) for e in found]
        assert sorted(passed) == sorted(expected), op
        assert unread == list(answers.values()).count(None)


def test_a_comparison_in_an_expression_has_a_value(running: Fixture) -> None:
    item = '(str(arg1)=="x")+10*(str(arg1)!="G*")'
    found, _ = _fired(running, len(_PLACES), f"m:text({item}, comm)")
    for event, place in zip(found, _PLACES.values(), strict=True):
        equal, begins = _equal(place, "x"), _equal(place, "G*")
        decided = equal is not None and begins is not None
        assert event.args[item] == (bool(equal) + 10 * (not begins) if decided else _UNREADABLE)
        assert event.args["comm"] == _COMM


@pytest.mark.parametrize(
    ("predicate", "holds"),
    [
        pytest.param(f'comm == "{_COMM}"', True, id="the whole name, 15 bytes"),
        pytest.param(f'comm != "{_COMM}"', False, id="any other"),
        pytest.param(f'comm == "{_COMM}y"', False, id="longer than a name can be"),
        pytest.param(f'comm != "{_COMM}y"', True, id="other than what no name can be"),
        pytest.param(f'comm == "{_COMM[:-1]}"', False, id="a byte less"),
        pytest.param(f'comm == "{_COMM}*"', True, id="begins with all of it"),
        pytest.param('comm == "fifteen*"', True, id="begins with a part"),
        pytest.param('comm == "*"', True, id="begins with nothing"),
        pytest.param('comm == ""', False, id="no name"),
        pytest.param('"fifteen*" != comm', False, id="the constant first"),
        pytest.param('comm == "six*" || comm == "fif*"', True, id="one of two"),
        pytest.param('!(comm == "six*")', True, id="not the other"),
    ],
)
def test_command_names_compared(predicate: str, holds: bool, running: Fixture) -> None:
    found, unread = _fired(running, 1 if holds else 0, f"m:zero({predicate})")
    assert (len(found), unread) == (int(holds), 0)


@pytest.mark.usefixtures("sleepable_uprobes")
def test_what_no_page_holds_yet_is_read(running: Fixture) -> None:
    items = "arg0, str(arg1), arg2, arg3, buf(arg1, 16), *(int *)(arg1 + 12), ((char *)arg1)[4]"
    found, _ = _fired(running, len(_FRESH), f"m:fresh({items})")
    assert [event.args["arg0"] for event in found] == [*range(len(_FRESH))]
    raw = _FRESH_TEXT + struct.pack("=i", _FRESH_NUMBER)
    for event in found:
        values = list(event.args.values())[1:]
        text, number, structure, buffer, followed, letter = values
        assert (text, number, followed, letter) == ("fresh text!", *[_FRESH_NUMBER] * 2, 0x68)
        assert structure == raw
        assert buffer == raw.decode("utf-8", "surrogateescape")


@pytest.mark.usefixtures("sleepable_uprobes")
@pytest.mark.parametrize(
    "items",
    [
        pytest.param("str(arg1)", id="a string alone"),
        pytest.param("arg2", id="an integer alone"),
        pytest.param("arg3", id="a structure alone"),
        pytest.param("*(short *)(arg1 + 3)", id="behind a pointer alone"),
        pytest.param("buf(arg1, arg0 + 1)", id="a buffer of computed length alone"),
        pytest.param("buf(arg4, ((char *)arg1)[0])", id="the length of a buffer alone"),
        pytest.param('str(arg1) == "fresh text!", arg0', id="compared as a string"),
        pytest.param('str(arg1) == "fresh*", arg0', id="compared as the beginning of one"),
        pytest.param(f"arg2 == {_FRESH_NUMBER}, arg0", id="compared as an integer"),
        pytest.param("*(int *)(arg1 + 12) < 0 && arg0 >= 0, arg0", id="in a longer predicate"),
    ],
)
def test_one_thing_on_a_fresh_page_is_enough_to_have_it_read(items: str, running: Fixture) -> None:
    found, unread = _fired(running, len(_FRESH), f"m:fresh({items})")
    assert len(found) == len(_FRESH)
    assert unread == 0
    assert not [v for event in found for v in event.args.values() if isinstance(v, Unreadable)]


@pytest.mark.usefixtures("sleepable_uprobes")
def test_memory_that_was_never_written_is_zero(running: Fixture) -> None:
    found, _ = _fired(running, 1, "m:zero(str(arg0), *(long *)arg0, buf(arg0, 3))")
    assert [*found[0].args.values()] == ["", 0, "\0\0\0"]
