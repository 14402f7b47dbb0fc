"""Random programs whose types fit, each with a model of it: what it prints and keeps.

A piece of a program is its text and a function of Python that does the same to a :class:`State`.
Equal seeds give equal programs.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, NamedTuple

from typed_expressions import Expression, ExpressionMaker, State, as_type

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("Statement", "TypedProgram", "damaged", "typed_program")

_HEADER = """\
#define LIMIT 5
macro twice(e) { e + e }
"""
# Conversions of printf() and the C type that each takes.
_CONVERSIONS = (("%d", "int32"), ("%u", "uint32"), ("%lld", "int64"), ("%llu", "uint64"))
_AGGREGATIONS = ("count", "sum", "avg", "min", "max", "hist")
_START = (
    '$n = (int64)1; $m = (int64)2; $s = "text"; @n = (int64)1; @k[(int64)1] = (int64)2;'
    ' @s = comm; @t[(int64)1] = "x"; $p = ((int64)3, "in a tuple", (1 == 1, (int64)4)); '
) + " ".join(
    f"@{name}[(int64)0] = {name}({'' if name == 'count' else '(int64)5'});"
    for name in _AGGREGATIONS
)
_TOKEN = re.compile(r'"[^"]*"|[$@]?\w+|\s+|[-+&|<>=!]{1,2}|.', re.DOTALL)


class _Break(Exception):  # noqa: N818 - no error
    pass


class _Continue(Exception):  # noqa: N818 - no error
    pass


class _Return(Exception):  # noqa: N818 - no error
    pass


class Statement(NamedTuple):
    """A statement, or several: the text, and what they do."""

    text: str
    run: Callable[[State], None]


class TypedProgram(NamedTuple):
    """A program, and the function that returns the state in which it ends."""

    text: str
    run: Callable[[], State]


def _raise(kind: type[Exception]) -> None:
    raise kind


class _Statements(ExpressionMaker):
    # Makes statements. ``loops`` is whether break and continue may stand here.
    def body(self, depth: int, *, loops: bool) -> Statement:
        made = [self.statement(depth, loops=loops) for _ in range(self.random.randint(1, 4))]

        def run(state: State) -> None:
            for one in made:
                one.run(state)

        return Statement(" ".join(one.text for one in made), run)

    def block(self, depth: int, *, loops: bool) -> Statement:
        names = list(self.names)
        body = self.body(depth, loops=loops)
        self.names = names
        return Statement(f"{{ {body.text} }}", body.run)

    def statement(self, depth: int, *, loops: bool) -> Statement:
        simple = [self._assign, self._compound, self._assign_map, self._assign_text, self._tuple]
        simple += [self._aggregate, self._aggregate, self._printf, self._print, self._delete]
        simple += [self._declare]
        nested = [self._if, self._if, self._for, self._while, self._unroll]
        if loops and self.random.randrange(12) == 0:
            return self._leave()
        if depth and self.random.randrange(3) == 0:
            return self.random.choice(nested)(depth - 1, loops)
        if self.random.randrange(12) == 0:
            return self._for_map()
        return self.random.choice(simple)()

    # ------------------------------------------------------------ simple ones

    def _assign(self) -> Statement:
        name, value = self.random.choice(("$n", "$m")), self.signed(3, effects=True)

        def run(state: State) -> None:
            state.variables[name] = value.value(state)

        return Statement(f"{name} = {value.text};", run)

    def _declare(self) -> Statement:
        value, name = self.signed(2, effects=True), self.fresh()
        self.names.append(name)

        def run(state: State) -> None:
            state.variables[name] = value.value(state)

        return Statement(f"let {name} = {value.text};", run)

    def _compound(self) -> Statement:
        name, op = self.random.choice(("$n", "$m")), self.random.choice("+-*|^&")
        value = self.signed(2, effects=True)
        whole = self.operation(op, Expression(name, "int64", lambda s: s.variables[name]), value)

        def run(state: State) -> None:
            state.variables[name] = whole.value(state)

        return Statement(f"{name} {op}= {value.text};", run)

    def _assign_map(self) -> Statement:
        key, value = self.signed(1), self.signed(2, effects=True)
        if self.random.randrange(3) == 0:

            def assign(state: State) -> None:
                state.maps["@n"][0] = value.value(state)

            return Statement(f"@n = {value.text};", assign)
        if self.random.randrange(3) == 0:

            def add(state: State) -> None:
                at = key.value(state)
                state.maps["@k"][at] = as_type(state.maps["@k"].get(at, 0) + 1, "int64")

            return Statement(f"@k[{key.text}]++;", add)

        def run(state: State) -> None:
            found = value.value(state)
            state.maps["@k"][key.value(state)] = found

        return Statement(f"@k[{key.text}] = {value.text};", run)

    def _assign_text(self) -> Statement:
        value, key = self.string(1), self.signed(1)
        match self.random.randrange(3):
            case 0:

                def to_variable(state: State) -> None:
                    state.variables["$s"] = value.value(state)

                return Statement(f"$s = {value.text};", to_variable)
            case 1:

                def to_map(state: State) -> None:
                    state.maps["@s"][0] = value.value(state)

                return Statement(f"@s = {value.text};", to_map)

        def run(state: State) -> None:
            state.maps["@t"][key.value(state)] = value.value(state)

        return Statement(f"@t[{key.text}] = {value.text};", run)

    def _tuple(self) -> Statement:
        one, two, text = self.signed(1), self.signed(1), self.string(1)

        def run(state: State) -> None:
            truth = one.value(state) > two.value(state)
            state.variables["$p"] = (one.value(state), text.value(state), (truth, two.value(state)))

        inner = f"({one.text} > {two.text}, {two.text})"
        return Statement(f"$p = ({one.text}, {text.text}, {inner});", run)

    def _aggregate(self) -> Statement:
        name, key, value = self.random.choice(_AGGREGATIONS), self.signed(1), self.signed(2)
        argument = "" if name == "count" else value.text

        def run(state: State) -> None:
            state.maps[f"@{name}"].setdefault(key.value(state), []).append(value.value(state))

        return Statement(f"@{name}[{key.text}] = {name}({argument});", run)

    def _printf(self) -> Statement:
        number, text = self.number(2, effects=True), self.string(1)
        form, size = self.random.choice(_CONVERSIONS)
        width = 0
        if self.random.randrange(3) == 0:
            width = self.random.choice((4, -4))
            form = f"%{width}{form[1:]}"

        def run(state: State) -> None:
            shown = str(as_type(int(number.value(state)), size))
            shown = shown.ljust(-width) if width < 0 else shown.rjust(width)
            state.printed.append(f"{shown} {text.value(state)}|")

        return Statement(f'printf("{form} %s|", {number.text}, {text.text});', run)

    def _print(self) -> Statement:
        one, two, text = self.number(2, effects=True), self.number(1), self.string(1)

        def run(state: State) -> None:
            first = one.value(state)
            state.printed.append((first, text.value(state), (two.value(state), 2)))

        return Statement(f"print(({one.text}, {text.text}, ({two.text}, 2)));", run)

    def _delete(self) -> Statement:
        key = self.signed(1)
        name = self.random.choice(("@k", "@k", "@t"))

        def run(state: State) -> None:
            state.maps[name].pop(key.value(state), None)

        return Statement(f"delete({name}, {key.text});", run)

    def _leave(self) -> Statement:
        condition, kinds = self.number(1), {"break": _Break, "continue": _Continue}
        kinds["return"] = _Return
        name = self.random.choice(("break", "break", "continue", "continue", "return"))

        def run(state: State) -> None:
            if condition.value(state):
                _raise(kinds[name])

        return Statement(f"if ({condition.text}) {{ {name}; }}", run)

    # ------------------------------------------------------------ nested ones

    def _if(self, depth: int, loops: bool) -> Statement:
        condition, yes = self.number(2, effects=True), self.block(depth, loops=loops)
        no = self.block(depth, loops=loops) if self.random.randrange(2) else None
        text = f"if ({condition.text}) {yes.text}" + (f" else {no.text}" if no else "")

        def run(state: State) -> None:
            if condition.value(state):
                yes.run(state)
            elif no is not None:
                no.run(state)

        return Statement(text, run)

    def _for(self, depth: int, loops: bool) -> Statement:
        del loops
        first, last, name = self.random.randint(-2, 2), self.number(1), self.fresh()
        outer, self.names = self.names, [*self.names, name]
        body = self.block(depth, loops=True)
        self.names = outer

        def run(state: State) -> None:
            end = int(last.value(state)) & 3
            _rounds(state, range(first, end), lambda s, at: s.variables.update({name: at}), body)

        return Statement(f"for ({name} : {first}..((int64)({last.text}) & 3)) {body.text}", run)

    def _while(self, depth: int, loops: bool) -> Statement:
        del loops
        name, most = self.fresh(), self.random.randint(0, 4)
        outer, self.names = self.names, [*self.names, name]
        body = self.block(depth, loops=True)
        self.names = outer

        def run(state: State) -> None:
            state.variables[name] = 0
            try:
                while True:
                    state.variables[name] += 1
                    if state.variables[name] - 1 >= most:
                        break
                    _round(state, body)
            except _Break:
                pass

        return Statement(f"let {name} = (int64)0; while ({name}++ < {most}) {body.text}", run)

    def _unroll(self, depth: int, loops: bool) -> Statement:
        body, count = self.block(depth, loops=loops), self.random.randint(1, 3)

        def run(state: State) -> None:
            for _ in range(count):
                body.run(state)

        return Statement(f"unroll({count}) {body.text}", run)

    def _for_map(self) -> Statement:
        # What does not depend on the order of the entries.
        name = self.fresh()

        def run(state: State) -> None:
            for key, value in state.maps["@k"].items():
                found = state.variables["$n"] + (key ^ value)
                state.variables["$n"] = as_type(found, "int64")
                state.maps["@max"].setdefault(0, []).append(value)

        body = f"$n += {name}.0 ^ {name}.1; @max[(int64)0] = max({name}.1);"
        return Statement(f"for ({name} : @k) {{ {body} }}", run)


def _round(state: State, body: Statement) -> None:
    with contextlib.suppress(_Continue):
        body.run(state)


def _rounds(
    state: State, values: range, begin: Callable[[State, int], None], body: Statement
) -> None:
    try:
        for at in values:
            begin(state, at)
            _round(state, body)
    except _Break:
        pass


def typed_program(seed: int) -> TypedProgram:
    """Return a program of one probe, ``BEGIN``, that declares what it uses."""
    body = _Statements(seed).body(2, loops=False)

    def run() -> State:
        state = State()
        with contextlib.suppress(_Return):
            body.run(state)
        return state

    return TypedProgram(f"{_HEADER}BEGIN {{ {_START} {body.text} }}", run)


def damaged(seed: int) -> str:
    """Return a program of which some words are exchanged, gone or doubled; it never fires."""
    maker = _Statements(seed)
    start = f"{_HEADER}interval:s:999 {{ "
    words = _TOKEN.findall(f"{_START} {maker.body(1, loops=False).text} }}")
    for _ in range(maker.random.randint(1, 3)):
        at, other = (maker.random.randrange(len(words)) for _ in range(2))
        match maker.random.randrange(8):
            case 0:
                del words[at]
            case 1:
                words.insert(at, words[other])
            case _:  # most programs that are not of the grammar end in the parser
                like = [word for word in words if word[0].isalpha() is words[at][0].isalpha()]
                values = [word for word in words if word[0] in '$@"' or word[0].isalnum()]
                words[at] = maker.random.choice(values if words[at] in values else like)
    return start + "".join(words)
