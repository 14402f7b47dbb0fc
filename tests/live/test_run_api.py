"""``usdt.run``: programs from Python, on the running kernel."""

from __future__ import annotations

import asyncio
import pwd
import threading
from typing import Any

import pytest
from fixtures import build, start

import kprobe
import usdt

pytestmark = pytest.mark.usefixtures("ringbuf")


def printed(text: str, **values: Any) -> list[tuple[Any, ...]]:
    with usdt.run(text, **values) as program:
        return [(event.kind, event.text, event.values, event.map) for event in program]


def test_what_is_printed_is_objects() -> None:
    text = """BEGIN { @m[1, "a"] = 5; printf("%d %s\\n", 1, "one"); print((1, "a", true));
        print(@m); warnf("careful"); exit(); }"""
    assert printed(text) == [
        ("printf", "1 one\n", (1, "one"), ""),
        ("value", "(1, a, true)\n", ((1, "a", True),), ""),
        ("map", "@m[1, a]: 5\n", ({(1, "a"): 5},), "@m"),
        ("message", "program:2:20: WARNING: careful", (), ""),
    ]


def test_maps_are_dictionaries_and_stay() -> None:
    text = """BEGIN { @n = 3; @nothing[1] = 1; delete(@nothing, 1); @k["a"] = count(); @t[1, 2] = 7;
        @avg[1] = avg(3); @avg[1] = avg(4); @stats = stats(4); @lin = lhist(5, 0, 10, 2);
        @log = hist(-1); @log = hist(3); } END { @end = 1; }"""
    with usdt.run(text) as program:
        assert list(program) == []
    assert dict(program.maps) == {
        "@n": 3,
        "@nothing": {},
        "@k": {"a": 1},
        "@t": {(1, 2): 7},
        "@avg": {1: 3.5},
        "@stats": {"count": 1, "average": 4.0, "total": 4},
        "@lin": [(4, 6, 1)],
        "@log": [(None, 0, 1), (0, 1, 0), (1, 2, 0), (2, 4, 1)],
        "@end": 1,
    }
    with pytest.raises(KeyError):
        program.maps["@other"]


def test_maps_are_read_while_the_program_runs() -> None:
    with usdt.run("interval:ms:5 { @n++; print(@n); }") as program:
        event = next(iter(program))
        assert program.maps["@n"] >= event.value >= 1
        program.close()
        assert list(program) == []


def test_exit_ends_the_iteration_with_its_code() -> None:
    with usdt.run("BEGIN { exit(3); } END { print($1); }", args=[42]) as program:
        assert [event.value for event in program] == [42]
        assert program.code == 3
        assert program.ended


def test_the_end_of_a_command_ends_the_iteration() -> None:
    text = "tracepoint:syscalls:sys_enter_exit_group /pid == cpid/ { print((comm, pid)); }"
    with kprobe.run(text, command=["/bin/true"]) as program:
        ((name, pid),) = [event.value for event in program]
    assert name == "true"
    assert pid > 0


def test_finish_runs_end() -> None:
    with usdt.run("interval:s:1000 { } END { print(7); }") as program:
        assert program.poll() == []
        assert [event.value for event in program.finish()] == [7]


@pytest.mark.parametrize("leave", ["break", "close"])
def test_end_does_not_run_after(leave: str) -> None:
    with usdt.run("interval:ms:5 { @hits++; print(1); } END { @end = 1; }") as program:
        for _ in program:
            if leave == "break":
                break
            program.close()
    assert program.maps["@end"] is None
    assert program.maps["@hits"] >= 1


def test_one_process_is_traced() -> None:
    loop = build("default", "loop")
    with start(loop, "-w", "-q", "-n", 3) as one, start(loop, "-w", "-q", "-n", 3) as other:
        traced = one.wait_ready()
        other.wait_ready()
        text = f"usdt:{loop}:loop:hit {{ print((pid, arg0)); }}"
        with usdt.run(text, pid=traced.pid) as program:
            other.fire()
            other.finish()
            one.fire()
            one.finish()
            assert [event.value for event in program] == [(one.pid, n) for n in range(3)]


def test_a_command_of_another_user_in_an_async_loop() -> None:
    text = "tracepoint:syscalls:sys_enter_exit_group /pid == cpid/ { print(uid); }"

    async def collected() -> list[Any]:
        with usdt.run(text, command="/bin/true", user="nobody") as program:
            return [event.value async for event in program]

    assert asyncio.run(collected()) == [pwd.getpwnam("nobody").pw_uid]


def test_close_in_another_thread_ends_an_iteration() -> None:
    with usdt.run("interval:s:1000 { }") as program:
        timer = threading.Timer(0.05, program.close)
        timer.start()
        assert list(program) == []
        timer.join()


def test_what_is_refused() -> None:
    with pytest.raises(usdt.LanguageError, match=r"program:1:9: .*nosuch"):
        usdt.run("BEGIN { nosuch(1); }")
    with pytest.raises(usdt.LanguageError, match="unsafe"):
        usdt.run('BEGIN { system("true"); }')
    with pytest.raises(TypeError, match="expected a string"):
        usdt.run(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="args"):
        usdt.run("BEGIN { }", args="12")
