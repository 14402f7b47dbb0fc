"""Random expressions of programs, each with a function of Python that computes the same value.

Their types fit. The numbers are those of C. Equal seeds give equal expressions.
"""

from __future__ import annotations

import os
import random
import threading
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("Expression", "ExpressionMaker", "State", "aggregated", "as_type")

_TEXTS = ("abc", "", "a", "some longer text", "x y")
_ARITHMETIC = ["+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>"]
_OF_TRUTHS = ("+", "-", "&", "|", "^")  # of two truths they give one
_ORDER = ["==", "!=", "<", "<=", ">", ">="]
_CASTS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
_CONSTANTS = (0, 1, 2, 3, 7, 8, 63, 255, 1 << 32, (1 << 63) - 1, (1 << 63) + 5)


class State:
    """What a program has done so far.

    Attributes:
        variables: name → value.
        maps: name → key → value; of aggregations, the numbers that were added.
        printed: the text of each printf(), the value of each print().
    """

    def __init__(self) -> None:
        self.variables: dict[str, Any] = {
            "$n": 1,
            "$m": 2,
            "$s": "text",
            "$p": (3, "in a tuple", (True, 4)),
        }
        self.maps: dict[str, dict[Any, Any]] = {
            "@n": {0: 1},
            "@k": {1: 2},
            "@s": {0: _comm()},
            "@t": {1: "x"},
            **{f"@{name}": {0: [5]} for name in ("count", "sum", "avg", "min", "max", "hist")},
        }
        self.printed: list[Any] = []


def _comm() -> str:
    return Path(f"/proc/self/task/{threading.get_native_id()}/comm").read_text()[:-1]


class Expression(NamedTuple):
    """A value; ``type`` is that of a number, or "string"."""

    text: str
    type: str
    value: Callable[[State], Any]


def as_type(number: int, type_: str) -> int:
    """Return a number as one of a type, cut to its bits."""
    bits = int(type_.lstrip("uint") or 64)
    number &= (1 << bits) - 1
    return number if type_.startswith("u") or number >> (bits - 1) == 0 else number - (1 << bits)


def _as_one_type(one: Expression, two: Expression) -> str:
    return "uint64" if "uint64" in (one.type, two.type) else "int64"


def _in_one_type(op: str, one: Expression, two: Expression) -> tuple[str, Expression, Expression]:
    # The type that two numbers are computed in. Beside a signed number the type depends on whether
    # that is a constant, so that the unsigned one is cast.
    unsigned = [side.type.startswith("uint") for side in (one, two)]
    if op == "-" or not any(unsigned):
        return "int64", one, two
    if all(unsigned) or "bool" in (one.type, two.type) or op in ("/", "%"):
        return "uint64", one, two
    return "int64", *(
        Expression(f"(int64)({side.text})", "int64", side.value) if cast else side
        for side, cast in zip((one, two), unsigned, strict=True)
    )


def _arithmetic(op: str, a: int, b: int, type_: str) -> int:
    match op:
        case "+":
            found = a + b
        case "-":
            found = a - b
        case "*":
            found = a * b
        case "&":
            found = a & b
        case "|":
            found = a | b
        case "^":
            found = a ^ b
        case "<<":
            found = a << (b & 63)
        case ">>":
            found = a >> (b & 63)
        case _ if b == 0:
            found = 1
        case "/":
            found = abs(a) // abs(b) * (-1 if (a < 0) != (b < 0) else 1)
        case _:
            found = abs(a) % abs(b) * (-1 if a < 0 else 1)
    return as_type(found, type_)


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def _set(state: State, name: str, value: Any) -> Any:
    state.variables[name] = value
    return value


class ExpressionMaker:
    """Makes expressions; ``effects``: for places that are evaluated once, in order."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names = ["$n", "$m"]  # variables that are numbers
        self._made = 0

    def fresh(self) -> str:
        """A new name of a variable."""
        self._made += 1
        return f"$v{self._made}"

    def number(self, depth: int, *, effects: bool = False) -> Expression:
        """A number of any type."""
        if depth <= 0:
            return self._leaf()
        choose = self.random.choice
        kinds = [self._operation, self._operation, self._order, self._ternary, self._cast]
        kinds += [self._logic, self._of_text, self._of_map, self._unary, self._part, self._twice]
        kinds += [self._swapped]
        if effects:
            kinds += [self._step, self._step, self._block]
        return choose(kinds)(depth - 1, effects)

    def signed(self, depth: int, *, effects: bool = False) -> Expression:
        """A number of the type of variables and maps."""
        made = self.number(depth, effects=effects)
        if made.type == "int64":
            return made
        return Expression(
            f"(int64)({made.text})", "int64", lambda s: as_type(made.value(s), "int64")
        )

    def _leaf(self) -> Expression:
        match self.random.randrange(8):
            case 0 | 1:
                name = self.random.choice(self.names)
                return Expression(name, "int64", lambda s: s.variables[name])
            case 2:
                return Expression("@n", "int64", lambda s: s.maps["@n"].get(0, 0))
            case 3:
                text = self.random.choice(("pid", "(uint32)curtask->tgid"))
                return Expression(text, "uint32", lambda _: os.getpid())
            case 4:
                return Expression("LIMIT", "int64", lambda _: 5)
            case 5:
                return Expression("(nsecs > 0)", "bool", lambda _: True)
        number = self.random.choice(_CONSTANTS)
        return Expression(str(number), "uint64" if number >> 63 else "int64", lambda _: number)

    def _operation(self, depth: int, effects: bool) -> Expression:
        one, two = self.number(depth, effects=effects), self.number(depth, effects=effects)
        return self.operation(self.random.choice(_ARITHMETIC), one, two)

    def operation(self, op: str, one: Expression, two: Expression) -> Expression:
        """Two numbers and an operator."""
        type_, one, two = _in_one_type(op, one, two)
        right = type_
        if op in ("<<", ">>"):
            type_, right = "uint64" if one.type == "uint64" else "int64", "int64"

        def value(state: State) -> int:
            left = one.value(state)
            return _arithmetic(op, as_type(left, type_), as_type(two.value(state), right), type_)

        text = f"({one.text} {op} {two.text})"
        if one.type == two.type == "bool" and op in _OF_TRUTHS:
            return Expression(text, "bool", lambda s: bool(value(s)))
        return Expression(text, type_, value)

    def _order(self, depth: int, effects: bool) -> Expression:
        one, two = self.number(depth, effects=effects), self.number(depth, effects=effects)
        op, type_ = self.random.choice(_ORDER), _as_one_type(one, two)

        def value(state: State) -> bool:
            left = as_type(one.value(state), type_)
            return _COMPARE[op](left, as_type(two.value(state), type_))

        return Expression(f"({one.text} {op} {two.text})", "bool", value)

    def _logic(self, depth: int, effects: bool) -> Expression:
        one, two = self.number(depth, effects=effects), self.number(depth, effects=effects)
        if self.random.randrange(2):
            both = f"({one.text} && {two.text})"
            return Expression(both, "bool", lambda s: bool(one.value(s)) and bool(two.value(s)))
        either = f"({one.text} || {two.text})"
        return Expression(either, "bool", lambda s: bool(one.value(s)) or bool(two.value(s)))

    def _ternary(self, depth: int, effects: bool) -> Expression:
        condition = self.number(depth, effects=effects)
        yes, no = self.signed(depth, effects=effects), self.signed(depth, effects=effects)
        text = f"({condition.text} ? {yes.text} : {no.text})"
        return Expression(text, "int64", lambda s: (yes if condition.value(s) else no).value(s))

    def _cast(self, depth: int, effects: bool) -> Expression:
        inner, type_ = self.number(depth, effects=effects), self.random.choice((*_CASTS, "bool"))
        text = f"(({type_})({inner.text}))"
        if type_ == "bool":
            return Expression(text, type_, lambda s: bool(inner.value(s)))
        return Expression(text, type_, lambda s: as_type(inner.value(s), type_))

    def _unary(self, depth: int, effects: bool) -> Expression:
        inner = self.number(depth, effects=effects)
        match self.random.choice("-~!"):
            case "-":
                return Expression(
                    f"(-({inner.text}))", "int64", lambda s: as_type(-inner.value(s), "int64")
                )
            case "!":
                return Expression(f"(!({inner.text}))", "bool", lambda s: not inner.value(s))
        type_ = "uint64" if inner.type == "uint64" else "int64"
        return Expression(f"(~({inner.text}))", type_, lambda s: as_type(~inner.value(s), type_))

    def _swapped(self, depth: int, effects: bool) -> Expression:
        inner, size = self.number(depth, effects=effects), self.random.choice((2, 4, 8))
        type_ = f"uint{8 * size}"

        def value(state: State) -> int:
            return int.from_bytes(
                as_type(inner.value(state), type_).to_bytes(size, "big"), "little"
            )

        return Expression(f"bswap(({type_})({inner.text}))", type_, value)

    def _of_text(self, depth: int, effects: bool) -> Expression:
        del effects
        one, two = self.string(depth), self.string(depth)
        match self.random.randrange(5):
            case 0:
                return Expression(f"strlen({one.text})", "int64", lambda s: len(one.value(s)))
            case 1:
                count = self.random.randint(1, 6)

                def differ(state: State) -> int:
                    return int(one.value(state)[:count] != two.value(state)[:count])

                return Expression(f"strncmp({one.text}, {two.text}, {count})", "int64", differ)
            case 2:
                if self.random.random() < 0.3:
                    return Expression(
                        f"strcontains({one.text}, {two.text})",
                        "bool",
                        lambda s: two.value(s) in one.value(s),
                    )
                if self.random.random() < 0.3:
                    glob = self.random.choice(("*", "a*", "?*x*", "[a-s]*[!a]", "*ext", "x y"))
                    return Expression(
                        f'globmatch({one.text}, "{glob}")',
                        "bool",
                        lambda s: fnmatchcase(one.value(s), glob),
                    )
                part = self.random.choice(("a", "xt", "long", ""))
                return Expression(
                    f'strcontains({one.text}, "{part}")', "bool", lambda s: part in one.value(s)
                )
            case 3:
                return Expression(
                    f"({one.text} != {two.text})", "bool", lambda s: one.value(s) != two.value(s)
                )
        return Expression(
            f"({one.text} == {two.text})", "bool", lambda s: one.value(s) == two.value(s)
        )

    def _of_map(self, depth: int, effects: bool) -> Expression:
        del effects
        key = self.signed(depth)
        name = self.random.choice(("sum", "count", "min", "max", "avg"))
        match self.random.randrange(5):
            case 0:
                return Expression("len(@k)", "int64", lambda s: len(s.maps["@k"]))
            case 1:
                return Expression(
                    f"has_key(@k, {key.text})", "bool", lambda s: key.value(s) in s.maps["@k"]
                )
            case 2:

                def value(state: State) -> int:
                    return aggregated(name, state.maps[f"@{name}"].get(key.value(state), []))

                type_ = "uint64" if name == "count" else "int64"
                return Expression(f"@{name}[{key.text}]", type_, value)
        return Expression(f"@k[{key.text}]", "int64", lambda s: s.maps["@k"].get(key.value(s), 0))

    def _part(self, depth: int, effects: bool) -> Expression:
        del effects
        one = self.number(depth)
        match self.random.randrange(4):
            case 0:
                return Expression(f"({one.text}, $s).0", one.type, one.value)
            case 1:
                return Expression(f"(x={one.text}, y=1).x", one.type, one.value)
            case 2:
                return Expression("$p.0", "int64", lambda s: s.variables["$p"][0])
        return Expression("$p.2.1", "int64", lambda s: s.variables["$p"][2][1])

    def _twice(self, depth: int, effects: bool) -> Expression:
        del effects
        inner = self.signed(depth)
        return Expression(
            f"twice(({inner.text}))", "int64", lambda s: as_type(2 * inner.value(s), "int64")
        )

    def _step(self, depth: int, effects: bool) -> Expression:
        del depth, effects
        name, by = self.random.choice(("$n", "$m")), self.random.choice((1, -1))
        op = "++" if by > 0 else "--"
        match self.random.randrange(3):
            case 0:
                return Expression(
                    f"{name}{op}",
                    "int64",
                    lambda s: as_type(
                        _set(s, name, as_type(s.variables[name] + by, "int64")) - by, "int64"
                    ),
                )
            case 1:
                return Expression(
                    f"{op}{name}",
                    "int64",
                    lambda s: _set(s, name, as_type(s.variables[name] + by, "int64")),
                )

        def add(state: State) -> int:
            before: int = state.maps["@n"].get(0, 0)
            state.maps["@n"][0] = as_type(before + by, "int64")
            return before

        return Expression(f"@n{op}", "int64", add)

    def _block(self, depth: int, effects: bool) -> Expression:
        inner, name = self.signed(depth, effects=effects), self.fresh()
        return Expression(
            f"{{ let {name} = {inner.text}; {name} - 1 }}",
            "int64",
            lambda s: as_type(_set(s, name, inner.value(s)) - 1, "int64"),
        )

    def string(self, depth: int) -> Expression:
        """A string."""
        match self.random.randrange(9):
            case 0 if depth > 0:
                condition, yes, no = self.number(1), self.string(depth - 1), self.string(depth - 1)
                text = f"({condition.text} ? {yes.text} : {no.text})"
                return Expression(
                    text, "string", lambda s: (yes if condition.value(s) else no).value(s)
                )
            case 1:
                return Expression("comm", "string", lambda _: _comm())
            case 2:
                return Expression("$s", "string", lambda s: s.variables["$s"])
            case 3:
                return Expression("@s", "string", lambda s: s.maps["@s"].get(0, ""))
            case 4:
                key = self.signed(0)
                return Expression(
                    f"@t[{key.text}]", "string", lambda s: s.maps["@t"].get(key.value(s), "")
                )
            case 5:
                return Expression("str(0, 8)", "string", lambda _: "")
            case 6:
                return Expression("$p.1", "string", lambda s: s.variables["$p"][1])
        word = self.random.choice(_TEXTS)
        return Expression(f'"{word}"', "string", lambda _: word)


def aggregated(name: str, numbers: list[int]) -> int:
    """Return the number that an aggregation has as a value; 0 for nothing."""
    if not numbers:
        return 0
    match name:
        case "count" | "hist":
            return len(numbers)
        case "min":
            return min(numbers)
        case "max":
            return max(numbers)
    total = as_type(sum(numbers), "int64")
    return total if name == "sum" else _arithmetic("/", total, len(numbers), "int64")
