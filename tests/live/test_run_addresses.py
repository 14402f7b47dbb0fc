"""Addresses in programs of ``usdt run``: of variables and maps, moved, and of characters."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from usdt.base.errors import LanguageError

if TYPE_CHECKING:
    from pathlib import Path

    from program_runs import Run

# What stands between BEGIN { and exit(); } → what it prints
_BODIES = {
    "a variable": (
        "$a = (int32)-5; $b = &$a; print(*$b); $a = 7; print(*$b); $c = &$b; print(**$c);",
        "-5\n7\n7\n",
    ),
    "a map": (
        (
            "@a = 5; $b = &@a; print(*$b); clear(@a); if (pid == 0) { @n = 1; }"
            " $b = &@n; print($b == 0); print(*$b);"
        ),
        "5\ntrue\n0\n",
    ),
    "values in memory": (
        (
            '$s = (1, "abc"); $p = &$s; print(*$p); print((*$p).1); $t = "xyz"; $q = &$t;'
            ' print(str($q)); $t = "new"; print(*$q); @m = "map"; print(*&@m); clear(@m);'
        ),
        "(1, abc)\nabc\nxyz\nnew\nmap\n",
    ),
    "moved": (
        "$p = (int32 *)0; $p += 2; print($p); $p -= 1; print($p); $p++; print($p);",
        "0x8\n0x4\n0x8\n",
    ),
    "in loops": (
        (
            "for ($i : 0..2) { $p = &$i; print(*$p); } @k[1] = 2;"
            " for ($kv : @k) { $q = &$kv; print((*$q).1); } clear(@k);"
        ),
        "0\n1\n2\n",
    ),
    "characters": (
        '$s = "a\\xff"; $i = 1; print(($s[0], $s[$i], $s[2], sizeof($s[0]))); print("xyz"[1]);',
        "(97, -1, 0, 1)\n121\n",
    ),
}


@pytest.mark.parametrize("name", _BODIES)
def test_addresses(run: Run, name: str) -> None:
    body, printed = _BODIES[name]
    assert run(f"BEGIN {{ {body} exit(); }}") == printed


_REFUSED = {
    "@n = count(); $p = &@n;": "@n holds count(), which has no address",
    "@n[1] = 1; $p = &@n;": "@n is used with keys elsewhere in the program",
    "$p = &$none;": "$none has no value here",
    "$p = &pid;": "& takes a variable or a map without keys",
    'print("abc"[4]);': "the index 4 is out of bounds for array of size 4",
}


@pytest.mark.parametrize("body", _REFUSED)
def test_what_has_no_address(run: Run, body: str) -> None:
    with pytest.raises(LanguageError) as caught:
        run(f"BEGIN {{ {body} exit(); }}")
    assert _REFUSED[body] in str(caught.value)


_C = """
#include <sys/sdt.h>
struct pair { int one; long two; } pairs[3] = {{1, 10}, {2, 20}, {3, 30}};
int main(void) { DTRACE_PROBE1(walk, pairs, pairs); return 0; }
"""


def test_pointers_step_by_their_target(run: Run, tmp_path: Path) -> None:
    program = tmp_path / "walk"
    (tmp_path / "walk.c").write_text(_C)
    subprocess.run(("gcc", "-o", program, tmp_path / "walk.c"), check=True)
    text = (
        f"struct pair {{ int one; long two; }} usdt:{program}:walk:pairs {{"
        " $p = (struct pair *)arg0; print(($p++).two); print(($p++)->one); print($p.two);"
        " print((--$p).two); $p--; print($p.one); }"
    )
    assert run(text, command=str(program)) == "10\n2\n30\n20\n1\n"
