"""Records made by @frozen behave as frozen, slotted dataclasses do, and Numbers as enums."""

from __future__ import annotations

import copy
import enum
import inspect
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from usdt.base.frozen import Names, Numbers, field, fields_of, frozen, replace

if TYPE_CHECKING:
    from collections.abc import Callable


@frozen
class Point:
    x: int
    y: int = 2
    where: str = field(default="", compare=False)

    @property
    def total(self) -> int:
        return self.x + self.y


@frozen
class Twin:
    x: int
    y: int = 2


@frozen
class Long:
    a: int
    b: int
    c: int
    d: int
    e: int
    f: int
    g: int
    h: int
    i: int
    j: int
    k: int
    set_0: int = 11


@frozen
class Empty:
    pass


def test_fields_by_position_and_by_name() -> None:
    assert Point(1, 5) == Point(y=5, x=1) == Point(1, y=5)
    assert Point(1).y == 2
    assert Point(1, 5).total == 6


def test_a_record_of_many_fields_keeps_their_order() -> None:
    assert tuple(fields_of(Long(*range(11))).values()) == tuple(range(12))
    assert Long(*range(10), set_0=20, k=10) == Long(*range(11), 20)


@pytest.mark.parametrize("count", [0, 1, 2, 15, 16, 17, 40])
def test_a_record_has_any_number_of_fields(count: int) -> None:
    names = [f"field_{at}" for at in range(count)]
    space = {"__annotations__": dict.fromkeys(names, "int"), "__qualname__": "Outer.Made"}
    made = frozen(type("Made", (), space))
    assert fields_of(made(*range(count))) == {name: at for at, name in enumerate(names)}
    assert str(inspect.signature(made)) == f"({', '.join(names)})"
    with pytest.raises(TypeError, match=r"Outer\.Made\.__init__\(\) takes"):
        made(*range(count + 1))


_PROFILED = """
import sys
from usdt.base.frozen import frozen
sys.setprofile(lambda *_: None)
for count in range(1, 41):
    space = {"__annotations__": {f"field_{at}": "int" for at in range(count)}}
    frozen(type("Made", (), space))(*range(count))
"""


def test_records_are_made_under_a_profiler() -> None:
    # The interpreter then writes a table of the lines of their __init__: with -X dev, it notices
    # if that is longer than the code.
    words = sys.executable, "-X", "dev", "-c", _PROFILED
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


_COMPILED = """
import sys
from usdt.base.frozen import frozen
compiled = []
sys.addaudithook(lambda event, _: compiled.append(event) if event == "compile" else None)
for count in (*range(1, 17), 5):
    frozen(type("Made", (), {"__annotations__": {f"field_{at}": "int" for at in range(count)}}))
print(len(compiled))
frozen(type("Made", (), {"__annotations__": {f"field_{at}": "int" for at in range(17)}}))
print(len(compiled))
"""


def test_usual_records_compile_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _COMPILED], capture_output=True, text=True, check=True
    )
    assert done.stdout == "0\n1\n"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        pytest.param((), {}, id="a field without a value"),
        pytest.param((1, 2, "", 4), {}, id="too many values"),
        pytest.param((1,), {"x": 1}, id="a field given twice"),
        pytest.param((1,), {"z": 1}, id="a field that does not exist"),
    ],
)
def test_wrong_fields_are_refused(given: tuple[int, ...], named: dict[str, int]) -> None:
    with pytest.raises(TypeError, match="Point"):
        Point(*given, **named)


def test_a_field_left_out_of_comparison_changes_neither_equality_nor_hash() -> None:
    assert Point(1, 2, "here") == Point(1, 2, "there")
    assert hash(Point(1, 2, "here")) == hash(Point(1, 2, "there"))


def test_records_of_two_classes_are_never_equal() -> None:
    assert Point(1, 2) != Twin(1, 2)
    assert {Point(1, 2): 1}.get(Twin(1, 2)) is None  # type: ignore[call-overload]
    assert Point(1, 2) != (1, 2)


def test_records_cannot_be_changed() -> None:
    point = Point(1)
    with pytest.raises(AttributeError, match="immutable"):
        point.x = 3  # type: ignore[misc]
    with pytest.raises(AttributeError):
        del point.x
    with pytest.raises(AttributeError):
        point.other = 3  # type: ignore[attr-defined]
    assert not hasattr(point, "__dict__")


def test_they_match_print_copy_and_pickle() -> None:
    match Point(1, 5):
        case Point(x, y):
            assert (x, y) == (1, 5)
    assert repr(Point(1, 5)) == "Point(x=1, y=5, where='')"
    assert copy.deepcopy(Point(1, 5)) == Point(1, 5)
    assert pickle.loads(pickle.dumps(Point(1, 5))) == Point(1, 5)
    assert Empty() == Empty()
    assert repr(Empty()) == "Empty()"


def test_replace_copies_a_record_with_other_values() -> None:
    point = Point(1, 5, "here")
    assert replace(point, y=7) == Point(1, 7)
    assert replace(point, y=7).where == "here"
    assert point.y == 5
    with pytest.raises(TypeError, match=r"Point.* unexpected .*z"):
        replace(point, z=1)


class Words(Names):
    """Names, one with two names, and what follows from one."""

    ONE = "one"
    TWO = ""
    UN = "one"

    @property
    def long(self) -> str:
        return self.value * 2


class WordsOfEnum(enum.Enum):
    """The same by the standard library."""

    ONE = "one"
    TWO = ""
    UN = "one"  # noqa: PIE796 - a second name

    @property
    def long(self) -> str:
        return self.value * 2


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(list, id="members"),
        pytest.param(len, id="how many"),
        pytest.param(lambda kind: [(one.name, one.value) for one in kind], id="names and values"),
        pytest.param(lambda kind: [kind("one") is kind.ONE, kind("") is kind.TWO], id="by value"),
        pytest.param(lambda kind: kind.UN is kind.ONE, id="two names"),
        pytest.param(lambda kind: (kind.ONE == "one", kind.ONE == kind.UN), id="equality"),
        pytest.param(lambda kind: len({kind.ONE, kind.TWO, kind.UN}), id="hash"),
        pytest.param(lambda kind: (bool(kind.TWO), kind.ONE.long), id="truth and properties"),
        pytest.param(lambda kind: pickle.loads(pickle.dumps(kind.TWO)) is kind.TWO, id="pickled"),
        pytest.param(lambda kind: copy.deepcopy(kind.TWO) is kind.TWO, id="copied"),
        pytest.param(lambda kind: isinstance(kind.ONE, kind) and type(kind.ONE) is kind, id="type"),
    ],
)
def test_names_are_as_in_an_enum(ask: Callable[[Any], Any]) -> None:
    ours, theirs = ask(Words), ask(WordsOfEnum)
    if ask is list:
        ours, theirs = ([one.name for one in found] for found in (ours, theirs))
    assert ours == theirs


def test_names_show_themselves() -> None:
    assert repr(Words.ONE) == "<Words.ONE: 'one'>"
    assert str(Words.ONE) == "Words.ONE"
    with pytest.raises(ValueError, match=r"^'three' is not a valid Words$"):
        Words("three")
    match Words("one"):
        case Words.ONE:
            pass
        case other:
            pytest.fail(repr(other))


class Few(Numbers):
    """Numbers, one with two names."""

    ONE = 1
    TWO = 0x02
    UN = 1


class FewOfEnum(enum.IntEnum):
    """The same by the standard library."""

    ONE = 1
    TWO = 0x02
    UN = 1


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(list, id="members"),
        pytest.param(len, id="how many"),
        pytest.param(lambda kind: [(one.name, one.value) for one in kind], id="names and values"),
        pytest.param(lambda kind: kind(2) is kind.TWO, id="by number"),
        pytest.param(lambda kind: kind.UN is kind.ONE, id="two names"),
        pytest.param(lambda kind: (str(kind.TWO), f"{kind.TWO}", f"{kind.TWO:#x}"), id="text"),
        pytest.param(lambda kind: (kind.ONE | 4, {kind.TWO: 0}[2], kind.ONE < kind.TWO), id="int"),
        pytest.param(lambda kind: pickle.loads(pickle.dumps(kind.TWO)) is kind.TWO, id="pickled"),
        pytest.param(lambda kind: copy.deepcopy(kind.TWO) is kind.TWO, id="copied"),
        pytest.param(lambda kind: isinstance(kind.ONE, kind) and type(kind.ONE) is kind, id="type"),
    ],
)
def test_numbers_are_as_in_an_enum(ask: Callable[[Any], Any]) -> None:
    assert ask(Few) == ask(FewOfEnum)


def test_what_python_adds_to_a_class_is_no_member() -> None:
    class Later(Numbers):
        __firstlineno__ = 170  # of Python 3.13 and newer
        ONE = 1

    assert [one.name for one in Later] == ["ONE"]


def test_numbers_show_their_names() -> None:
    assert repr(Few.TWO) == "<Few.TWO: 2>"
    with pytest.raises(ValueError, match=r"^3 is not a valid Few$"):
        Few(3)
    match Few(1):
        case Few.ONE:
            pass
        case other:
            pytest.fail(repr(other))
