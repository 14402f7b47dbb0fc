"""The stream of one machine, which is hostile: bounded lines, no line believed."""

from __future__ import annotations

from typing import Any

import pytest

from usdt.fleet.attendance import attendance, attendance_lines, message_lines
from usdt.fleet.machine import Machine, State

RUN = b"usdt-fleet W run\n"
EXIT = b"usdt-fleet W exit 0\n"


def machine(name: str = "web1") -> tuple[Machine, list[dict[str, Any]]]:
    found: list[dict[str, Any]] = []
    return Machine(name, "W", lambda _, one: found.append(one)), found


def test_objects_come_whole_however_the_bytes_are_cut() -> None:
    one, found = machine()
    for byte in RUN + b'{"a": 1}\n{"b": "\xc3\xa9"}\n' + EXIT:
        one.output(bytes([byte]))
    one.close(0)
    assert found == [{"a": 1}, {"b": "é"}]
    assert (one.state, one.objects, one.damaged) == (State.ANSWERED, 2, 0)


def test_a_greeting_before_the_program_speaks_is_no_answer() -> None:
    one, found = machine()
    one.output(b'Welcome!\n{"a": 0}\n' + RUN + b'{"a": 1}\n' + EXIT)
    one.close(0)
    assert (found, one.state) == ([{"a": 1}], State.ANSWERED)


def test_an_endless_greeting_is_given_up() -> None:
    one, _ = machine()
    for _ in range(100):
        one.output(b"y" * 1000 + b"\n")
    assert one.state is State.FAILED


def test_what_is_no_object_is_counted_and_the_rest_is_kept() -> None:
    one, found = machine()
    bad = [b"{", b"[1]", b"\xff\xfe", b"nan", b"[" * 100000, b"usdt-fleet W exit x"]
    one.output(RUN + b"\n".join(bad) + b'\n{"a": 1}\n' + EXIT)
    one.close(0)
    assert (found, one.damaged, one.state) == ([{"a": 1}], len(bad), State.ANSWERED)


def test_a_line_without_end_is_dropped() -> None:
    one, found = machine()
    one.output(RUN)
    for _ in range(100):
        one.output(b"x" * 100_000)
    one.output(b'\n{"a": 1}\n' + b"y" * 2_000_000 + b'\n{"a": 2}\n' + EXIT)
    one.close(0)
    assert (found, one.damaged) == ([{"a": 1}, {"a": 2}], 2)


def test_a_line_of_another_run_is_not_ours() -> None:
    one, _ = machine()
    one.output(RUN + b"usdt-fleet V exit 0\n")
    one.close(0)
    assert (one.state, one.damaged) == (State.FAILED, 1)


@pytest.mark.parametrize(
    ("output", "errors", "status", "reason"),
    [
        (b"", b"ssh: connect to host web1 port 22: Connection refused\n", 255,
         "ssh: connect to host NODE port 22: Connection refused"),
        (b"", b"ssh: no route\nclush: web1: exited with exit code 255\n", 255, "ssh: no route"),
        (b"", b"clush: web1: exited with exit code 3\n", 3, "clush: NODE: exited with exit code 3"),
        (b"", b"", 127, "no answer; the transport exited with status 127"),
        (b"usdt-fleet W fail needs Python 3.11 or newer, found 3.9.2\n", b"", 1,
         "needs Python 3.11 or newer, found 3.9.2"),
        (RUN + b'{"a": 1}\n', b"", 255, "the connection was lost before the command had ended"),
        (RUN + b"usdt-fleet W exit 1\n", b"tracing\nError: no \x1b[2J probe\n", 0,
         r"no \x1b[2J probe"),
        (RUN + b"usdt-fleet W fail it ended early\nusdt-fleet W exit 0\n", b"", 0,
         "it ended early"),
        (RUN + b"usdt-fleet W exit 137\n", b"", 0, "the command exited with status 137"),
    ],
    ids=["refused", "through clush", "only a status", "no program", "old Python", "lost", "error",
         "ended early", "killed"],
)  # fmt: skip
def test_a_failure_has_a_reason(output: bytes, errors: bytes, status: int, reason: str) -> None:
    one, _ = machine()
    one.output(output)
    one.errors(errors)
    one.close(status)
    assert (one.state, one.reason) == (State.FAILED, reason)


def test_only_a_whole_name_is_that_of_a_machine() -> None:
    one, _ = machine("a")
    one.errors(b"ssh: a: no route to a, not to a-b or a1\n")
    one.close(255)
    assert one.reason == "ssh: NODE: no route to NODE, not to a-b or a1"


def test_a_machine_that_has_no_copy_asks_once() -> None:
    one, _ = machine()
    asked = []
    one.on_need = lambda: asked.append(1)
    one.output(b"usdt-fleet W need\nusdt-fleet W need\n")
    assert (asked, one.received, one.damaged) == ([1], True, 1)


def test_attendance_groups_machines_by_reason() -> None:
    machines = [machine(f"web{number}")[0] for number in range(1, 11)]
    for index, one in enumerate(machines):
        if index < 6:
            one.output(RUN + EXIT)
            one.errors(b"tracing 1 site; end with ^C\nlibrary loaded\n5 events, 0 lost\n")
        one.errors(b"" if index < 6 else f"ssh: web{index + 1}: no route\n".encode())
        if index < 9:
            one.close(255)
    machines[9].give_up("no answer within 5 s")
    assert attendance(machines) == {
        "asked": 10, "answered": 6, "failed": 3, "late": 1,
        "reasons": [
            {"state": "failed", "reason": "ssh: NODE: no route", "nodes": "web[7-9]", "count": 3},
            {"state": "late", "reason": "no answer within 5 s", "nodes": "web10", "count": 1},
        ],
    }  # fmt: skip
    assert attendance_lines(machines) == [
        "10 asked, 6 answered, 3 failed, 1 late",
        "failed: web[7-9] (3): ssh: NODE: no route",
        "late: web10 (1): no answer within 5 s",
    ]
    assert message_lines(machines) == ["web[1-6]: library loaded"]
