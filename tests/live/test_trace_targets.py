"""Whom ``usdt trace`` can be pointed at, what ends it, and what it does when targets change."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fixtures import Fixture, build, start
from patience import patient
from streams import read_events
from tracing_tools import (
    fire_until_traced,
    leftovers,
    private,
    run_usdt,
    tracing,
    until,
    usdt,
)

from usdt.bpf.features import links_filter_processes

if TYPE_CHECKING:
    from collections.abc import Iterator

# The probe count3 of args: three integers of each round.
_COUNT3 = "args:count3(arg0,arg1,arg2)"


def count3(hits: list[dict[str, Any]]) -> list[list[Any]]:
    """The values of count3, of what was printed as of what was traced."""
    own = [hit["args"] for hit in hits if hit["probe"] == "args:count3"]
    return [list(args.values()) if isinstance(args, dict) else args for args in own]


def of_probe(records: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """The hits of one probe."""
    return [record for record in records if record["probe"] == name]


@contextlib.contextmanager
def waiting(*words: object) -> Iterator[Fixture]:
    """A fixture that waits, about to fire count3 twice unless told otherwise."""
    path, *options = words
    with start(str(path), "-w", *(options or ("-n", 2))) as fixture:
        yield fixture.wait_ready()


def assert_traced(fixture: Fixture, *words: object, before: tuple[str, ...] = ()) -> None:
    """What the fixture prints about count3 from now on is what these words trace of it."""
    with usdt("trace", "--json", *words, before=before) as tool:
        tool.wait_tracing()
        printed = len(fixture.hits)
        fixture.fire()
        expected = count3(fixture.hits[printed:])
        assert expected
        assert count3(tool.wait_events(len(expected))) == expected
        tool.stop()


def code_of(fixture: Fixture, path: Path) -> bytes:
    """The program's instructions, as they are in the process now."""
    lines = Path(f"/proc/{fixture.pid}/maps").read_text().splitlines()
    line = next(line for line in lines if line.endswith(str(path)) and " r-xp " in line)
    first, last = (int(address, 16) for address in line.split()[0].split("-"))
    with Path(f"/proc/{fixture.pid}/mem").open("rb", buffering=0) as memory:
        memory.seek(first)
        return memory.read(last - first)


# ---------------------------------------------------------------- libraries that come later


@pytest.mark.parametrize("probes", [("dlopened:before", "plugin:*"), ("plugin:*",)])
def test_a_library_opened_later_is_traced_from_then_on(probes: tuple[str, ...]) -> None:
    with (
        waiting(build("default", "dlopened")) as fixture,
        tracing("-p", fixture.pid, *probes) as tool,
    ):
        tool.wait_error("plugin:*")
        fixture.send("open")
        fixture.wait_line("opened")
        fire_until_traced(fixture, tool, "plugin:counter")
        before = len(fixture.hits)
        fixture.fire()
        printed = of_probe(fixture.hits[before:], "plugin:counter")
        fixture.finish()
        traced = of_probe(tool.wait_end(), "plugin:counter")
        assert [hit["args"]["arg0"] for hit in traced[-2:]] == [h["args"][0] for h in printed]


@pytest.mark.usefixtures("sleepable_uprobes")  # the string is on a page that nobody has read
def test_a_library_closed_and_opened_again_is_still_traced() -> None:
    with (
        waiting(build("default", "dlopened"), "-n", 1) as fixture,
        tracing("-p", fixture.pid, "plugin:hit(str(arg1))") as tool,
    ):
        fixture.send("open")
        fixture.wait_line("opened")
        fire_until_traced(fixture, tool, "plugin:hit")
        for order in ("close", "open"):
            fixture.send(order)
            fixture.wait_line(order)
        known = len(tool.events)
        fixture.fire()
        assert tool.wait_events(known + 1)[-1]["args"] == {"str(arg1)": "even plug-in"}
        tool.stop()


def test_a_command_is_traced_in_what_it_opens_later(tmp_path: Path) -> None:
    path, output = build("default", "dlopened"), tmp_path / "events"
    words = ("-o", output, "dlopened:before", "plugin:hit(arg0,str(arg1))")
    with tracing("-c", f"{path} -n 4 -s {patient(300_000):.0f}", *words) as tool:
        tool.wait_all()
        printed = [json.loads(line) for line in tool.lines]
    events = read_events(output.read_text())
    assert len(of_probe(events, "dlopened:before")) == 4
    traced = [[*hit["args"].values()] for hit in of_probe(events, "plugin:hit")]
    expected = [[h["args"][0], h["args"][1]["str"]] for h in of_probe(printed, "plugin:hit")]
    assert traced, "the library was opened in the first of four rounds, 0.3 s apart"
    assert traced == expected[-len(traced) :]


def test_a_library_that_never_comes_does_not_spoil_the_other_probes() -> None:
    with (
        waiting(build("default", "args")) as fixture,
        tracing("-p", fixture.pid, _COUNT3, "nowhere:to_be_found") as tool,
    ):
        fixture.fire()
        expected = count3(fixture.finish())
        assert count3(tool.wait_end()) == expected
        assert [line for line in tool.errors if "no probe nowhere:to_be_found;" in line]


# ---------------------------------------------------------------- processes that change


def test_a_process_that_executes_another_program_is_followed() -> None:
    path = build("default", "execer")
    build("default", "args")
    with (
        start(path, "-w", "-n", 2, "args", "-w", "-n", 2) as fixture,
        tracing("-p", fixture.wait_ready().pid, "execer:before", "args:count3") as tool,
    ):
        fixture.send("fire")
        fixture.wait_ready()
        fire_until_traced(fixture, tool, "args:count3")
        before = len(fixture.hits)
        fixture.fire()
        expected = count3(fixture.hits[before:])
        fixture.finish()
        events = tool.wait_end()
    assert len(of_probe(events, "execer:before")) == 2
    assert count3(events)[-2:] == expected
    assert {event["pid"] for event in events} == {fixture.pid}


def test_the_program_of_a_live_process_may_be_deleted(tmp_path: Path) -> None:
    copy = Path(shutil.copy(build("default", "args"), tmp_path / "args"))
    with waiting(copy) as fixture:
        copy.unlink()
        assert_traced(fixture, "-p", fixture.pid, _COUNT3)


def test_a_replaced_program_is_traced_as_the_process_has_it(tmp_path: Path) -> None:
    copy = Path(shutil.copy(build("default", "args"), tmp_path / "args"))
    with waiting(copy) as fixture:
        shutil.copy(build("O0", "args"), tmp_path / "new").rename(copy)
        with waiting(copy) as later:
            assert_traced(fixture, "-p", fixture.pid, _COUNT3)
            assert_traced(later, "-p", later.pid, _COUNT3)
            assert_traced(later, f"{copy}:{_COUNT3}")


def test_a_program_without_any_file_is_traced() -> None:
    run = (
        "import os, sys; number = os.memfd_create('program', 0); "
        "os.write(number, open(sys.argv[1], 'rb').read()); "
        "os.execv(f'/proc/self/fd/{number}', ['program', '-w', '-n', '2'])"
    )
    with start(sys.executable, "-c", run, build("default", "args")) as fixture:
        assert_traced(fixture.wait_ready(), "-p", fixture.pid, _COUNT3)


def test_a_process_in_another_mount_namespace_is_traced() -> None:
    path = build("default", "args")
    script = f"mount -t tmpfs none /mnt && cp {path} /mnt/inside && exec /mnt/inside -w -n 2"
    with start("unshare", "--mount", "sh", "-c", script) as fixture:
        fixture.wait_ready()
        assert not Path("/mnt/inside").exists()
        assert_traced(fixture, "-p", fixture.pid, _COUNT3)
        assert_traced(fixture, "-p", fixture.pid, f"/mnt/inside:{_COUNT3}")


def test_a_process_of_an_overlay_is_traced() -> None:
    # As containers have them: the file is the lower one, its name that of the overlay.
    path = build("default", "args")
    script = (
        f"mount -t tmpfs none /mnt && cd /mnt && mkdir lower upper work merged && "
        f"cp {path} lower/inside && "
        "mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work none merged && "
        "exec /mnt/merged/inside -w -n 2"
    )
    with start("unshare", "--mount", "sh", "-c", script) as fixture:
        fixture.wait_ready()
        assert_traced(fixture, "-p", fixture.pid, _COUNT3)
        assert_traced(fixture, "-p", fixture.pid, f"/mnt/merged/inside:{_COUNT3}")
        assert_traced(fixture, f"/proc/{fixture.pid}/root/mnt/merged/inside:{_COUNT3}")


def test_a_process_in_another_pid_namespace_is_traced() -> None:
    path = build("default", "args")
    with start("unshare", "--pid", "--fork", "--kill-child", path, "-w", "-n", 2) as fixture:
        assert fixture.wait_line("ready") == "ready 1"
        children = Path(f"/proc/{fixture.pid}/task/{fixture.pid}/children").read_text()
        assert_traced(fixture, "-p", children.strip(), _COUNT3)


def test_a_thread_stands_for_its_process() -> None:
    path = build("default", "threads")
    with start(path, "-t", 2, "-n", 20000, "-s", 50000) as fixture:  # until it is killed
        fixture.wait_hits(1)
        tasks = [int(entry.name) for entry in Path(f"/proc/{fixture.pid}/task").iterdir()]
        thread = max(tasks)
        assert thread != fixture.pid
        with tracing("-p", thread, "threads:hit") as tool:
            tool.wait_error(str(thread))
            tool.wait_events(4)
            events = tool.stop()
    assert {event["pid"] for event in events} == {fixture.pid}
    assert {event["tid"] for event in events} == set(tasks) - {fixture.pid}
    assert all(event["args"]["arg2"] == event["tid"] for event in events)


def test_a_child_that_shares_the_memory_of_its_process_is_another_process() -> None:
    with (
        waiting(build("default", "forker"), "-v", "-n", 2) as fixture,
        tracing("-p", fixture.pid, "forker:*") as tool,
    ):
        fixture.fire()
        hits = fixture.finish()
        events = tool.wait_end()
    assert {hit["pid"] == fixture.pid for hit in of_probe(hits, "forker:sharing")} == {False}
    own = [hit["probe"] for hit in hits if hit["pid"] == fixture.pid]
    assert [event["probe"] for event in events] == own
    assert {event["pid"] for event in events} == {fixture.pid}


def test_a_program_compares_process_ids_unless_its_links_do(uprobe_multi: None) -> None:
    def instructions(*words: object) -> str:
        done = run_usdt("trace", "-v", "-v", "-d", 0.1, *words, f"{path}:{_COUNT3}")
        assert done.returncode == 0
        return done.stderr

    path = build("default", "args")
    with waiting(path) as one, waiting(path) as two:
        for kind, compared in (("uprobe_multi", not links_filter_processes()), ("perf-link", True)):
            text = instructions("--via", kind, "-p", one.pid, "-p", two.pid)
            found = {pid for pid in (one.pid, two.pid) if f"== {pid:#x} goto" in text}
            assert found == ({one.pid, two.pid} if compared else set())


# ---------------------------------------------------------------- words for files


def test_a_file_may_be_named_in_any_way() -> None:
    path = build("default", "args")
    with waiting(path) as fixture:
        for folder, name in ((path.parent, "./args"), (path.parent.parent, "default/args")):
            assert_traced(fixture, f"{name}:{_COUNT3}", before=("env", "-C", str(folder)))
        search = f"PATH={path.parent}:{os.environ['PATH']}"
        assert_traced(fixture, f"args:{_COUNT3}", before=("env", search))
        assert_traced(fixture, "-p", fixture.pid, f"{path}:{_COUNT3}")


@pytest.mark.parametrize("name", ["libstdc++.so.6", "libstdc++"])
def test_a_library_may_be_named_as_the_loader_knows_it(name: str) -> None:
    with (
        waiting(build("default", "cxx"), "-n", 3) as fixture,
        tracing(f"{name}:libstdcxx:throw", f"{name}:libstdcxx:catch") as tool,
    ):
        fixture.fire()
        printed = [h for h in fixture.finish() if h["probe"].startswith("libstdcxx")]
        tool.wait_events(len(printed))
        events = [event for event in tool.stop() if event["pid"] == fixture.pid]
    assert [hit["probe"] for hit in printed] == [event["probe"] for event in events]
    pointers = [[value["ptr"] for value in hit["args"]] for hit in printed]
    assert pointers == [[*event["args"].values()] for event in events]


def test_a_link_stands_for_its_file(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(build("default", "args"))
    with waiting(build("default", "args")) as fixture:
        assert_traced(fixture, f"{link}:{_COUNT3}")


# ---------------------------------------------------------------- several at once


def test_several_processes_give_one_stream_in_order() -> None:
    paths = [build("default", "args"), build("m32", "args"), build("static", "args")]
    with contextlib.ExitStack() as stack:
        fixtures = [stack.enter_context(waiting(path)) for path in paths]
        pids = [word for fixture in fixtures for word in ("-p", fixture.pid)]
        words = (*pids, "args:count1", _COUNT3, "args:variadic12")
        tool = stack.enter_context(tracing(*words))
        for _ in range(3):
            for fixture in fixtures:
                fixture.fire()
        printed = [fixture.finish() for fixture in fixtures]
        events = tool.wait_end()
    wanted = ("args:count1", "args:count3", "args:variadic12")
    for fixture, hits in zip(fixtures, printed, strict=True):
        own = [event for event in events if event["pid"] == fixture.pid]
        assert [e["probe"] for e in own] == [h["probe"] for h in hits if h["probe"] in wanted]
        assert count3(own) == count3(hits)
    # One fired after the other, so there is one true order.
    assert [event["time"] for event in events] == sorted(event["time"] for event in events)
    assert [e["pid"] for e in events[:: 2 * 3]] == [fixture.pid for fixture in fixtures] * 3


def test_two_tracers_of_one_process_both_see_everything() -> None:
    with (
        waiting(build("default", "args"), "-n", 20) as fixture,
        tracing("-p", fixture.pid, _COUNT3) as one,
        tracing("-p", fixture.pid, _COUNT3, "args:count5") as other,
    ):
        fixture.fire()
        expected = count3(fixture.hits)
        assert count3(one.wait_events(20)) == expected
        one.stop()
        fixture.fire()
        everything = count3(fixture.finish())
        assert count3(other.wait_end()) == everything
        assert len(everything) == 40


# ---------------------------------------------------------------- what ends it


@pytest.mark.parametrize("count", [1, 7, 57])
def test_so_many_events_and_no_more(count: int) -> None:
    with (
        waiting(build("default", "args"), "-n", 1000) as fixture,
        tracing("-p", fixture.pid, "-n", count, "args:*") as tool,
    ):
        fixture.send("fire")
        assert len(tool.wait_end()) == count
        assert tool.closing == (count, 0)
        fixture.finish()


def test_so_many_seconds() -> None:
    with waiting(build("default", "args")) as fixture:
        with tracing("-p", fixture.pid, "-d", 1, _COUNT3) as tool:
            fixture.fire()
            assert count3(tool.wait_end()) == count3(fixture.hits)
            assert time.monotonic() - tool.began > 1
        fixture.finish()


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda one: one.name
)
def test_a_signal_ends_it_with_everything_delivered(number: int, tmp_path: Path) -> None:
    path = private(build("default", "args"), tmp_path)
    with waiting(path, "-n", 300) as fixture:
        before = code_of(fixture, path)
        with tracing("-p", fixture.pid, "args:*") as tool:
            assert code_of(fixture, path) != before
            fixture.fire()
            assert len(tool.stop(number)) == 300 * 19
        assert code_of(fixture, path) == before, "a breakpoint was left behind"
        fixture.fire()
        fixture.finish()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_it_ends_with_the_process(number: int) -> None:
    with (
        waiting(build("default", "args")) as fixture,
        tracing("-p", fixture.pid, _COUNT3) as tool,
    ):
        fixture.fire()
        fixture.process.send_signal(number)
        assert count3(tool.wait_end()) == count3(fixture.hits)


def test_it_ends_with_the_last_of_several_processes() -> None:
    path = build("default", "args")
    with (
        waiting(path) as one,
        waiting(path) as two,
        tracing("-p", one.pid, "-p", two.pid, _COUNT3) as tool,
    ):
        one.kill()
        two.fire()
        tool.wait_events(2)
        assert tool.code is None
        two.kill()
        tool.wait_end()


def test_a_killed_tracer_leaves_nothing_behind(tmp_path: Path) -> None:
    path = private(build("default", "args"), tmp_path)
    with waiting(path) as fixture:
        before, known = code_of(fixture, path), leftovers()
        with tracing("-p", fixture.pid, "args:*") as tool:
            tool.kill()
        until(lambda: code_of(fixture, path) == before, "the breakpoints to go")
        until(lambda: leftovers() <= known, "programs, maps and links to go")
        fixture.fire()
        fixture.finish()


# ---------------------------------------------------------------- -c and -o


def test_a_command_is_traced_from_its_first_instruction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USDT_COLD", "1")  # as users start it, in virtual machines as well
    output = tmp_path / "events"
    with tracing("-c", f"{build('default', 'args')} -n 1", "-o", output, _COUNT3) as tool:
        assert tool.wait_all() == 0
    assert "1 event, 0 lost" in tool.errors
    printed = [json.loads(line) for line in tool.lines]
    assert count3(read_events(output.read_text())) == count3(printed)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        pytest.param("{args} -n 1 -q", 0, id="that of a success"),
        pytest.param("{args} --no-such-option", 2, id="that of a failure"),
        pytest.param("sh -c 'kill -TERM $$'", 128 + 15, id="128 and the signal"),
    ],
)
def test_the_exit_code_is_the_commands_if_asked_for(command: str, code: int) -> None:
    path = build("default", "args")
    words = ("trace", "-c", command.format(args=path), "-d", 10)
    # The file is named, because the shell has no probes of its own.
    assert run_usdt(*words, "--exit-code", f"{path}:args:*").returncode == code
    assert run_usdt(*words, f"{path}:args:*").returncode == 0


def test_a_command_is_split_as_a_shell_splits_it() -> None:
    path = build("default", "args")
    command = f'env "A B=c d" \'{path}\' -n "3" -q'
    with tracing("-c", command, f"{path}:{_COUNT3}") as tool:
        assert len(tool.wait_end()) == 3


def test_a_file_holds_what_was_traced_and_nothing_else(tmp_path: Path) -> None:
    output = tmp_path / "events"
    output.write_text("what was there before\n" * 100)
    with (
        waiting(build("default", "args")) as fixture,
        tracing("-p", fixture.pid, "-o", output, _COUNT3) as tool,
    ):
        fixture.fire()
        tool.process.send_signal(signal.SIGINT)
        assert tool.wait_all() == 0
        assert tool.closing == (2, 0)
    assert tool.lines == []
    events = read_events(output.read_text())
    assert count3(events) == count3(fixture.hits)


def test_text_lines_hold_the_same_values() -> None:
    with waiting(build("default", "strings"), "-n", 1) as fixture:
        with usdt(
            "trace", "-p", fixture.pid, "strings:heap(str(arg0),arg1)", "strings:null"
        ) as tool:
            tool.wait_tracing()
            fixture.fire()
            fixture.finish()
            assert tool.wait_all() == 0
        null, heap = tool.lines
        assert re.search(rf"\b{fixture.pid}\b.*strings:null\b.*\barg0=0$", null)
        assert re.search(r"strings:heap\b.*str\(arg0\)=\"a\"  arg1=1$", heap)
