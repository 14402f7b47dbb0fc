"""Arguments of a definition: names, fetch expressions, types; checked in the kernel's order.

The order matters, because error_log reports only the first of several mistakes. Positions are those
of traceprobe_parse_probe_arg() in kernel/trace/trace_probe.c. The kernel compiles a fetch
expression to operations; only their number and the last one matter here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn

from kprobe.events.errors import DefinitionError
from kprobe.events.numbers import prefix_number, signed, unsigned
from kprobe.events.values import (
    AllArguments,
    Argument,
    Comm,
    Deref,
    FunctionArgument,
    Immediate,
    Memory,
    MemoryOfFile,
    MemoryOfSymbol,
    Register,
    ReturnValue,
    Stack,
    StackSlot,
    Text,
    Type,
    Variable,
)
from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from kprobe.events.dialect import Dialect
    from kprobe.events.values import Fetch

__all__ = ("RESERVED", "Target", "is_name", "parse_argument")

MAX_NAME = 32  # characters of an argument's name
MAX_ARRAY = 64
MAX_SLOT = 2048  # longs in a kernel stack, THREAD_SIZE / sizeof(long)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

#: Fields that every event has.
RESERVED = {
    *("common_type", "common_flags", "common_preempt_count", "common_pid", "common_tgid"),
    *("__probe_ip", "__probe_ret_ip", "__probe_func"),
}
_STRINGS = frozenset({"string", "ustring", "symstr"})
_EXPANDED = frozenset({"%pd", "%pD"})  # the kernel turns them into string fetches: d9b15224dd8f
_SIZES = {"char": 1, "symbol": 8}


@frozen
class Target:
    """The kind of event that an argument belongs to.

    Attributes:
        kind: "kernel", "user" or "event".
        entry: True for a function's first instruction.
        returns: True for a return probe.
        registers: True if the event has the registers.
    """

    kind: str
    entry: bool = False
    returns: bool = False
    registers: bool = True


def is_name(text: str) -> bool:
    """Return True if a text is a C identifier (the kernel's is_good_name())."""
    return _NAME.fullmatch(text) is not None


def parse_argument(
    word: str, used: dict[str, int], *, line: str, at: int, target: Target, dialect: Dialect
) -> Argument:
    """Parse one argument.

    Args:
        word: the text of the argument.
        used: names of the arguments before it; its own name is added.
        line: the normalized line, for errors.
        at: position of ``word`` in ``line``.
        target: the kind of event.
        dialect: the syntax that the kernel accepts.

    Raises:
        DefinitionError: the argument is not valid; it has the kernel's code and position.
    """
    return _Parser(line, target, dialect).argument(word, used, at)


class _Parser:
    def __init__(self, line: str, target: Target, dialect: Dialect) -> None:
        self.line = line
        self.reached = 0  # position in the line of an argument's innermost fetch
        self.target = target
        self.dialect = dialect

    def fail(self, at: int, code: str) -> NoReturn:
        raise DefinitionError(self.line, at, code)

    def argument(self, word: str, used: dict[str, int], at: int) -> Argument:
        if word == "$arg*" and self.dialect.all_arguments:
            if self.target.kind == "user" or not (self.target.entry or self.target.returns):
                self.fail(at, "NOFENTRY_ARGS")
            if word in used:
                self.fail(at, "DOUBLE_ARGS")
            used[word] = len(used)
            return Argument(AllArguments())
        name, equal, body = word.partition("=")
        if not equal:
            name, body = "", word
        elif len(name) > MAX_NAME:
            self.fail(at, "ARG_NAME_TOO_LONG")
        elif not name:
            self.fail(at, "NO_ARG_NAME")
        elif not is_name(name):
            self.fail(at, "BAD_ARG_NAME")
        known = name or self._automatic(body, len(used) + 1)
        if known in used or known in RESERVED:
            self.fail(at, "USED_ARG_NAME")
        used[known] = len(used)
        fetch, kind = self._body(body, at + len(word) - len(body))
        return Argument(fetch, name or None, kind)

    def _automatic(self, body: str, number: int) -> str:
        # The kernel's name for an argument without one: the parameter's name, or argN.
        bare = body.partition(":")[0]
        return bare if self.dialect.variables and is_name(bare) else f"arg{number}"

    def _body(self, body: str, at: int) -> tuple[Fetch, Type | None]:
        if len(body) > self.dialect.maximum_body:
            self.fail(at, "ARG_TOO_LONG")
        if not body:
            self.fail(at, "NO_ARG_BODY")
        # The kernel splits at the first colon, even inside a quoted string.
        expression, colon, spelled = body.partition(":")
        type_at = at + len(expression) + 1
        kind = self._type(spelled, type_at) if colon else None
        text = expression in ("$comm", "$COMM") or expression.startswith('\\"')
        if self.target.kind != "event" and text:
            if kind and (kind.count or kind.name != "string"):
                self.fail(type_at, "NEED_STRING_TYPE")
        elif kind and not self._known(kind.name):
            self.fail(type_at, "BAD_TYPE")
        self.reached = at
        fetch = self._fetch(expression, at)
        self._check(fetch, kind, at, type_at, text=text)
        return fetch, kind

    # ------------------------------------------------------------ types

    def _type(self, text: str, at: int) -> Type:
        name, bracket, rest = text.partition("[")
        if not bracket:
            return Type(name)
        number, close, tail = rest.partition("]")
        inside = at + len(name) + 1
        if not close:
            self.fail(at + len(text), "ARRAY_NO_CLOSE")
        if tail:
            self.fail(inside + len(number) + 1, "BAD_ARRAY_SUFFIX")
        count = unsigned(number, bits=32)
        if not count:
            self.fail(inside, "BAD_ARRAY_NUM")
        if count > MAX_ARRAY:
            self.fail(inside, "ARRAY_TOO_BIG")
        return Type(name, count)

    def _known(self, name: str) -> bool:
        if name.startswith("b"):  # check a bit field's container; _check() checks the rest last
            container = unsigned(name.partition("/")[2]) if "/" in name else None
            return container in (8, 16, 32, 64)
        if self.target.kind == "user" and name in ("symbol", "symstr"):
            return self.dialect.user_symbols and name in self.dialect.types
        if self.target.kind == "user" and name.startswith("%"):
            return False
        return name in self.dialect.types

    def _check(self, fetch: Fetch, kind: Type | None, at: int, type_at: int, *, text: bool) -> None:
        # Check that the type fits the last operation of the fetch.
        name = "string" if text else kind.name if kind else ""
        count = kind.count if kind else 0
        in_memory = isinstance(fetch, Deref | Memory | MemoryOfSymbol | MemoryOfFile)
        pointers = in_memory or isinstance(fetch, Immediate | Comm | Text | Variable)
        if isinstance(fetch, FunctionArgument | ReturnValue):  # they have types if there is BTF
            pointers = self.dialect.variables and self.target.kind == "kernel"
        # A member of a parameter is in memory.
        in_memory |= isinstance(fetch, Variable) and "->" in fetch.text
        operations = _operations(fetch)
        where = type_at if kind else at
        if name in _STRINGS:
            whole = name == "symstr" or pointers
            if not whole:
                self.fail(where, "BAD_STRING")
            operations += not in_memory or bool(count)
        elif not in_memory:
            operations += 1
        if operations >= self.dialect.maximum_operations:
            self.fail(at, "TOO_MANY_OPS")
        # Newer kernels report the remaining errors relative to the innermost fetch.
        deeper = self.reached - at if self.dialect.modern else 0
        if name.startswith("b") and not _bitfield(name):
            self.fail(type_at + deeper, "BAD_BITFIELD")
        elements = in_memory and not (isinstance(fetch, Deref) and fetch.user)
        if count and not (elements or name in _STRINGS or name in _EXPANDED):
            self.fail(where + deeper, "BAD_STRING")

    # ------------------------------------------------------------ fetch expressions

    def _fetch(self, text: str, at: int, depth: int = 0) -> Fetch:
        first = text[:1]
        if first == "$":
            return self._variable(text[1:], at)
        if first == "%":
            if not self.target.registers:
                self.fail(at, "BAD_VAR" if self.target.kind == "event" else "BAD_FETCH_ARG")
            if not self._is_register(text[1:]):
                self.fail(at, "BAD_REG_NAME")
            return Register(text[1:])
        if first == "@":
            return self._memory(text[1:], at)
        if first in ("+", "-") and first:
            return self._deref(text, at, depth)
        if first == "\\":
            return self._immediate(text[1:], at)
        if self.dialect.modern and ((first.isascii() and first.isalpha()) or first == "_"):
            return self._parameter(text, at)
        self.fail(at, "BAD_FETCH_ARG")
        return None

    def _is_register(self, name: str) -> bool:
        known = self.dialect.registers
        return name in known if known is not None else bool(re.fullmatch(r"\w+", name))

    def _variable(self, name: str, at: int) -> Fetch:
        target = self.target
        if target.kind == "event" and name not in ("comm", "COMM"):
            if not is_name(name):
                self.fail(at, "BAD_VAR")
            return Variable(f"${name}")
        if name == "retval" or (self.dialect.modern and name.startswith("retval")):
            if not target.returns:
                self.fail(at, "RETVAL_ON_PROBE")
            if name != "retval":
                self.fail(at, "BAD_VAR")
            return ReturnValue()
        if name.startswith("stack"):
            return self._stack(name.removeprefix("stack"), at)
        if name in ("comm", "COMM"):
            return Comm(name)
        if name.startswith("arg"):
            return self._function_argument(name.removeprefix("arg"), at)
        return self.fail(at, "BAD_VAR")

    def _function_argument(self, digits: str, at: int) -> Fetch:
        target, modern = self.target, self.dialect.modern
        reached = target.entry or (target.returns and self.dialect.arguments_on_return)
        reached = reached and target.kind == "kernel"
        number = unsigned(digits, base=10)
        if number is None or not (reached or modern):
            self.fail(at, "BAD_VAR")
        if not 0 < number <= MAX_SLOT:
            self.fail(at, "BAD_ARG_NUM")
        if not reached:
            self.fail(at, "NOFENTRY_ARGS")
        return FunctionArgument(number)

    def _stack(self, digits: str, at: int) -> Fetch:
        if not digits:
            return Stack()
        number = unsigned(digits, base=10) if digits[0].isdigit() else None
        if number is None:
            self.fail(at, "BAD_VAR")
        if self.target.kind == "kernel" and number > MAX_SLOT:
            self.fail(at, "BAD_STACK_NUM")
        return StackSlot(number)

    def _memory(self, location: str, at: int) -> Fetch:
        if location[:1].isdigit():
            address = unsigned(location)
            if address is None:
                self.fail(at, "BAD_MEM_ADDR")
            return Memory(address)
        if location[:1] == "+":
            if self.target.kind != "user":
                self.fail(at, "FILE_ON_KPROBE")
            offset = signed(location[1:])
            if offset is None:
                self.fail(at, "BAD_FILE_OFFS")
            return MemoryOfFile(offset)
        if self.target.kind == "user":
            self.fail(at, "SYM_ON_UPROBE")
        match = re.fullmatch(r"([^+-]*)([+-].*)?", location, re.DOTALL)
        offset = signed(match[2]) if match and match[2] else 0
        if match is None or not match[1] or offset is None:
            self.fail(at, "BAD_SYMBOL")  # the kernel's error here: no such symbol
        return MemoryOfSymbol(match[1], offset)

    def _deref(self, text: str, at: int, depth: int) -> Fetch:
        user = text[1:2] == "u"
        digits, brace, rest = (text[0] + text[2:] if user else text).partition("(")
        if not brace:
            self.fail(at, "DEREF_NEED_BRACE")
        # The kernel accepts two signs in a row; that is hardly intended.
        offset = signed(digits) if digits[1:2] not in ("+", "-") else None
        if offset is None:
            self.fail(at, "BAD_DEREF_OFFS")
        inside = at + len(digits) + 1  # the kernel does not count the "u"
        end = rest.rfind(")")
        if end < 0:
            self.fail(inside + len(rest), "DEREF_OPEN_BRACE")
        if depth > self.dialect.maximum_operations:
            self.fail(inside, "TOO_MANY_OPS")
        self.reached = inside
        inner = self._fetch(rest[:end], inside, depth + 1)
        if isinstance(inner, Comm | Text):
            self.fail(inside, "COMM_CANT_DEREF")
        if _operations(inner) + 1 >= self.dialect.maximum_operations:
            self.fail(inside, "TOO_MANY_OPS")
        if rest[end + 1 :]:
            self.fail(inside + end + 1, "JUNK_AFTER_BRACE")
        return Deref(offset, inner, user)

    def _immediate(self, text: str, at: int) -> Fetch:
        if text[:1] != '"':
            number = signed(text) if text[:1] in ("+", "-") else unsigned(text)
            if number is None:
                self.fail(at + 1, "BAD_IMM")
            return Immediate(number)
        if len(text) < 2 or text[-1] != '"':
            self.fail(at + 1 + len(text), "IMMSTR_NO_CLOSE")
        return Text(text[1:-1])

    def _parameter(self, text: str, at: int) -> Fetch:
        # A bare identifier: a parameter and its members. Only BTF tells whether they exist.
        reached = self.target.entry or self.target.returns
        if self.target.kind != "kernel" or not (reached and self.dialect.variables):
            self.fail(at, "NOSUP_BTFARG")
        steps = re.split(r"(->|\.)", text)
        position = at
        for index, step in enumerate(steps):
            if index % 2 == 0 and not is_name(step):
                if "-" in step:
                    self.fail(position + step.index("-"), "BAD_HYPHEN")
                self.fail(position, "NO_BTF_FIELD")
            position += len(step)
        return Variable(text)


def _operations(fetch: Fetch) -> int:
    # The number of operations that a fetch is compiled to, without the store of its value.
    if isinstance(fetch, Deref):
        return _operations(fetch.inner) + 1
    return 2 if isinstance(fetch, Memory | MemoryOfSymbol | MemoryOfFile) else 1


def _bitfield(name: str) -> bool:
    # bWIDTH@OFFSET/CONTAINER
    width, rest = prefix_number(name[1:])
    if not width or rest[:1] != "@":
        return False
    offset, rest = prefix_number(rest[1:])
    container = unsigned(rest[1:]) if rest[:1] == "/" else None
    return offset is not None and container is not None and width + offset <= container
