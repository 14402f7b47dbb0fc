"""Types in programs of ``usdt run``: declarations, casts, pointers to pointers, sizes."""

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
    "declared": (
        (
            'let $s: string; let $t: string[4] = "too long"; let $u: uint8 = 300;'
            " let $a: int32[3]; let $p: uint64 *; print(($s, $t, $u, $a)); print($p);"
        ),
        "(, too, 44, [0,0,0])\n0x0\n",
    ),
    "declared, and assigned a type later": (
        (
            'let $s; if (pid) { $s = "text"; } print($s); let $i; print($i); let $small;'
            " $small = (int8)1; print(sizeof($small)); let $t; let $u = $t; $t = (1, 2); print($u);"
        ),
        "text\n0\n1\n(0, 0)\n",
    ),
    "numbers and arrays": (
        (
            "$a = (uint8[4])0x04030201; print($a); print($a[3]); print((uint32)$a);"
            " print((int16[])$a); print((bool[2])(uint16)1); @k[$a] = 1; print(@k); clear(@k);"
        ),
        "[1,2,3,4]\n4\n67305985\n[513,1027]\n[true,false]\n@k[[1,2,3,4]]: 1\n\n",
    ),
    "strings in strings": (
        (
            '$n = "wor"; print((strcontains("hello world", $n), strcontains("or", "wor")));'
            ' $n = ""; print((strcontains("", $n), strcontains("x", $n), strcontains(comm, comm)));'
            ' $h = "ab\\0cd"; $n = "b\\0x"; print((strcontains($h, $n), strcontains($h, "cd")));'
            ' print((strcontains("abc", "abcd"), strcontains("aab", "ab"), strcontains("b", "")));'
        ),
        "(true, false)\n(true, true, true)\n(true, false)\n(false, true, true)\n",
    ),
    "strings": ('print(((bool)"x", (bool)"")); print((string[8])"text");', "(true, false)\ntext\n"),
    "sizes": (
        (
            "$t = ((int8)1, (int32)2, (int16)3); print(sizeof($t)); print(sizeof(int32[3]));"
            ' print(sizeof(typeof($t))); print(sizeof(("abc", (int16)1)));'
        ),
        "12\n12\n12\n6\n",
    ),
    "records in another order": (
        (
            '$r = (a={ printf("1"); 1 }, b="x");'
            ' $r = (b={ printf("2"); "longer" }, a={ printf("3\\n"); 2 }); print($r); print($r.b);'
        ),
        "123\n{ .a = 2, .b = longer }\nlonger\n",
    ),
    "buffers": (
        (
            '$a = buf("hi", 2); printf("%r %r\\n", $a, buf("text"));'
            ' print($a == buf("hi", 2)); print($a == buf("hello", 5));'
        ),
        "hi text\ntrue\nfalse\n",
    ),
    "enumerators": (
        (
            'print(A); print((A, B)); printf("%s %d\\n", B, B); @k[B] = N; @k[(enum e)1] = A;'
            " print(@k); @plain = A; @plain = 7; print(@plain); print(A + 2); $n = N; print($n);"
            " clear(@k); clear(@plain);"
        ),
        "A\n(A, B)\nB 3\n@k[B]: N\n@k[A]: A\n\n@plain: 7\n3\nN\n",
    ),
    "offsets in the type of a value": (
        (
            "$s = (struct open *)0; print(offsetof(*$s, c)); print(offsetof($s, b.a));"
            " print(offsetof(curtask, pid) == offsetof(struct task_struct, pid));"
        ),
        "4\n0\ntrue\n",
    ),
    "a value, or another": (
        (
            "$i = 0; print($i++ ?: 7); $i++; print($i ?: 7); print(0 ?: 0 ?: 3); print($i);"
            " print(sizeof(curtask.comm)); print(sizeof((1 ?: 2)));"
        ),
        "7\n2\n3\n2\n16\n1\n",
    ),
    "what is known before": (
        (
            'print(comptime (1 + 2)); if comptime (probetype == "interval") { print(unknown); }'
            ' else if comptime (2 > 1) { print("then"); } else { unknown(); }'
            ' $v = if comptime true { 5 } else { unknown }; print($v); print("a" != "ab");'
        ),
        "3\nthen\n5\ntrue\n",
    ),
    "a structure without ; at its end": ("print(sizeof(struct open));", "8\n"),
}


@pytest.mark.parametrize("name", _BODIES)
def test_types(run: Run, name: str) -> None:
    body, printed = _BODIES[name]
    types = "enum e { A = 1, B = 3, N = -2 } struct open { struct { int a[1] } b; int c }"
    assert run(f"{types} BEGIN {{ {body} exit(); }}") == printed


_C = """
#include <sys/sdt.h>
struct point { int x, y; };
int main(void)
{
    struct point points[2] = {{1, 2}, {3, 4}}, *both[2] = {&points[0], &points[1]};
    int number = 5, *one = &number, *numbers[2] = {one, &points[1].y};
    DTRACE_PROBE2(pointers, hit, both, numbers);
    DTRACE_PROBE1(pointers, array, points);
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a program whose probes have pointers to pointers."""
    folder = tmp_path_factory.mktemp("pointers")
    (folder / "pointers.c").write_text(_C)
    subprocess.run(("gcc", "-o", folder / "pointers", folder / "pointers.c"), check=True)
    return folder / "pointers"


def test_pointers_to_pointers(run: Run, program: Path) -> None:
    text = (
        f"struct point {{ int x; int y; }} usdt:{program}:pointers:hit {{"
        " $pp = (struct point **)arg0; print((*$pp).y); print((*($pp + 1))->x); print($pp[1]->y);"
        " $nn = (int32 **)arg1; print(**$nn); print(**($nn + 1)); print(*$nn[0]); }"
    )
    assert run(text, command=str(program)) == "2\n3\n4\n5\n4\n5\n"


def test_a_declared_array_of_structures(run: Run, program: Path) -> None:
    text = (
        "struct point { int x; int y; } struct two { struct point p[2]; }"
        f" usdt:{program}:pointers:array {{ let $p: struct point[2]; print($p[1].y);"
        " $two = (struct two *)arg0; $p = $two->p; print($p[1].y); print($p); }"
    )
    printed = "0\n4\n[{ .x = 1, .y = 2 },{ .x = 3, .y = 4 }]\n"
    assert run(text, command=str(program)) == printed


def test_all_fields_of_a_tracepoint_as_a_record(run: Run) -> None:
    text = (
        "tracepoint:syscalls:sys_enter_openat /pid == cpid/"
        " { $a = args; print($a.dfd == args.dfd); print($a.flags == args.flags); }"
    )
    assert {*run(text, command="cat /dev/null").split()} == {"true"}


_REFUSED = {
    "@x[0] = ();": "() has no bytes that a map can store",
    "@x[((), ())] = 1;": "((), ()) has no bytes that a map can store",
    "print((uint8[16])1);": "int8 cannot be cast to uint8[16]",
    "print((int32)(1, 2));": "(int8, int8) cannot be cast to int32",
    '$a = "abc"; print((string[2])$a);': "string[4] cannot be cast to string[2]",
    "print(offsetof(1, a));": "offsetof() takes a structure, not int8",
    "$x = 1; print(comptime $x);": "comptime: this is not known before the program runs",
    "if comptime pid { }": "comptime: this is not known before the program runs",
    "let $x: struct nosuch;": "no type 'struct nosuch'",
    "let $x: uint8[0];": "an array has 1 to 65536 elements, not 0",
    "let $x: uint64[60000];": "the array is larger than 65536 bytes",
    "@h = hist(1); @h = hist(5, 2);": "numbers 0 elsewhere, here hist() with the numbers 2",
    "$r = (a=1); $r = (b=1);": "$r: (a=int8) elsewhere, here (b=int8)",
    "$p = (int32 *)0; print(**$p);": "* follows a pointer, not int32: cast it first",
}


@pytest.mark.parametrize("body", _REFUSED)
def test_types_that_do_not_fit(run: Run, body: str) -> None:
    with pytest.raises(LanguageError) as caught:
        run(f"BEGIN {{ {body} exit(); }}")
    assert _REFUSED[body] in str(caught.value)


@pytest.mark.parametrize(
    "body",
    ["let $x = 1; { let $x = 2; }", "$x = 1; let $x = 2;", "$x = 1; for ($x : 0..3) { }"],
)
def test_a_variable_is_declared_once(run: Run, body: str) -> None:
    with pytest.raises(LanguageError, match=r"\$x was already declared"):
        run(f"begin {{ {body} exit(); }}")


def test_a_variable_is_declared_again_where_the_first_has_ended(run: Run) -> None:
    body = "if (pid) { let $x = 1; } let $x = 3; unroll(2) { let $y = 1; } for ($i : 0..2) { }"
    assert run(f"begin {{ {body} for ($i : 0..1) {{ print($x); }} exit(); }}") == "3\n"
