"""Parse a line into a Definition or a Deletion, or raise the error that the kernel would log."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn

from kprobe.events.errors import DefinitionError
from kprobe.events.fetch import Target, is_name, parse_argument
from kprobe.events.numbers import signed, unsigned
from kprobe.events.values import (
    Argument,
    Definition,
    Deletion,
    EventName,
    FileOffset,
    KernelAddress,
    KernelSymbol,
    TracepointName,
)

if TYPE_CHECKING:
    from kprobe.events.dialect import Dialect
    from kprobe.events.values import ProbePoint

__all__ = ("canonical", "parse")

MAX_LINE = 4094
MAX_EVENT_NAME = 64  # with its NUL
MAX_MAXACTIVE = 4096
# Offsets that may still be a function's entry: after the landing pad for indirect branches (x86:
# cc66bb914578; arm64), after the set-up of the TOC (powerpc). Only the kernel knows which.
_ENTRY = (0, 4, 8, 16)
_SYSTEM = re.compile(r"[A-Za-z_-][A-Za-z0-9_-]*", re.ASCII)
_SPACE = " \t\n\v\f\r\xa0"  # isspace() of the kernel


def canonical(line: str) -> str:
    """Return the line as error_log shows it: without comment, tokens separated by one space."""
    return " ".join(_words(line))


def _words(line: str) -> list[str]:
    return [word for word in re.split(f"[{_SPACE}]+", line.partition("#")[0]) if word]


def parse(line: str, dialect: Dialect) -> Definition | Deletion:
    """Parse one definition.

    Args:
        line: a line as written to kprobe_events, uprobe_events or dynamic_events.
        dialect: the syntax that the kernel accepts.

    Raises:
        DefinitionError: the kernel would refuse the line, or would interpret it differently.
    """
    if len(line.rstrip("\n")) > MAX_LINE:
        raise DefinitionError(canonical(line), MAX_LINE, "LINE_TOO_LONG")
    words = _words(line)
    return _Line(words, dialect).parse()


class _Line:
    def __init__(self, words: list[str], dialect: Dialect) -> None:
        self.words = words
        self.dialect = dialect
        self.text = " ".join(words)

    def fail(self, index: int, offset: int, code: str) -> NoReturn:
        """Raise the error ``code`` at character ``offset`` of token ``index``."""
        raise DefinitionError(self.text, self._start(index) + offset, code)

    def _start(self, index: int) -> int:
        return sum(len(word) + 1 for word in self.words[:index])

    def parse(self) -> Definition | Deletion:
        """Parse the line."""
        if not self.words:
            self.fail(0, 0, "NO_COMMAND")
        head = self.words[0]
        if head[0] in "-!":
            return self._deletion(head)
        if head[0] not in "prefts":
            self.fail(0, 0, "NO_COMMAND")
        if head[0] not in self.dialect.kinds:
            self.fail(0, 0, "NO_SUCH_KIND")
        if len(self.words) < 2:
            raise DefinitionError(self.text, len(self.text), "NO_PLACE")
        return {"e": self._event, "f": self._function, "t": self._tracepoint}.get(
            head[0], self._probe
        )()

    def _deletion(self, head: str) -> Deletion:
        at = 2 if head[1:2] == ":" else 1
        if head[0] == "!" and (colon := head.find(":")) >= 0:
            at = colon + 1
        group, event = self._name(head[at:], 0, at)
        if group is None and event is None:
            self.fail(0, at, "NO_DELETE_NAME")
        return Deletion(group, event)

    # ------------------------------------------------------------ names

    def _named(self) -> tuple[str | None, str | None]:
        # The group and event after the colon of the first token.
        head = self.words[0]
        colon = head.find(":")
        if colon < 0:
            return None, None
        return self._name(head[colon + 1 :], 0, colon + 1)

    def _name(self, name: str, index: int, at: int) -> tuple[str | None, str | None]:
        group = None
        cut = name.find("/")
        if cut < 0:
            cut = name.find(".")
        if cut >= 0:
            group = name[:cut]
            if not group:
                self.fail(index, at, "NO_GROUP_NAME")
            if len(group) + 1 > MAX_EVENT_NAME:
                self.fail(index, at, "GROUP_TOO_LONG")
            if not _SYSTEM.fullmatch(group):
                self.fail(index, at, "BAD_GROUP_NAME")
            at += cut + 1
            name = name[cut + 1 :]
        if not name:
            if group is not None:
                return group, None
            self.fail(index, at, "NO_EVENT_NAME")
        if len(name) >= MAX_EVENT_NAME:
            self.fail(index, at, "EVENT_TOO_LONG")
        if not is_name(name):
            self.fail(index, at, "BAD_EVENT_NAME")
        return group, name

    def _no_junk(self) -> None:
        # The kernel accepts "pfoo" and "pfoo:bar" as "p" and "p:bar".
        head = self.words[0]
        if len(head) > 1 and head[1] != ":":
            self.fail(0, 1, "JUNK")

    # ------------------------------------------------------------ kprobes and uprobes

    def _probe(self) -> Definition:
        probe_point = self.words[1]
        path, colon, offset = probe_point.rpartition(":")
        if "/" in probe_point and colon and offset[:1].isdigit():
            return self._user(path, offset)
        if "/" in probe_point:
            self.fail(1, len(probe_point), "NO_UPROBE_OFFS")
        head = self.words[0]
        returns, maxactive = head[0] == "r", None
        digits = head[1:].partition(":")[0]
        if digits[:1].isdigit():
            maxactive = self._maxactive(digits, returns=returns)
        elif digits:
            self.fail(0, 1, "JUNK")
        address = unsigned(probe_point)
        if address is not None:
            group, event = self._named()
            target = Target("kernel", returns=returns)
            found: ProbePoint = KernelAddress(address)
        else:
            symbol, percent, suffix = probe_point.partition("%")
            if percent and suffix != "return":
                self.fail(1, len(symbol), "BAD_ADDR_SUFFIX")
            returns = returns or bool(percent)
            found = self._symbol(symbol, returns=returns)
            group, event = self._named()
            target = Target("kernel", not returns and found.offset in _ENTRY, returns)
        arguments = self._arguments(2, target)
        kind = "r" if returns else "p"
        return Definition(kind, found, arguments, group, event, maxactive)

    def _maxactive(self, digits: str, *, returns: bool) -> int:
        if not returns:
            self.fail(0, 1, "BAD_MAXACT_TYPE")
        number = unsigned(digits, bits=32)
        if not number:
            self.fail(0, 1, "BAD_MAXACT")
        if number > MAX_MAXACTIVE:
            self.fail(0, 1, "MAXACT_TOO_BIG")
        return number

    def _symbol(self, text: str, *, returns: bool) -> KernelSymbol:
        match = re.fullmatch(r"([^+-]*)([+-].*)?", text, re.DOTALL)
        offset = signed(match[2]) if match and match[2] else 0
        if match is None or offset is None or not 0 <= offset < 1 << 32:
            self.fail(1, 0, "BAD_PROBE_ADDR")
        if returns and offset:
            self.fail(1, 0, "BAD_RETPROBE")
        module, colon, symbol = match[1].rpartition(":")
        if not symbol or (colon and not module):
            self.fail(1, 0, "NO_SYMBOL")
        return KernelSymbol(symbol, offset, module or None)

    def _user(self, path: str, rest: str) -> Definition:
        self._no_junk()
        returns = self.words[0][0] == "r"
        at = len(path) + 1
        number, brace, counter = rest.partition("(")
        ref_ctr = None
        if brace:
            inside = at + len(number) + 1
            digits, close, tail = counter.partition(")")
            if not close:
                self.fail(1, inside + len(counter), "REFCNT_OPEN_BRACE")
            if tail:
                self.fail(1, inside + len(digits) + 1, "BAD_REFCNT_SUFFIX")
            ref_ctr = unsigned(digits)
            if ref_ctr is None:
                self.fail(1, inside, "BAD_REFCNT")
        number, percent, suffix = number.partition("%")
        if percent and suffix != "return":
            self.fail(1, at + len(number), "BAD_ADDR_SUFFIX")
        offset = unsigned(number)
        if offset is None:
            self.fail(1, at, "BAD_UPROBE_OFFS")
        returns = returns or bool(percent)
        group, event = self._named()
        arguments = self._arguments(2, Target("user", returns=returns))
        probe_point = FileOffset(path, offset, ref_ctr)
        return Definition("r" if returns else "p", probe_point, arguments, group, event)

    # ------------------------------------------------------------ other events

    def _event(self) -> Definition:
        self._no_junk()
        group, event = self._named()
        try:
            system, name = self._name(self.words[1], 1, 0)
        except DefinitionError:
            system = name = None
        if not system or not name:
            self.fail(1, 0, "NO_EVENT_INFO")
        condition = None
        words = self.words
        if "if" in words[2:]:
            index = words.index("if", 2)
            condition = " ".join(words[index + 1 :])
            if not condition:
                raise DefinitionError(self.text, len(self.text) + 1, "NO_EP_FILTER")
            self.words = words[:index]
        arguments = self._arguments(2, Target("event", registers=False))
        probe_point = EventName(system, name)
        return Definition("e", probe_point, arguments, group, event, filter=condition)

    def _function(self) -> Definition:
        self._no_junk()
        symbol, percent, suffix = self.words[1].partition("%")
        if percent and suffix != "return":
            self.fail(1, len(symbol), "BAD_ADDR_SUFFIX")
        if not re.fullmatch(r"[\w.*?\[\]!:-]+", symbol, re.ASCII):
            self.fail(1, 0, "NO_SYMBOL")
        group, event = self._named()
        returns = bool(percent) or any(
            re.search(r"\$retval\b", word.partition("=")[2] or word) for word in self.words[2:]
        )
        target = Target("kernel", entry=not returns, returns=returns, registers=False)
        arguments = self._arguments(2, target)
        return Definition("f", KernelSymbol(symbol), arguments, group, event, returns=bool(percent))

    def _tracepoint(self) -> Definition:
        self._no_junk()
        name = self.words[1]
        if bad := re.search(r"[^A-Za-z0-9_]", name):
            self.fail(1, bad.start(), "BAD_TP_NAME")
        group, event = self._named()
        arguments = self._arguments(2, Target("kernel", entry=True, registers=False))
        return Definition("t", TracepointName(name), arguments, group, event)

    def _arguments(self, first: int, target: Target) -> tuple[Argument, ...]:
        words = self.words[first:]
        if len(words) > self.dialect.maximum_arguments:
            self.fail(first, 0, "TOO_MANY_ARGS")
        used: dict[str, int] = {}
        return tuple(
            parse_argument(
                word,
                used,
                line=self.text,
                at=self._start(first + index),
                target=target,
                dialect=self.dialect,
            )
            for index, word in enumerate(words)
        )
