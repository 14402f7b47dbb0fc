"""What count(), hist() and the like compute in programs, without keys and with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from usdt.base.errors import LanguageError

if TYPE_CHECKING:
    from program_runs import Run

_SET = (
    "@a = avg(5); @c = count(); @h = hist(3); @l = lhist(3, 0, 10, 1); @m = min(3);"
    " @s = sum(0); @t = stats(3);"
)
_EVERY = "achlmst"


def _lines(out: str) -> list[str]:
    return [line for line in out.splitlines() if line]


def test_what_was_never_added_to_is_not_printed(run: Run) -> None:
    assert run(f"BEGIN {{ exit(); }} interval:s:100 {{ {_SET} }}") == ""


def test_print_of_what_was_never_added_to(run: Run) -> None:
    prints = "".join(f"print(@{name}); " for name in _EVERY)
    out = run(f"BEGIN {{ {prints} exit(); }} interval:s:100 {{ {_SET} }}")
    assert _lines(out) == ["@a: 0", "@c: 0", "@m: 0", "@s: 0", "@t: count 0, average 0, total 0"]


@pytest.mark.parametrize("how", ["clear", "delete"])
def test_what_was_emptied_is_not_printed(run: Run, how: str) -> None:
    names = [name for name in _EVERY if how == "clear" or name not in "hl"]
    calls = "".join(f"{how}(@{name}); " for name in names)
    out = run(f"BEGIN {{ {_SET} {calls} clear(@h); clear(@l); exit(); }}")
    assert out == ""


def test_zero_leaves_zeros_to_which_more_is_added(run: Run) -> None:
    calls = "".join(f"zero(@{name}); " for name in _EVERY)
    out = run(f"BEGIN {{ {_SET} {calls} exit(); }}")
    assert _lines(out) == [
        *("@a: 0", "@c: 0", "@h:", "@l:", "@m: 0", "@s: 0"),
        "@t: count 0, average 0, total 0",
    ]


def test_zero_begins_anew(run: Run) -> None:
    again = "if ((int64)@m == 0) { @m = max(-7); exit(); }"  # once the tracer has zeroed it
    out = run(f"BEGIN {{ @m = max(-5); zero(@m); }} interval:ms:10 {{ {again} }}")
    assert out == "@m: -7\n"


def test_a_sum_that_is_deleted_begins_anew(run: Run) -> None:
    out = run("BEGIN { @s = sum(5); delete(@s); @s = sum(2); print(len(@s)); exit(); }")
    assert _lines(out) == ["1", "@s: 2"]


def test_extreme_numbers(run: Run) -> None:
    least, most = -(1 << 63), (1 << 63) - 1
    text = f"""
        BEGIN {{
            @least = max({least}); @most = min({most}); @u = max((uint64)-1);
            @h = hist(-1); @h = hist(0); @h = hist({most});
            @w = hist({most}, 5);
            @l = lhist({least}, -5, 5, 3); @l = lhist(4, -5, 5, 3); @l = lhist({most}, -5, 5, 3);
            exit();
        }}
    """
    bar = f"1 |{'@' * 52}|"
    found = _lines(run(text))
    assert [line for line in found if " 0 |" not in line] == [
        "@h:",
        f"(..., 0)               {bar}",
        f"[0]                    {bar}",
        f"[4E, 8E)               {bar}",
        "@l:",
        f"(..., -5)              {bar}",
        f"[4, 7)                 {bar}",
        f"[5, ...)               {bar}",
        f"@least: {least}",
        f"@most: {most}",
        f"@u: {(1 << 64) - 1}",
        "@w:",
        f"[8064P, 8E)            {bar}",
    ]


def test_results_are_numbers(run: Run) -> None:
    text = """
        BEGIN {
            @a = avg(-5); @a = avg(-8); @c = count(); @m = max(-3); @n = min(-3); @n = min(4);
            @s = sum(-2); @k[1] = max(7); @k[1] = max(6);
            print((@a, @c, @m, @n, @s, @k[1], @k[2]));
            clear(@a); clear(@c); clear(@m); clear(@n); clear(@s); clear(@k);
            exit();
        }
    """
    assert run(text) == "(-6, 1, -3, -3, -2, 7, 0)\n"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("@h = hist(1); delete(@h);", "@h holds hist(), an entry for each bucket"),
        ("@h[1] = hist(1); delete(@h, 1);", "@h holds hist(), an entry for each bucket"),
        ("@h[1] = hist(1); delete(@h[1]);", "@h holds hist(), an entry for each bucket"),
        ("@l[1] = lhist(1, 0, 9, 3); has_key(@l, 1);", "@l holds lhist(), an entry for each"),
        ("@l[1] = lhist(1, 0, 9, 3); print(len(@l));", "@l holds lhist(), an entry for each"),
        ("@h[1] = hist(1); for ($e : @h) { }", "@h holds hist(), an entry for each bucket"),
        ("@c = count(); for ($e : @c) { }", "@c has no keys over which for could go"),
        ("@l = lhist(1, 0, 4000, 1);", "must be <= 1000 (would need 4000)"),
    ],
)
def test_refused(run: Run, body: str, why: str) -> None:
    with pytest.raises(LanguageError) as caught:
        run(f"BEGIN {{ {body} exit(); }}")
    assert why in str(caught.value)
