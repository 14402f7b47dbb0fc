"""The types and signs of integers in programs: constants, operators, assignments, truths."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import usdt

if TYPE_CHECKING:
    from program_runs import Run

# What stands between BEGIN { and exit(); } → the values that it prints
_BODIES = {
    "constants have the smallest type": (
        """
        print(sizeof(127)); print(sizeof(128)); print(sizeof(-128)); print(sizeof(-129));
        print(sizeof(40000)); print(sizeof(0xffffffff)); print(sizeof(0xffffffffffffffff));
        print(sizeof(1 + 1)); print(sizeof(100 * 100)); print(sizeof((1, 300, -1)));
        """,
        "1 2 1 2 4 8 8 1 2 6",
    ),
    "results have 64 bits": (
        """
        $x = 1; print(sizeof($x + 1)); print(sizeof(-$x)); print(sizeof((uint8)5 + $x));
        $x = $x * 1000; print($x);
        """,
        "8 8 8 1000",
    ),
    "variables become as large as what is assigned": (
        """
        $x = 1; print($x); $x = 300; print(sizeof($x)); print($x);
        $u = (uint8)1; $u = 300; print($u); $s = (uint8)1; $s = -1; print($s);
        $t = (1, 2); $t = (300, 4); print($t.0); print(sizeof($t));
        $c = pid ? 1 : 70000; print(sizeof($c));
        """,
        "1 2 300 300 -1 300 4 4",
    ),
    "what is counted up becomes larger": (
        """
        $v = (uint8)255; $v++; print($v); $w = (int8)127; ++$w; print($w);
        $d = (int8)-128; $d--; print($d); $i = 0; while ($i < 300) { $i++; } print($i);
        @z = (int8)127; @z++; print(@z); clear(@z);
        """,
        "256 128 -129 300 128",
    ),
    "differences are signed": (
        """
        @x = (uint8)5; @x -= 10; print(@x); clear(@x); $p = (uint64)5; $q = (uint64)7;
        print($p - $q); print($p - 10); print($p - $q < 0); print(pid - pid - 1 < 0);
        """,
        "-5 -2 -5 True True",
    ),
    "a constant is as the number beside it, unless it is negative": (
        """
        $u = (uint64)-1; print($u > 1); print($u + 0 == $u); print(($u / 2) >> 62);
        $p = (uint64)5; print($p + -6);
        """,
        "True True 1 -1",
    ),
    "signed beside unsigned": (
        """
        $u = (uint64)7; $s = -9; print($u + $s); print($u * $s); print((int8)-1 + (uint8)1);
        print((uint32)5 / (int32)-1);
        """,
        "-2 -63 0 0",
    ),
    "comparisons as in C": (
        """
        print((uint64)1 > -1); print((int64)-1 < (uint64)1); print((uint32)1 > -1);
        $u = (uint64)7; $s = -9; print($u < $s); print((uint8)200 > $s); print($u > 6);
        """,
        "False False True True True True",
    ),
    "processes are 32 bits": (
        """
        $n = (int64)-2; print($n > pid); print($n > tid); print(pid > $n); print($n < pid(init));
        print($n < uid); print(sizeof(pid)); print(sizeof(tid)); print(sizeof(uid));
        print(pid << 32 >> 32 == tid(curr_ns)); print(pid - pid - 1);
        """,
        "False False True True False 4 4 8 True -1",
    ),
    "truths": (
        """
        $t = true; $f = false; print($t + $t); print($t - $t); print($t & $f); print($t | $f);
        print($t ^ $t); print($t * 3); print($t + 1); print(true + true); print($t == 1);
        """,
        "True False False True False 3 2 True True",
    ),
    "constant strings have an order": (
        """
        print("a" < "b"); print("b" < "a"); print("ab" <= "ab"); print("ab" >= "abc");
        print("" < "a"); print("Z" > "a");
        """,
        "True False True False True False",
    ),
}


@pytest.mark.parametrize("name", _BODIES)
def test_integers(name: str) -> None:
    body, printed = _BODIES[name]
    with usdt.run(f"BEGIN {{ {body} exit(); }}") as program:
        assert " ".join(str(event.value) for event in program) == printed


def test_maps_hold_constants_of_all_sizes(run: Run) -> None:
    text = """
        BEGIN {
            @a = 1; @k[1] = (1, "x"); @k[70000] = (5000000000, "long"); @k[-1] = (-1, "");
            exit();
        }
        END { @a = 70000; }
    """
    assert [line for line in run(text).splitlines() if line] == [
        "@a: 70000",
        "@k[-1]: (-1, )",
        "@k[1]: (1, x)",
        "@k[70000]: (5000000000, long)",
    ]


def test_an_option_may_be_larger_than_its_default(run: Run) -> None:
    text = 'BEGIN { $n = getopt("times", 3); print($n); exit(); }'
    assert run(text, "--times=70000") == "70000\n"
    assert run(text, "--times=-5") == "-5\n"
    assert run(text) == "3\n"
