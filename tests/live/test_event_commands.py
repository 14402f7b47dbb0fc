"""``kprobe event …`` on uprobes of this kernel, as a user runs it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fixtures import build
from fork_server import run
from patience import patient
from tracing_tools import private, until

import usdt
from kprobe.events import Dialect
from usdt.base.errors import NotSupported
from usdt.tracefs.mount import tracefs as mounted

if TYPE_CHECKING:
    from collections.abc import Iterator

KPROBE = str(Path(sys.executable).with_name("kprobe"))
_GROUP = f"usdt_commands_{os.getpid()}"  # no other test's begins so


def event(*words: object, code: int = 0, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    done = run([KPROBE, "event", *map(str, words)], given=stdin, timeout=patient(100))
    assert done.returncode == code, done
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return private(build("default", "loop"), tmp_path)


@pytest.fixture
def place(program: Path) -> str:
    """The quiet loop's probe, and the register that holds the round."""
    (probe,) = usdt.list_probes(str(program), pattern="loop:hit")
    site = probe.sites[0]
    register = site.args.split("@%")[1].split()[0].removeprefix("r")
    return f"{program}:{site.offset:#x} round=%{register}:u32"


@pytest.fixture
def mine() -> Iterator[str]:
    """A group of this test's."""
    yield _GROUP
    for line in (mounted() / "uprobe_events").read_text().splitlines():
        name = line.split()[0].partition(":")[2]
        if name.startswith(f"{_GROUP}/"):
            subprocess.run([KPROBE, "event", "disable", name], check=False, capture_output=True)
            event("remove", name)


@contextlib.contextmanager
def watching(*words: object) -> Iterator[subprocess.Popen[str]]:
    """The command, once it says that it watches."""
    with subprocess.Popen(
        [KPROBE, "event", "watch", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as tool:
        try:
            assert tool.stderr is not None
            said = ""
            while not said.startswith("watching "):  # what it translates comes first
                said = tool.stderr.readline()
                assert said.startswith("watching ") or ": $" in said or "ra: " in said, said
            yield tool
        finally:
            tool.kill()


def test_watch_shows_every_hit_and_leaves_nothing(program: Path, place: str) -> None:
    with watching("--json", f"p:mine/hit {place} stack=+0(%sp):x8[2]") as tool:
        subprocess.run([program, "-q", "-n", "1000"], check=True, capture_output=True)
        until(lambda: len((mounted() / "uprobe_events").read_text()), "the definition")
        tool.send_signal(signal.SIGINT)
        out, err = tool.communicate(timeout=patient(100))
    hits = [json.loads(line) for line in out.splitlines()]
    assert [hit["args"]["round"] for hit in hits] == list(range(1000))
    assert {hit["comm"] for hit in hits} == {"loop"}
    assert {hit["probe"] for hit in hits} == {"mine/hit"}
    assert len(hits[0]["args"]["stack"]) == 2
    assert err.splitlines()[-1] == "1000 events, 0 lost"
    assert str(program) not in (mounted() / "uprobe_events").read_text()


def test_watch_stops_at_a_number_and_filters(program: Path, place: str) -> None:
    with watching("-n", 2, "--filter", "round > 5", f"p {place}") as tool:
        subprocess.run([program, "-q", "-n", "20"], check=True, capture_output=True)
        out, err = tool.communicate(timeout=patient(100))
    assert [line.rpartition("round=")[2] for line in out.splitlines()] == ["6", "7"]
    assert "uprobes/p_loop_0x" in out
    assert err.splitlines()[-1] == "2 events, 0 lost"


def test_an_event_lives_until_it_is_removed(place: str, mine: str, program: Path) -> None:
    assert event("define", f"p:{mine}/hit {place}").stdout == f"{mine}/hit\n"
    assert f"p:{mine}/hit {program}" in event("list").stdout
    shown = json.loads(event("show", "--json", f"{mine}/hit").stdout)
    assert [field["name"] for field in shown["fields"]] == ["__probe_ip", "round"]
    event("filter", f"{mine}/hit", "round < 3")
    assert event("filter", f"{mine}/hit").stdout == "round < 3\n"
    event("enable", f"{mine}/hit")
    rows = map(json.loads, event("list", "--json").stdout.splitlines())
    assert [row["enabled"] for row in rows if row["event"] == f"{mine}/hit"] == [True]
    event("disable", f"{mine}/hit")
    event("remove", f"{mine}/hit")
    assert mine not in event("list").stdout


def test_an_event_needs_no_group_if_its_name_is_its_own(place: str, mine: str) -> None:
    event("define", f"p:{mine}/{mine}_hit {place}")  # other tests have events named "hit"
    event("remove", f"{mine}_hit")
    assert mine not in event("list").stdout


def test_a_pattern_removes_a_group_once_that_is_confirmed(place: str, mine: str) -> None:
    names = [f"{mine}/one", f"{mine}/two"]
    event("define", f"p:{mine}/one {place}", f"p:{mine}/two {place}")
    said = event("remove", f"{mine}/*", code=2).stderr  # there is no terminal
    assert "The pattern matches 2 events; to remove them, add --yes." in said
    assert all(name in event("list").stdout for name in names)
    event("enable", names[0])
    said = event("remove", "--yes", f"{mine}/*", code=1).stderr
    assert f"Error: removing {names[0]}: Device or resource busy (the event is in use)" in said
    assert names[0] in event("list").stdout
    assert names[1] not in event("list").stdout
    event("disable", names[0])
    event("remove", "--yes", f"{mine}/*")
    assert mine not in event("list").stdout


@pytest.mark.parametrize(("answer", "code"), [("n\n", 1), ("y\n", 0)])
def test_a_terminal_is_asked(place: str, mine: str, answer: str, code: int) -> None:
    event("define", f"p:{mine}/one {place}", f"p:{mine}/two {place}")
    ours, theirs = os.openpty()
    with subprocess.Popen(
        [KPROBE, "event", "remove", f"{mine}/*"], stdin=theirs, stderr=subprocess.PIPE, text=True
    ) as tool:
        os.close(theirs)
        os.write(ours, answer.encode())
        _, said = tool.communicate(timeout=patient(100))
    os.close(ours)
    assert tool.returncode == code
    assert f"  {mine}/one\n  {mine}/two\nRemove 2 events? [y/N]: " in said
    assert ("nothing is removed" in said) is bool(code)
    assert (mine in event("list").stdout) is bool(code)


def test_definitions_come_from_files_too(tmp_path: Path, place: str, mine: str) -> None:
    path = tmp_path / "definitions"
    path.write_text(f"# mine\np:{mine}/one {place}\n\n")
    shown = event("define", "--dry-run", "-i", path, "-i", "-", stdin=f"r:{mine}/two {place}\n")
    assert [line.split()[1] for line in shown.stdout.splitlines()] == [
        f"p:{mine}/one",
        f"r:{mine}/two",
    ]
    assert mine not in event("list").stdout


def test_all_definitions_or_none(place: str, mine: str) -> None:
    wrong = f"p:{mine}/two /nowhere:0x10"
    said = event("define", f"p:{mine}/one {place}", wrong, code=1).stderr
    assert "Failed to find the given file" in said
    assert mine not in event("list").stdout


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        pytest.param(["watch", "p f a=%zz"], 2, "Invalid register name, at column 7", id="wrong"),
        pytest.param(["watch"], 1, "no definition: give one", id="nothing to watch"),
        pytest.param(["define", "-i", "/nowhere"], 1, "/nowhere: cannot be read", id="no file"),
        pytest.param(["define", "--", "-:x/y"], 1, "deletes events; use", id="a deletion"),
        pytest.param(["remove", "nothing"], 1, "no probe event nothing", id="no such event"),
        pytest.param(["show", "a/b"], 1, "no event a/b", id="nothing to show"),
        pytest.param(["show", "../x"], 1, "expected GROUP/EVENT", id="a path"),
        pytest.param(["enable", "a/b"], 1, "no event a/b", id="nothing to enable"),
        pytest.param(["check", "p f %"], 1, "Invalid register name", id="checked"),
        pytest.param(["check", "--as", "x", "p f"], 1, "not a kernel version", id="as what"),
        pytest.param(["filter", "sched/sched_switch", "x =="], 1, "is refused", id="no filter"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(words: list[str], code: int, says: str) -> None:
    done = event(*words, code=code)
    assert says in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("Error: ")]) == 1


def test_the_spelling_of_2009_is_translated() -> None:
    done = event(
        "define", "--dry-run", "p:myprobe do_sys_open a0 a1 a2 a3", "r:m do_sys_open rv ra"
    )
    assert done.stdout.splitlines() == [
        "kprobe_events: p:kprobes/myprobe do_sys_open $arg1 $arg2 $arg3 $arg4",
        "kprobe_events: r:kprobes/m do_sys_open $retval",
    ]
    assert "ra: left out" in done.stderr


def test_check_takes_the_spelling_of_2009_as_define_does() -> None:
    done = event("check", "p:myprobe do_sys_open a0 s2 sa")
    assert done.stdout == "p:myprobe do_sys_open $arg1 $stack2 $stack\n"
    assert "syntax of 2009: a0: $arg1" in done.stderr


@pytest.mark.parametrize("line", ["p:x strcasecmp s1:string", "p:x strcasecmp s2 s1"])
def test_a_parameter_keeps_its_name(line: str) -> None:
    shown = event("check", "--as", "6.12", line)
    assert shown.stdout == f"{line}\n"
    assert "2009" not in shown.stderr


def test_fields_of_a_tracepoint_are_shown() -> None:
    shown = event("show", "sched/sched_switch").stdout
    assert "char prev_comm[16];" in shown
    assert "print fmt: " in shown


# ---------------------------------------------------------------- functions of the kernel


@pytest.fixture
def kernel_events() -> bool:
    """A kernel with kprobe events; whether it knows parameters of functions."""
    if not (mounted() / "kprobe_events").exists():
        raise NotSupported("kprobe events (CONFIG_KPROBE_EVENTS)", None)
    return Dialect.running((mounted() / "README").read_text()).variables


def _open(path: Path) -> None:
    # O_WRONLY, O_CREAT and O_EXCL: the bits 0, 6 and 7.
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640))


def _opened(path: Path, *words: object) -> list[dict[str, Any]]:
    """What was watched of this process while it made a file."""
    with watching("--json", *words) as tool:
        _open(path)
        tool.send_signal(signal.SIGINT)
        out, _ = tool.communicate(timeout=patient(100))
    return [hit for hit in map(json.loads, out.splitlines()) if hit["pid"] == os.getpid()]


def test_the_examples_of_2009(tmp_path: Path, *, kernel_events: bool) -> None:
    arguments = "a0 a1 a2" if kernel_events else "a0 a1 a2 a3"  # newer kernels count them
    entry, result = _opened(
        tmp_path / "made",
        *(f"p:myprobe do_sys_openat2 {arguments}", "r:myretprobe do_sys_openat2 rv ra"),
    )[-2:]
    assert entry["probe"] == "kprobes/myprobe"
    values = [value for key, value in entry["args"].items() if not key.startswith("__")]
    assert len(values) == len(arguments.split())
    assert values[0] % (1 << 32) == 2**32 - 100  # AT_FDCWD
    assert result["probe"] == "kprobes/myretprobe"
    assert "__probe_ret_ip" in result["args"]
    (descriptor,) = (v for key, v in result["args"].items() if not key.startswith("__"))
    assert 3 <= descriptor < 1000


def test_strings_arrays_bitfields_symbols_and_filters(
    tmp_path: Path, *, kernel_events: bool
) -> None:
    path = tmp_path / "made"
    line = (
        "p:opened do_sys_openat2 name=+0($arg2):ustring how=+0($arg3):x64[3] "
        "access=+0($arg3):b2@0/64 create=+0($arg3):b2@6/64 at=%ip:symbol who=$comm"
    )
    (hit,) = _opened(path, "--filter", f'name == "{path}" && access == 1', line)
    args = hit["args"]
    assert args["name"] == str(path)
    assert args["how"][1:] == [0o100640 & 0o7777, 0]
    assert args["how"][0] & os.O_ACCMODE == args["access"] == os.O_WRONLY
    assert args["create"] == 3
    assert args["at"]["symbol"] == "do_sys_openat2"
    assert args["who"] == hit["comm"] == Path("/proc/self/comm").read_text().rstrip()
    path.unlink()
    with watching("-n", 1, "--filter", f'name == "{path}"', line) as tool:
        _open(path)
        shown, _ = tool.communicate(timeout=patient(100))
    assert " at=do_sys_openat2" in shown
    assert f' name="{path}" how={{0x' in shown


@pytest.mark.usefixtures("kernel_events")
@pytest.mark.parametrize("command", ["define", "watch"])
def test_a_function_without_probes_is_refused_with_the_reason(command: str) -> None:
    blacklist = Path("/sys/kernel/debug/kprobes/blacklist").read_text()
    name = blacklist.splitlines()[0].split("\t")[1]
    said = event(command, f"p:usdt_test/none {name}", code=1).stderr
    assert "Failed to register probe event" in said
    assert f"({name} is " in said
    assert "kprobes blacklist" in said or "notrace" in said


@pytest.mark.usefixtures("kernel_events")
def test_watch_shows_where_probes_are_by_symbol(tmp_path: Path) -> None:
    lines = ("p:entry do_sys_openat2", "r:back do_sys_openat2 $retval:s32")
    with watching(*lines) as tool:
        _open(tmp_path / "made")
        tool.send_signal(signal.SIGINT)
        out, _ = tool.communicate(timeout=patient(100))
    mine = [line for line in out.splitlines() if f" {os.getpid()} " in line]
    assert any(" kprobes/entry (do_sys_openat2+0x0)" in line for line in mine), mine
    assert any(re.search(r" kprobes/back \(\w+\+0x\w+ <- do_sys_openat2\) ", x) for x in mine), mine
