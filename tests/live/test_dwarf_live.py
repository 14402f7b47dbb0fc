"""Functions by name and type: what is shown of C, C++ and Rust equals what the programs print."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import debian
import pytest
from dwarf_programs import UNREADABLE, VARIANTS, calls, program, same
from function_programs import needs_libc
from skips import need_program
from streams import without_header
from symbol_programs import compiled
from tracing_tools import Tool, one_error, run_usdt

from usdt.base.machine import PROCESS_MACHINE
from usdt.elf.file import ElfFile
from usdt.uprobes.debug_info import debug_of
from usdt.uprobes.functions import FunctionFile
from usdt.uprobes.parameters import DebugParameters

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("ringbuf")


_UNTOLD = ("in no register at return", "is not known", "cannot read")
_x86_64 = pytest.mark.skipif(PROCESS_MACHINE != "x86_64", reason="names registers of x86-64")


def probe_of(path: Path, function: str, items: list[str]) -> str:
    return f'uprobe:{path}:"{function}"({", ".join(items)})'


def traced(path: Path, output: Path, *probes: str) -> dict[str, list[dict[str, Any]]]:
    """Trace a run of a program; the arguments of each event, by probe."""
    words = "trace", "--json", "--max-string", "256", "-o", output, "-c", path
    done = run_usdt(*words, *probes)
    assert done.returncode == 0, done.stderr
    assert done.stderr.rstrip().endswith(" 0 lost"), done.stderr
    found: dict[str, list[dict[str, Any]]] = {}
    for line in without_header(output.read_text()).splitlines():
        event = json.loads(line)
        found.setdefault(event["probe"], []).append(event["args"] | event.get("names", {}))
    return found


@pytest.mark.parametrize(
    ("variant", "name"), [pytest.param(*one, id="/".join(one)) for one in VARIANTS]
)
def test_every_value_is_what_the_program_prints(variant: str, name: str, tmp_path: Path) -> None:
    path = program(variant, name)
    printed = calls(path)
    probes = {}
    with FunctionFile(str(path)) as file:
        for function, events in printed.items():
            (found,) = file.find(function.replace("[", "[[]").replace("*", "[*]"))
            probes[found.probe] = function, probe_of(path, function, [*events[0]])
    events = traced(path, tmp_path / "events", *(text for _, text in probes.values()))
    wrong, told, untold = [], 0, 0
    for label, (function, _) in probes.items():
        shown = events.get(label, [])
        assert len(shown) == len(printed[function]), label
        for one, other in zip(shown, printed[function], strict=True):
            for (item, value), wanted in zip(one.items(), other.values(), strict=True):
                if _untold(value, wanted):
                    untold += 1
                elif not same(value, wanted):
                    wrong.append((function, item, value, wanted))
                told += 1
    assert not wrong, "\n".join(map(str, wrong))
    assert untold * 4 < told, (untold, told)


def _untold(value: Any, wanted: Any) -> bool:
    # The programs say what cannot be read on x86-64. Elsewhere that differs, and is said.
    if PROCESS_MACHINE == "x86_64":
        return False
    reason = value.get("error", "") if isinstance(value, dict) else ""
    return wanted == UNREADABLE or any(words in reason for words in _UNTOLD)


#: Casts of the arguments of ``many`` in values.c; with the text after them they are eleven, so that
#: on every CPU some are on the stack.
_MANY = (
    *("unsigned char", "short", "int", "", "unsigned char"),
    *("unsigned char", "unsigned char", "short", "int", ""),
)


def test_arguments_and_return_without_names_are_where_the_cpu_has_them(tmp_path: Path) -> None:
    path = program("gccO2v5", "values")
    items = [f"({cast})arg{at}" if cast else f"arg{at}" for at, cast in enumerate(_MANY)]
    probe = f"uprobe:{path}:many({', '.join([*items, 'str(arg10)', '(unsigned char)return'])})"
    (events,) = traced(path, tmp_path / "events", probe).values()
    printed = calls(path)["many"]
    assert len(events) == len(printed) == 2
    word = 8 * (8 if sys.maxsize > 1 << 32 else 4)
    bits = (8, 16, 32, word, 8, 8, 8, 16, 32, word)
    for event, said in zip(events, printed, strict=True):
        *numbers, text, result = event.values()
        *wanted, wanted_text, wanted_result = said.values()
        assert [one % (1 << size) for one, size in zip(numbers, bits, strict=True)] == [
            one % (1 << size) for one, size in zip(wanted, bits, strict=True)
        ]
        assert (text, result) == (wanted_text, wanted_result)


def shown(*words: object) -> list[str]:
    """What a command writes on stdout."""
    done = run_usdt(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def events_of(path: str, *probes: str) -> list[dict[str, Any]]:
    """The arguments of all events of a command."""
    lines = shown("trace", "--json", "-c", path, *probes)
    events = [json.loads(line) for line in lines if line.startswith('{"time"')]
    return [event["args"] | event.get("names", {}) for event in events]


def hits_of(path: Path, function: str, item: str, conditions: list[str]) -> list[int]:
    """How often each condition held: an item of its own tells each probe from the others."""
    marks = [f"{item} + {number}" for number in range(len(conditions))]
    probes = (
        f"uprobe:{path}:{function}({mark}, ({condition}) == 1)"
        for mark, condition in zip(marks, conditions, strict=True)
    )
    events = [key for event in events_of(str(path), *probes) for key in event]
    return [events.count(mark.replace(" ", "")) for mark in marks]


def test_predicates_on_members_enums_bit_fields_and_texts() -> None:
    path = program("gccO2v5", "values")
    chosen = {
        'req->path == "/ind*"': 1,
        'req->path != "/index.html"': 0,
        'req->path == "*dex*l"': 1,
        'contains(req->path, "x.x")': 0,
        r'req->bytes == "\xfe\xff\xff\xff"': 1,
        r'req->bytes != "\xfe\xff\xff\0"': 1,
        "req->bytes == req->next->bytes": 0,
        "req->bytes == req->bytes": 1,
        "req->open == true && req->urgent != false": 1,
        'buf(req->path, 6) == "/index"': 1,
        'buf(req->path, req->headers[0].size) == "/"': 1,
        'buf(req->path, req->headers[1].size) == "/"': 0,
        'req->method == "GET" && req->priority < -15': 1,
        'req->shade == "GREEN" && req->color == "BLUE"': 1,
        'req->shade == "RED"': 0,
        "req->urgent && req->next->urgent == 0": 1,
    }
    assert hits_of(path, "by_pointer", "req->open", list(chosen)) == list(chosen.values())


def test_texts_of_cxx_compare_by_their_length() -> None:
    path = program("gccO2v5", "objects")
    chosen = {
        '*pointer == "a"': 0,
        '*pointer == "a*"': 1,
        'little == "small"': 1,
        'little == "*mal*"': 1,
        'contains(little, "smalls")': 0,
        'little == "*ll"': 1,
        'little == "s*x"': 0,
        'moved != "x"': 1,
    }
    assert hits_of(path, "strings", "little[0]", list(chosen)) == list(chosen.values())


def test_casts_to_types_of_cxx_and_to_pointers_to_pointers() -> None:
    path = program("gccO2v5", "objects")
    items = [
        "*(std::string *)arg0",
        "*(std::basic_string<char> *)arg0",
        "*(const std::string*)arg2",
    ]
    (event,) = events_of(str(path), f"uprobe:{path}:strings({', '.join(items)})")
    assert [*event.values()][:2] == ["small", "small"]
    items = ["*(std::vector<int> *)arg0", "(*(std::vector<shop::Price> *)arg2)[1].whole"]
    (event,) = events_of(str(path), f"uprobe:{path}:vectors({', '.join(items)})")
    assert [*event.values()] == [[1, -2, 3], -3]
    prices = "((class shop::Price *)(*(long *)arg2))->whole, (*(shop::Price **)arg2)[1].whole"
    (event,) = events_of(str(path), f"uprobe:{path}:vectors({prices})")
    assert [*event.values()][1] == -3
    wrong = f"uprobe:{path}:vectors(((shop::Prize *)arg2)->whole)"
    text = one_error(run_usdt("trace", "-c", path, wrong), code=2)
    assert "no type 'shop::Prize'; nearest is struct shop::Price" in text
    path = program("gccO2v5", "values")
    items = ["(*(struct header **)arg3)->size", "((struct header **)arg3)[0]->name == 0"]
    (event,) = events_of(str(path), f"uprobe:{path}:pointers({items[0]}, ({items[1]}) + 0)")
    assert [*event.values()] == [44, 0]


def rows_of(*words: object) -> list[dict[str, Any]]:
    """What a command says in JSON, without what the traced program prints."""
    lines = shown(*words)
    return [json.loads(line) for line in lines if not line.startswith('{"function"')]


def test_members_are_keys_without_an_item() -> None:
    path = program("gccO2v5", "values")
    probe = f"uprobe:{path}:by_pointer"
    (one,) = rows_of("count", "--json", "-c", path, probe, "--by", "req->path, req->next->priority")
    assert (one["key"], one["count"]) == (
        {"req->path": "/index.html", "req->next->priority": -3},
        1,
    )
    (one, *_) = rows_of("latency", "--json", "-c", path, probe, "--by", "req->next->path")
    assert one["key"] == {"req->next->path": "/next"}
    (one,) = rows_of("count", "--json", "-c", path, probe, "--by", "req->bytes, req->shade")
    assert one["key"]["req->bytes"] == [254, 255, 255, 255]
    text = one_error(run_usdt("count", "-c", path, probe, "--by", "req->matrix"), code=2)
    assert "req->matrix holds several values: name a member or element" in text
    # Of many functions those that have what the key names.
    found = rows_of("count", "--json", "-c", path, f"uprobe:{path}:[a-z]*", "--by", "head->name")
    assert {row["probe"].rpartition(":")[2] for row in found} == {"by_pointer", "hidden"}
    text = one_error(run_usdt("count", "-c", path, probe, "--by", "req->pth"), code=2)
    assert "struct request has no member 'pth', at column" in text


PROBES = r"""
#include <sys/sdt.h>
struct request { int pad; const char *path; struct request *next; };
int main(void)
{
    struct request last = {1, "/b", 0}, first = {2, "/a", &last};
    for (int i = 0; i < 2; i++)
        DTRACE_PROBE2(myprov, req, &first, i);
    return 0;
}
"""


def test_usdt_arguments_take_casts_to_the_programs_types(tmp_path: Path) -> None:
    path = compiled(tmp_path, PROBES, "-g", "-O1", name="probes")
    items = "(struct request *)arg0->path, ((struct request *)arg0)->next->path, arg1"
    events = events_of(str(path), f"{path}:myprov:req({items}, (struct request *)arg0->pad == 2)")
    assert [[*event.values()] for event in events] == [["/a", "/b", 0], ["/a", "/b", 1]]
    words = "count", "--json", "-c", path, f"{path}:myprov:req"
    (row,) = rows_of(*words, "--by", "(struct request *)arg0->path")
    assert (list(row["key"].values()), row["count"]) == (["/a"], 2)
    wrong = one_error(
        run_usdt("trace", "-c", path, f"{path}:myprov:req((struct reqest *)arg0->path)"), code=2
    )
    assert "no type 'struct reqest'; nearest is struct request" in wrong


def test_without_debug_information_the_error_says_what_brings_it(tmp_path: Path) -> None:
    path = compiled(tmp_path, PROBES, "-O1", "-Wl,--build-id", name="bare")
    for probe in (
        f"uprobe:{path}:main(argc)",
        f"{path}:myprov:req((struct request *)arg0->path)",
    ):
        text = one_error(run_usdt("trace", "-c", path, probe), code=2)
        assert f"{path} has no debug information" in text
        assert "build ID" in text
        assert "arg0… and return work without" in text
    assert events_of(str(path), f"uprobe:{path}:main((int)arg0, return)") == [
        {"(int)arg0": 1, "return": 0}
    ]


def test_a_parameter_that_is_none_is_named_with_those_that_are() -> None:
    path = program("gccO2v5", "values")
    text = one_error(run_usdt("trace", "-c", path, f"uprobe:{path}:by_pointer(request)"), code=2)
    assert "unknown name 'request': by_pointer has the parameters req, head" in text
    text = one_error(run_usdt("trace", "-c", path, f"uprobe:{path}:by_pointer(req->pth)"), code=2)
    assert "struct request has no member 'pth', at column" in text


@_x86_64
def test_info_shows_the_prototype_the_source_and_the_places() -> None:
    path = program("gccO2v5", "values")
    lines = shown("info", f"uprobe:{path}:mixtures")
    prototype = (
        "struct real mixtures(struct mixed a, struct real b, struct reals c, struct turned d, "
        "int e)"
    )
    assert f"  {prototype}" in lines
    assert any(line.endswith("values.c:182") or "values.c:" in line for line in lines)
    places = {line.split()[0]: line for line in lines if line.startswith("    ")}
    assert places["a"].endswith("in register rdi")
    assert "in registers xmm0:rsi; xmm0 not readable" in places["b"]
    assert "not readable: a floating-point number" in places["c"]
    (one,) = map(json.loads, shown("info", "--json", f"uprobe:{path}:named"))
    assert one["prototype"] == "enum color named(enum color color, enum level level, _Bool yes)"
    assert [(p["name"], p["type"], p["readable"]) for p in one["parameters"]] == [
        ("color", "enum color", True),
        ("level", "enum level", True),
        ("yes", "_Bool", True),
        ("return", "enum color", True),
    ]


@_x86_64
def test_check_says_what_cannot_be_read() -> None:
    path = program("gccO2v5", "values")
    good = run_usdt("check", f"uprobe:{path}:by_pointer(req->path, return)")
    assert (good.returncode, good.stdout) == (
        0,
        f"{path}: 1 function, all would attach and decode\n",
    )
    bad = run_usdt("check", f"uprobe:{path}:floats")
    assert bad.returncode == 1
    assert "floats: a cannot be read: a floating-point number in register xmm0" in bad.stdout
    unknown = run_usdt("check", f"uprobe:{path}:floats(x)")
    assert unknown.returncode == 1
    assert "floats has the parameters a, b, c, d" in unknown.stdout


def test_every_parameter_has_the_type_that_gdb_says() -> None:
    path = program("gccO2v5", "values")
    gdb = need_program("gdb")
    names = [*calls(path)]
    words = [word for name in names for word in ("-ex", f"whatis {name}")]
    done = subprocess.run(
        [gdb, "-nx", "-batch", *words, path], capture_output=True, text=True, check=True, timeout=60
    )
    said = [line.removeprefix("type = ") for line in done.stdout.splitlines() if "type = " in line]
    assert len(said) == len(names)
    debug = debug_of(str(path), str(path))
    assert debug is not None
    parameters = DebugParameters(debug)
    for name, text in zip(names, said, strict=True):
        with FunctionFile(str(path)) as file:
            prototype = parameters.prototype(*file.find(name))
        assert prototype is not None
        one = prototype.to_json()
        kinds = [p["type"] for p in one["parameters"] if p["name"] != "return"]
        kinds += ["..."] * one["prototype"].endswith("...)")
        # BTF has no complex numbers: they are two.
        wanted = re.search(r"\((.*)\)$", text.replace("complex float", "float[2]"))
        assert wanted is not None
        assert _plain(", ".join(kinds)) == _plain(wanted[1]), name


def _plain(text: str) -> str:
    # gdb's names of integers, and what it leaves out: qualifiers of the parameter itself.
    text = re.sub(r"\b(long|short) (unsigned )?int\b", lambda m: f"{m[2] or ''}{m[1]}", text)
    text = text.replace("long unsigned", "unsigned long").replace("unsigned int", "unsigned")
    return re.sub(r"\s+", "", re.sub(r"\*\s*const\b", "*", text))


#: As many calls of malloc() and read() as it says, and no others.
LIBC = r"""
#include <stdlib.h>
#include <unistd.h>
void *volatile kept;
int main(void)
{
    int ends[2];
    char byte = 0;
    for (int i = 0; i < 400; i++) {
        kept = malloc(10000 * (1 + i % 4));
        free(kept);
    }
    pipe(ends);
    for (int i = 0; i < 50; i++) {
        write(ends[1], &byte, 1);
        read(ends[0], &byte, 1);
    }
    return 0;
}
"""


@needs_libc
def test_libc_counted_and_measured(tmp_path: Path) -> None:
    path = compiled(tmp_path, LIBC, "-O1", name="allocates")
    (row,) = rows_of("count", "--json", "-c", path, "uprobe:libc:malloc", "--by", "comm")
    assert (row["key"], row["count"]) == ({"comm": "allocates"}, 400)
    (hist,) = rows_of("hist", "--json", "-c", path, "uprobe:libc:malloc(arg0)")
    assert [(one["low"], one["count"]) for one in hist["buckets"] if one["count"]] == [
        (8192, 100),
        (16384, 200),
        (32768, 100),
    ]
    latency, *_ = rows_of(
        "latency", "--json", "-c", path, "uprobe:libc:read", "uprobe:libc:read(return)"
    )
    assert sum(bucket["count"] for bucket in latency["buckets"]) == 50


@needs_libc
def test_malloc_of_all_processes_counted_by_command(tmp_path: Path) -> None:
    path = compiled(tmp_path, LIBC, "-O1", name="everywhere")
    with Tool("count", "--json", "-a", "uprobe:libc:malloc", "--by", "comm") as tool:
        tool.wait_tracing()
        for _ in range(3):
            subprocess.run([path], check=True, timeout=100)
        tool.process.send_signal(signal.SIGINT)
        tool.finish()
    rows = [json.loads(line) for line in tool.lines]
    assert {row["count"] for row in rows if row["key"]["comm"] == "everywhere"} == {1200}


def _python_with_symbols(folder: Path) -> Path:
    # Debian's interpreter beside its debug symbols: those that are installed may be of another one.
    if PROCESS_MACHINE != "x86_64":
        pytest.skip("needs x86-64, whose packages are downloaded")
    python = folder / "python3.11"
    shutil.copy(debian.files("python3.11-minimal") / "usr/bin/python3.11", python)
    with ElfFile(python) as elf:
        build_id = elf.build_id
    assert build_id
    first, rest = build_id[:2], f"{build_id[2:]}.debug"
    symbols = debian.files("python3.11-dbg") / "usr/lib/debug/.build-id" / first / rest
    if not symbols.exists():
        pytest.skip(f"needs both packages of python3.11 of one version: delete {debian.cache()}")
    (folder / ".debug").mkdir()
    (folder / ".debug" / rest).symlink_to(symbols)
    return python


def test_a_live_interpreter_of_debian(tmp_path: Path) -> None:
    python = _python_with_symbols(tmp_path)
    script = tmp_path / "calls.py"
    script.write_text(
        "import functools\n"
        "class Shop:\n    def __call__(self): return 1\n"
        "shop = functools.partial(Shop())\n"
        "for _ in range(3): sum(map(int, [shop()]))\n"
    )
    probe = f"uprobe:{python}:PyObject_Call(callable->ob_type->tp_name)"
    command = f"env PYTHONHOME=/usr {python} -S {script}"
    done = run_usdt("trace", "--json", "-o", tmp_path / "out", "-c", command, probe)
    assert done.returncode == 0, done.stderr
    names = [
        json.loads(line)["args"]["callable->ob_type->tp_name"]
        for line in without_header((tmp_path / "out").read_text()).splitlines()
    ]
    assert names.count("Shop") == 3
