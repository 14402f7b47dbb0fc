"""``usdt run -k``: reports of what cannot be read, and of keys that are not there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from program_runs import Run

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("ringbuf")]

_READ = "helper: probe_read, retcode: -14"
_TEXT = "helper: probe_read_str, retcode: -14"
_LOOKUP = "helper: map_lookup_elem, retcode: 0"
_DELETE = "helper: map_delete_elem, retcode: -2"
_NO_KEY = "Can't lookup map element because it does not exist."
_CASES = {
    "$p = (uint64 *)0; print(*$p);": ("0", [(33, "Bad address", _READ)]),
    "$p = (uint8 *)0; print((1, $p[3]));": ("(1, 0)", [(36, "Bad address", _READ)]),
    'printf("%s|", str(0));': ("|", [(23, "Bad address", _TEXT)]),
    "print(((struct task_struct *)8)->pid);": ("0", [(15, "Bad address", _READ)]),
    "print(curtask->pid == tid);": ("true", []),
    "@a[1] = 1; print(@a[1]); print(@a[2]); clear(@a);": ("1\n0", [(40, _NO_KEY, _LOOKUP)]),
    "$i = 0; @a[5] = 1; print(@a[$i++]); print($i); clear(@a);": (
        "0\n1",
        [(34, _NO_KEY, _LOOKUP)],
    ),
    '@t["x"] = (1, 2); print(@t["y"]); clear(@t);': ("(0, 0)", [(33, _NO_KEY, _LOOKUP)]),
    "@a[1] = 1; delete(@a, 1); delete(@a, 2); clear(@a);": (
        "",
        [(35, "Can't delete map element because it does not exist.", _DELETE)],
    ),
    "@a[1] = 1; print((delete(@a, 1), delete(@a, 1)));": (
        "(true, false)",
        [(42, "Can't delete map element because it does not exist.", _DELETE)],
    ),
    # What is not evaluated is not reported.
    "$p = (uint64 *)0; if ($p != 0 && *$p == 1) { print(1); } print(2);": ("2", []),
}


@pytest.mark.parametrize("body", _CASES)
def test_what_is_missing_is_reported_at_its_place(
    run: Run, capfd: pytest.CaptureFixture[str], body: str
) -> None:
    shown, reports = _CASES[body]
    printed = run(f"BEGIN {{ {body} exit(); }}", helper_errors=True)
    assert printed.removesuffix("\n") == shown
    expected = []
    for column, what, more in reports:
        expected += [f"-e:1:{column}: WARNING: {what}", f"Additional Info - {more}"]
    assert capfd.readouterr().err.splitlines() == expected


def test_without_the_option_nothing_is_said(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("BEGIN { print(*(uint64 *)0); print(@a[1]); @a[2] = 1; clear(@a); exit(); }") == (
        "0\n0\n"
    )
    assert not capfd.readouterr().err


def test_reports_in_json(run: Run) -> None:
    text = "BEGIN {\n  @a[1] = 1; print(@a[2]); print(*(uint32 *)0); clear(@a); exit(); }"
    lines = run(text, helper_errors=True, form="json").splitlines()
    found = [json.loads(line) for line in lines]
    where = {"filename": "stdin", "line": 2}
    first = {"msg": "Success", "helper": "map_lookup_elem", "retcode": 0, **where, "col": 20}
    second = {"msg": "Bad address", "helper": "probe_read", "retcode": -14, **where, "col": 34}
    reports = [one for one in found if one.pop("type") == "helper_error"]
    assert reports == [first, second]


def test_strings_of_tracepoints_are_there(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    body = "@[args.prev_comm, args.next_prio] = count(); print(args.prev_comm); clear(@); exit();"
    assert run(f"tracepoint:sched:sched_switch {{ {body} }}", helper_errors=True).strip()
    assert not capfd.readouterr().err
