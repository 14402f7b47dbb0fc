"""The C of ``print fmt``: its arguments, evaluated on a record's values.

The kernel compiles this text with the event; here it is parsed: casts, operators with C's
precedence, ``REC->field``, and the helpers of include/trace/stages/stage3_trace_output.h. What is
not understood evaluates to None, and so does every expression that uses it: never a wrong number.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from usdt.base.frozen import frozen
from usdt.tracefs.format.fields import TYPES, FormatError
from usdt.tracefs.format.operators import BINARY, U64

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    #: A record's values → an expression's value; None: unknown.
    Evaluate = Callable[[Mapping[str, Any]], Any]

__all__ = (
    "Argument",
    "ExpressionParser",
    "NameTable",
    "format_named",
    "parse_arguments",
    "split_arguments",
    "string_literal",
)

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>0[xX][0-9a-fA-F]+|\d+)[uUlL]*
    | (?P<name>[A-Za-z_]\w*)
    | (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<character>'(?:[^'\\]|\\.)')
    | (?P<op>->|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^~!<>?:(),{}\[\].])
    )""",
    re.VERBOSE | re.DOTALL,
)
_MAX_DEPTH = 60
_PRECEDENCE = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", "<=", ">", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
_NO_TYPES = ("REC", "true", "false", "NULL")


@frozen
class NameTable:
    """The names of values in a ``__print_flags`` or ``__print_symbolic``.

    Attributes:
        kind: "flags" or "symbols".
        separator: between flags.
        names: value → name, in the kernel's order.
        field: the record's field that has these values; None: another expression.
    """

    kind: str
    separator: str
    names: tuple[tuple[int, str], ...]
    field: str | None


@frozen
class Argument:
    """An argument of a ``print fmt``.

    Attributes:
        evaluate: a record's values → the argument's value; None: unknown.
        named: the tables of names in it.
    """

    evaluate: Evaluate
    named: tuple[NameTable, ...]


def parse_arguments(text: str) -> list[Argument]:
    """Parse the arguments of a ``print fmt``, which follow its format string.

    The value of an argument that cannot be parsed is None.
    """
    return [_argument(part) for part in split_arguments(text)]


def _argument(text: str) -> Argument:
    try:
        parser = ExpressionParser(text)
        evaluate = parser.parse()
    except (FormatError, RecursionError):
        return Argument(lambda _: None, ())
    return Argument(evaluate, tuple(parser.named))


def split_arguments(text: str) -> list[str]:
    """Split at commas outside parentheses, braces and strings."""
    parts, depth, start, position = [], 0, 0, 0
    while position < len(text):
        char = text[position]
        if char in "\"'":
            match = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'", re.DOTALL).match(
                text, position
            )
            position = match.end() if match else len(text)
            continue
        depth += (char in "([{") - (char in ")]}")
        if char == "," and not depth:
            parts.append(text[start:position])
            start = position + 1
        position += 1
    return [part.strip() for part in (*parts, text[start:]) if part.strip()]


class ExpressionParser:
    """A parser of one argument; evaluators are closures."""

    def __init__(self, text: str) -> None:
        self.tokens = list(_tokens(text))
        self.position = 0
        self.depth = 0
        self.named: list[NameTable] = []

    def parse(self) -> Evaluate:
        """Parse the whole text.

        Raises:
            FormatError: it is not one expression.
        """
        found = self._conditional()
        if self.position != len(self.tokens):
            raise FormatError(f"print fmt: {self._peek()!r} is unexpected")
        return found

    def _peek(self, ahead: int = 0) -> str:
        index = self.position + ahead
        return self.tokens[index][1] if index < len(self.tokens) else ""

    def _take(self, wanted: str = "") -> str:
        if self.position >= len(self.tokens) or (wanted and self._peek() != wanted):
            raise FormatError(f"print fmt: expected {wanted or 'more'}, found {self._peek()!r}")
        self.position += 1
        return self.tokens[self.position - 1][1]

    def _conditional(self) -> Evaluate:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise FormatError("print fmt: nested too deeply")
        condition = self._binary(0)
        if self._peek() == "?":
            self._take()
            first = self._conditional()
            self._take(":")
            second = self._conditional()
            self.depth -= 1
            return lambda values: _choose(condition(values), first, second, values)
        self.depth -= 1
        return condition

    def _binary(self, level: int) -> Evaluate:
        if level == len(_PRECEDENCE):
            return self._unary()
        left = self._binary(level + 1)
        while self._peek() in _PRECEDENCE[level]:
            left = _operation(self._take(), left, self._binary(level + 1))
        return left

    def _unary(self) -> Evaluate:
        word = self._peek()
        if word in ("-", "+", "~", "!", "&", "*") and word:
            self.depth += 1
            if self.depth > _MAX_DEPTH:
                raise FormatError("print fmt: nested too deeply")
            self._take()
            operand = self._unary()
            self.depth -= 1
            return _UNARY.get(word, _unknown)(operand)
        return self._postfix(self._primary())

    def _postfix(self, value: Evaluate) -> Evaluate:
        while self._peek() in ("[", "."):
            if self._take() == "[":
                index = self._conditional()
                self._take("]")
                value = _indexed(value, index)
            else:
                self._take()
                value = _unknown(value)
        return value

    def _primary(self) -> Evaluate:
        kind, word = self.tokens[self.position] if self.position < len(self.tokens) else ("end", "")
        if word == "(":
            return self._parenthesis()
        self._take()
        if kind == "number":
            number = _number(word)
            return lambda _: number
        if kind == "string":
            self.position -= 1
            text = self._string()
            return lambda _: text
        if kind == "character":
            code = ord(string_literal(f'"{word[1:-1]}"') or "\0")
            return lambda _: code
        if kind != "name":
            raise FormatError(f"print fmt: {word!r} is unexpected")
        if word == "REC" and self._peek() == "->":
            self._take()
            return _field(self._take())
        if self._peek() == "(":
            return self._call(word)
        if word in ("true", "false", "NULL"):
            return lambda _: int(word == "true")
        return lambda _: None  # a name of the kernel's source, which is not known here

    def _string(self) -> str:
        # Adjacent literals are one string.
        text = string_literal(self._take())
        while self.position < len(self.tokens) and self.tokens[self.position][0] == "string":
            text += string_literal(self._take())
        return text

    def _parenthesis(self) -> Evaluate:
        self._take("(")
        words = self._type()
        if words is not None:
            self._take(")")
            return _cast(words, self._unary())
        inner = self._conditional()
        self._take(")")
        return inner

    def _type(self) -> str | None:
        # The type of a cast, up to the closing parenthesis; None, and nothing consumed, if no cast.
        end = self.position
        words = []
        while end < len(self.tokens) and self.tokens[end][1] != ")":
            kind, word = self.tokens[end]
            if word != "*" and kind != "name":
                return None
            words.append(word)
            end += 1
        names = [word for word in words if word != "*"]
        spelled = " ".join(names)
        # A single name is a type: fields begin with REC, and constants are numbers already.
        is_type = bool(names) and names[0] not in _NO_TYPES
        follows = self.tokens[end + 1 : end + 2]
        if not is_type or not follows or follows[0][1] in ("", ")", ",", "?", ":", "+", "/"):
            return None
        self.position = end
        return spelled + ("*" if "*" in words else "")

    # ------------------------------------------------------------ calls

    def _call(self, name: str) -> Evaluate:
        self._take("(")
        if name in (
            "__print_flags",
            "__print_symbolic",
            "__print_flags_u64",
            "__print_symbolic_u64",
        ):
            return self._names(flags="flags" in name)
        if name in ("__get_str", "__get_dynamic_array", "__get_rel_str", "__get_bitmask",
                    "__get_dynamic_array_len", "__get_cpumask", "__get_sockaddr"):  # fmt: skip
            field = self._take()
            self._take(")")
            found = _field(field)
            if name == "__get_dynamic_array_len":
                return _length(found)
            return found if name in _PLAIN else _unknown(found)
        arguments = []
        if name == "sizeof":
            arguments.append(self._size())
        while self._peek() != ")":
            arguments.append(self._conditional())
            if self._peek() == ",":
                self._take()
        self._take(")")
        if name in ("__builtin_expect", "sizeof") and arguments:
            return arguments[0]
        if name in ("__print_array", "__print_hex", "__print_hex_str") and arguments:
            return _joined(name, arguments)
        return lambda _: None

    def _size(self) -> Evaluate:
        words = []
        while self._peek() not in (")", ""):
            words.append(self._take())
        size = TYPES.get(" ".join(words), (None, False))[0]
        return lambda _: size

    def _names(self, *, flags: bool) -> Evaluate:
        start = self.position
        value = self._conditional()
        words = [word for _, word in self.tokens[start : self.position]]
        names = [word for word in words if re.match(r"[A-Za-z_]", word)]
        separator = ""
        self._take(",")
        if flags:
            separator = string_literal(self._take())
            self._take(",")
        table = []
        while self._peek() == "{":
            self._take()
            if self._peek() == "}":  # an empty table
                self._take()
                continue
            number = self._conditional()({})
            self._take(",")
            if self._peek().startswith('"'):
                text = self._string()
                if number is not None:
                    table.append((number, text))
            else:  # NULL, the end of a table
                self._conditional()
            self._take("}")
            if self._peek() == ",":
                self._take()
        self._take(")")
        # The names belong to a field if the value is that field alone, perhaps with a cast.
        alone = names.count("REC") == 1 and not set(words) & {"&", ">>", "<<", "+", "/", "%", "|"}
        field = next(iter(names[names.index("REC") + 1 :]), None) if alone else None
        named = NameTable("flags" if flags else "symbols", separator, tuple(table), field)
        self.named.append(named)
        return lambda values: format_named(named, value(values))


def format_named(named: NameTable, value: Any) -> str | None:
    """Format a value by its names, as trace_print_flags_seq() and trace_print_symbols_seq() do."""
    if not isinstance(value, int):
        return None
    if named.kind == "symbols":
        found = next((text for number, text in named.names if number == value), None)
        return found if found is not None else hex(value & U64)
    parts, rest = [], value & U64
    for number, text in named.names:
        mask = number & U64
        if mask and rest & mask == mask:
            parts.append(text)
            rest &= ~mask
    if rest:
        parts.append(hex(rest))
    if not parts and not value:
        return next((text for number, text in named.names if not number), "")
    return named.separator.join(parts)


def _tokens(text: str) -> list[tuple[str, str]]:
    found, position = [], 0
    text = text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise FormatError(f"print fmt: {text[position : position + 20]!r} cannot be read")
        kind = match.lastgroup or "op"
        found.append((kind, match[kind]))
        position = match.end()
    return found


def _number(word: str) -> int:
    octal = word[0] == "0" and word[:2].lower() != "0x"
    try:
        return int(word, 8 if octal else 0)
    except ValueError as err:  # an octal 8, or more digits than Python converts
        raise FormatError(f"print fmt: {word[:20]!r} is not a number") from err


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "a": "\a", "b": "\b", "e": "\x1b"}


def string_literal(word: str) -> str:
    """Return the text of a C string literal.

    Raises:
        FormatError: it is not a string literal.
    """
    if len(word) < 2 or word[0] != '"':
        raise FormatError(f"print fmt: expected a string, found {word!r}")
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), word[1:-1])


def _field(name: str) -> Evaluate:
    return lambda values: values.get(name)


def _length(found: Evaluate) -> Evaluate:
    def length(values: Mapping[str, Any]) -> Any:
        value = found(values)
        return len(value) if isinstance(value, str | list | bytes) else None

    return length


_PLAIN = ("__get_str", "__get_rel_str", "__get_dynamic_array")


def _unknown(_: object) -> Evaluate:
    return lambda _: None


def _joined(name: str, arguments: list[Evaluate]) -> Evaluate:
    def text(values: Mapping[str, Any]) -> Any:
        value = arguments[0](values)
        if not isinstance(value, list | bytes | str):
            return None
        numbers = list(
            value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
        )
        if name == "__print_array":
            return "{" + ",".join(hex(number & U64) for number in numbers) + "}"
        count = arguments[1](values) if len(arguments) > 1 else None
        numbers = numbers[:count] if isinstance(count, int) and count >= 0 else numbers
        return ("" if name == "__print_hex_str" else " ").join(f"{n & 255:02x}" for n in numbers)

    return text


def _indexed(value: Evaluate, index: Evaluate) -> Evaluate:
    def item(values: Mapping[str, Any]) -> Any:
        array, number = value(values), index(values)
        if isinstance(array, list | bytes) and isinstance(number, int):
            return array[number] if 0 <= number < len(array) else None
        return None

    return item


def _choose(
    condition: Any,
    first: Evaluate,
    second: Evaluate,
    values: Mapping[str, Any],
) -> Any:
    return None if condition is None else first(values) if condition else second(values)


def _cast(words: str, operand: Evaluate) -> Evaluate:
    size, signed = TYPES.get(words, (8, False))

    def cast(values: Mapping[str, Any]) -> Any:
        value = operand(values)
        if not isinstance(value, int):
            return value if words.endswith("*") else None
        value &= (1 << 8 * size) - 1
        return value - (1 << 8 * size) if signed and value >> (8 * size - 1) else value

    return cast


def _operation(
    op: str,
    left: Evaluate,
    right: Evaluate,
) -> Evaluate:
    def operate(values: Mapping[str, Any]) -> Any:
        a = left(values)
        if op in ("&&", "||") and isinstance(a, int) and bool(a) == (op == "||"):
            return int(bool(a))
        b = right(values)
        if not isinstance(a, int) or not isinstance(b, int):
            return None
        return BINARY[op](a, b)

    return operate


_UNARY: dict[str, Callable[[Evaluate], Evaluate]] = {
    "-": lambda operand: lambda values: _apply(operand(values), lambda n: -n),
    "+": lambda operand: operand,
    "~": lambda operand: lambda values: _apply(operand(values), lambda n: ~n),
    "!": lambda operand: lambda values: _apply(operand(values), lambda n: int(not n)),
}


def _apply(value: Any, function: Callable[[int], int]) -> Any:
    return function(value) if isinstance(value, int) else None
