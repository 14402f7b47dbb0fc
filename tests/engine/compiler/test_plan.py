"""Plans: which values are shown, where each lies in the record, what is refused."""

from __future__ import annotations

import pytest
from planning import EVERY_TYPE, INTEGERS, argument, memory, plan, register
from support.planning import form

from usdt.arch.locations import AtFunctionReturn, Unreadable
from usdt.base.errors import LanguageError
from usdt.engine.compiler.arguments import Argument
from usdt.engine.compiler.ir import S32, U64, Builtin, Number, Unavailable, can_fail
from usdt.engine.compiler.limits import MAX_OUTPUTS, MAX_READ
from usdt.engine.compiler.outputs import Output
from usdt.engine.compiler.plan import ProbePlan, make_plan
from usdt.engine.compiler.record.columns import ConstColumn
from usdt.engine.compiler.record.layout import HEADER_SIZE
from usdt.engine.language import parse_probe


def layout(made: ProbePlan) -> dict[str, tuple[str, int | None, int]]:
    """Key → (form, offset, room) of each value shown."""
    return {output.key: (form(output), output.offset, output.size) for output in made.outputs}


_TWO = (argument(0, "s32"), argument(1, "u64"))


@pytest.mark.parametrize(
    ("items", "expected", "size"),
    [
        pytest.param("arg1", {"arg1": ("integer", 40, 8)}, 48, id="an integer takes eight bytes"),
        pytest.param(
            "arg1, arg0",
            {"arg1": ("integer", 40, 8), "arg0": ("integer", 48, 8)},
            56,
            id="in the order written",
        ),
        pytest.param(
            "str(arg1), arg0",
            {"str(arg1)": ("string", 40, 129), "arg0": ("integer", 184, 8)},
            192,
            id="a string is its length, 128 bytes and a NUL, padded to eight",
        ),
        pytest.param(
            "str(arg1, 7), str(arg1, 8), pid",
            {
                "str(arg1,7)": ("string", 40, 8),
                "str(arg1,8)": ("string", 56, 9),
                "pid": ("integer", 80, 8),
            },
            88,
            id="strings of given lengths",
        ),
        pytest.param(
            "buf(arg1, 3), buf(arg1, 0), buf(arg1, arg0), pid",
            {
                "buf(arg1,3)": ("buffer", 40, 3),
                "buf(arg1,0)": ("buffer", 56, 0),
                "buf(arg1,arg0)": ("buffer", 64, 128),
                "pid": ("integer", 200, 8),
            },
            208,
            id="buffers have no NUL",
        ),
        pytest.param(
            "comm, arg0, comm",
            {"comm": ("comm", None, 0), "arg0": ("integer", 40, 8)},
            48,
            id="the command's name is in every record anyway",
        ),
        pytest.param(
            "hex(arg0), arg0 + 1, -arg0, (char)arg1",
            {
                "hex(arg0)": ("hex", 40, 8),
                "arg0+1": ("integer", 48, 8),
                "-arg0": ("integer", 56, 8),
                "(char)arg1": ("integer", 64, 8),
            },
            72,
            id="expressions are shown under what was written",
        ),
        pytest.param(
            "arg2, arg1",
            {"arg2": ("opaque", None, 0), "arg1": ("integer", 40, 8)},
            48,
            id="what only other sites have takes no room",
        ),
        pytest.param(
            "pid != 1",
            {"arg0": ("integer", 40, 8), "arg1": ("integer", 48, 8)},
            56,
            id="only predicates: every argument is shown",
        ),
        pytest.param(
            "",
            {"arg0": ("integer", 40, 8), "arg1": ("integer", 48, 8)},
            56,
            id="nothing written: every argument is shown",
        ),
        pytest.param(
            "arg0 > 1, arg1",
            {"arg1": ("integer", 40, 8)},
            48,
            id="predicates are not shown beside values",
        ),
        pytest.param(
            "(arg0 > 1) + 0",
            {"(arg0>1)+0": ("integer", 40, 8)},
            48,
            id="a comparison inside an expression is a value",
        ),
        pytest.param(
            "arg1, arg1, arg0, arg1 ,arg0",
            {"arg1": ("integer", 40, 8), "arg0": ("integer", 48, 8)},
            56,
            id="an item written twice is shown once",
        ),
    ],
)
def test_layout(items: str, expected: dict[str, tuple[str, int | None, int]], size: int) -> None:
    made = plan(items, _TWO, declared=3)
    assert layout(made) == expected
    assert list(layout(made)) == list(expected)
    assert made.size == size
    assert made.bitmap_offset is None
    assert not made.always_false


def test_every_argument_is_laid_out_behind_the_marks() -> None:
    made = plan("")
    assert made.bitmap_offset == HEADER_SIZE
    forms = {output.key: (form(output), output.offset) for output in made.outputs}
    assert forms == {f"arg{n}": ("integer", 48 + 8 * n) for n in range(9)} | {
        "arg9": ("float", 120),
        "arg10": ("float", 128),
        "arg11": ("bytes", 136),
        "arg12": ("opaque", None),
    }
    assert made.size == 160
    fallible = [output.key for output in made.outputs if output.may_fault]
    assert fallible == ["arg8", "arg9", "arg10", "arg11"], "what lies in memory"


def test_a_probe_without_arguments_has_only_its_context() -> None:
    assert plan("", ()) == ProbePlan((), (), HEADER_SIZE)


@pytest.mark.parametrize(
    ("items", "fallible"),
    [
        pytest.param("arg4 / arg5", True, id="a division"),
        pytest.param("arg4 / 7", False, id="by a constant"),
        pytest.param("arg8 + 1", True, id="an operand in memory"),
        pytest.param("*(int *)arg7", True, id="a pointer followed"),
        pytest.param("(int *)arg7", False, id="a pointer"),
        pytest.param('(str(arg7) == "x") + 0', True, id="a string compared"),
        pytest.param('(comm == "x") + 0', False, id="the command's name compared"),
        pytest.param("pid + arg7 * 3 << 2", False, id="registers and built-ins"),
        pytest.param("(arg4 && arg13) + 0", True, id="what another site has"),
    ],
)
def test_values_that_may_be_unreadable_have_marks(items: str, fallible: bool) -> None:
    made = plan(items, declared=20)
    assert [output.may_fault for output in made.outputs] == [fallible]
    assert made.bitmap_offset == (HEADER_SIZE if fallible else None)
    assert made.faultable is fallible
    assert made.outputs[0].offset == HEADER_SIZE + (8 if fallible else 0)


@pytest.mark.parametrize(
    ("items", "faultable"),
    [
        pytest.param("arg4", False, id="a register"),
        pytest.param("str(arg7)", True, id="a string"),
        pytest.param("buf(arg7, 1)", True, id="a buffer"),
        pytest.param("arg8 > 1, arg4", True, id="a predicate on memory"),
        pytest.param("arg4 > 1, arg4", False, id="a predicate on a register"),
    ],
)
def test_whether_page_faults_matter(items: str, faultable: bool) -> None:
    assert plan(items).faultable is faultable


@pytest.mark.parametrize(
    ("items", "predicates", "never"),
    [
        pytest.param("1 == 1", 0, False, id="always true: none is left"),
        pytest.param("1 == 2", 1, True, id="always false"),
        pytest.param("arg4 > 1, 1 == 2", 2, True, id="one of them always false"),
        pytest.param('comm == "longer than any name"', 1, True, id="a name that cannot be"),
        pytest.param("arg4 > 1, arg4 > 1, pid == 1", 3, False, id="each is asked"),
        pytest.param("0 && arg4", 1, True, id="never, whatever follows"),
        pytest.param("arg4 && 0", 1, True, id="never, whatever comes before"),
        pytest.param("arg8 && 0", 1, False, id="undecided where that cannot be read"),
        pytest.param("arg1 < 256", 0, False, id="always true of a byte"),
        pytest.param("arg1 == -1", 1, True, id="never true of a byte"),
        pytest.param("arg0 == -1", 1, False, id="possible with a signed one"),
        pytest.param("arg13 == 1", 1, False, id="on what the site has not: undecided, not false"),
    ],
)
def test_predicates(items: str, predicates: int, never: bool) -> None:
    made = plan(items, declared=20)
    assert len(made.predicates) == predicates
    assert made.always_false is never


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        pytest.param("arg12", "thread-local", id="an argument"),
        pytest.param("arg12 + 1", "thread-local", id="in an expression"),
        pytest.param("hex(arg12)", "thread-local", id="in hexadecimal"),
        pytest.param("str(arg12)", "thread-local", id="as an address"),
        pytest.param("buf(arg12, 4)", "thread-local", id="as the address of a buffer"),
        pytest.param("buf(arg7, arg12)", "thread-local", id="as a length"),
        pytest.param("(int *)arg12", "thread-local", id="as a pointer"),
        pytest.param("*(int *)arg12", "thread-local", id="followed"),
        pytest.param("arg15", "this call site has no arg15", id="what only other sites have"),
        pytest.param("1 / 0", "division by zero", id="a division by zero"),
    ],
)
def test_what_cannot_be_read_says_why(item: str, reason: str) -> None:
    (output,) = plan(item, declared=20).outputs
    assert form(output) == "opaque"
    assert isinstance(output.node, Unavailable)
    assert output.node.reason == reason


def test_predicates_that_read_nothing_are_asked_first() -> None:
    made = plan('str(arg7) == "x", arg4 > 1, arg8 > 1, pid == 1')
    assert [can_fail(node) for node in made.predicates] == [False, False, True, True]
    assert made.predicates[1] == plan("pid == 1").predicates[0]


def test_lengths_may_be_constant_expressions() -> None:
    made = plan("str(arg7, 2 * 8 - 1), buf(arg7, 1 << 4)")
    assert [output.size for output in made.outputs] == [16, 16]
    assert made.outputs[1].length == Number(16, S32)


def test_max_string_is_what_str_keeps() -> None:
    made = plan("str(arg7), buf(arg7, arg4), str(arg7, 5)", max_string=20)
    assert [output.size for output in made.outputs] == [21, 20, 6]


_LIMITS = {
    "str of nothing": ("str(arg7, 0)", "constant from 1 to 65535"),
    "str of too much": ("str(arg7, 65536)", "constant from 1 to 65535"),
    "str of a computed length": ("str(arg7, arg4)", "constant from 1 to 65535"),
    "a negative buffer": ("buf(arg7, -1)", "buf() reads 0 to 65536 bytes, not -1"),
    "a buffer of too much": ("buf(arg7, 65537)", "buf() reads 0 to 65536 bytes, not 65537"),
    "a float as a length": ("buf(arg7, arg9)", "floating-point values"),
    "an aggregate as an address": ("str(arg11)", "a value of 24 bytes"),
    "a float in hexadecimal": ("hex(arg9)", "hex() shows integers, not floating-point values"),
    "a float as a symbol's address": ("usym(arg9)", "floating-point values"),
    "an aggregate as one": ("ksym(arg11)", "a value of 24 bytes"),
}


@pytest.mark.parametrize(("items", "reason"), _LIMITS.values(), ids=_LIMITS)
def test_limits(items: str, reason: str) -> None:
    with pytest.raises(LanguageError) as caught:
        plan(items)
    assert reason in caught.value.reason
    assert caught.value.column >= len("p:q(")


def test_symbols_are_addresses() -> None:
    made = plan("usym(arg4), ksym(arg7), ksym((char *)arg7), usym(*(int **)arg7), usym(arg12)")
    forms = [(form(output), output.node.type, output.size) for output in made.outputs[:4]]
    assert forms == [(kind, U64, 8) for kind in ("usym", "ksym", "ksym", "usym")]
    assert [output.may_fault for output in made.outputs[:4]] == [False, False, False, True]
    assert form(made.outputs[4]) == "opaque"


def test_func_is_a_text_that_takes_no_room() -> None:
    (output, _) = plan("func, arg4").outputs
    assert output == Output("func", ConstColumn("p:q"))
    assert plan("func").size == HEADER_SIZE
    made = make_plan(
        parse_probe("p:q(func)").items, (), text="", probe="p:q", declared=0, function="do_exit"
    )
    assert made.outputs[0].column == ConstColumn("do_exit")
    assert plan('func == "p:*"').predicates == ()
    assert plan('func != "p:*"').always_false


def test_the_largest_string_and_buffer() -> None:
    made = plan(f"str(arg7, {MAX_READ - 1}), buf(arg7, {MAX_READ})")
    assert [output.size for output in made.outputs] == [MAX_READ, MAX_READ]


def test_no_more_values_than_there_are_marks() -> None:
    most = ", ".join(f"arg4+{n}" for n in range(MAX_OUTPUTS))
    assert len(plan(most).outputs) == MAX_OUTPUTS
    assert len(plan(f"{most}, arg4 > 1, arg4+0").outputs) == MAX_OUTPUTS
    with pytest.raises(LanguageError, match="65 values; at most 64 can be shown"):
        plan(f"{most}, pid")
    many = tuple(argument(n, "s32") for n in range(70))
    with pytest.raises(LanguageError, match="70 values; at most 64 can be shown"):
        plan("", many)
    assert len(plan("arg69", many).outputs) == 1


def test_equal_plans_are_equal_and_hash_alike() -> None:
    one, two = plan("str(arg7), arg4 > 2"), plan("str( arg7 ),arg4>2")
    assert one == two
    assert hash(one) == hash(two)
    elsewhere = (*EVERY_TYPE[:4], argument(4, "s32", memory(4)), *EVERY_TYPE[5:])
    assert plan("str(arg7), arg4 > 2", elsewhere) != one


def test_constants_are_shown_as_well() -> None:
    made = plan("1 + 1, tid")
    assert [output.node for output in made.outputs] == [
        Number(2, S32),
        Builtin("tid", made.outputs[1].node.type),
    ]


def test_an_unreadable_argument_among_all() -> None:
    arguments = (argument(0, "s32", Unreadable("of %xmm0")), argument(1, "s32"))
    made = plan("", arguments)
    assert [(output.key, form(output)) for output in made.outputs] == [
        ("arg0", "opaque"),
        ("arg1", "integer"),
    ]


def test_args_are_the_arguments_that_are_shown_without_items() -> None:
    made = plan("pid, args, arg1, hex(arg0)")
    names = [output.key for output in made.outputs]
    assert names == ["pid", *(one.name for one in EVERY_TYPE), "hex(arg0)"]
    named = (Argument("args", INTEGERS["s32"], register(4)), *EVERY_TYPE[:2])
    assert [output.key for output in plan("args", named).outputs] == ["args"]


def test_retval_is_the_result_unless_there_is_none() -> None:
    result = Argument("return", INTEGERS["s64"], AtFunctionReturn(register()), hidden=True)
    own = Argument("retval", INTEGERS["s32"], register(4))
    for items in ("retval", "retval + 1", "hex(retval)"):
        written = items.replace("retval", "return")
        for arguments in ((result,), (own, result)):
            (one,), (other,) = plan(items, arguments).outputs, plan(written, arguments).outputs
            assert one.node == other.node
    (parameter,) = plan("args.retval", (own, result)).outputs
    (field,) = plan("retval", (own,)).outputs
    assert parameter.node == field.node
    with pytest.raises(LanguageError, match="a place in the code: it has no return value"):
        plan("retval", ())
