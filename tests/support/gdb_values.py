"""What gdb prints of a program's functions, as Python values: the witness of typed values.

``gdb_calls(path, {"by_pointer": ["req->path", "*req"]}, folder=tmp_path)`` runs gdb once and gives,
for each call of each function, what ``print ITEM`` says behind its prologue, where unoptimised code
has its arguments, and ``return``, what it returned.
Numbers are numbers, structures dicts (bases and members without a name merged into them), arrays
lists, texts and names of enums strings, addresses :class:`At`.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from patience import patient
from skips import need_program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ("LOST", "At", "Form", "gdb_calls", "gdb_value", "says_the_same")

LOST = object()  # what gdb cannot read


@dataclass(frozen=True)
class At:
    """An address, and the text there if gdb shows it."""

    address: int
    text: str | None = None


@dataclass(frozen=True)
class Form:
    """A form of a Rust enum, or the one of a structure without names."""

    name: str
    values: tuple[Any, ...]


_SCRIPT = """
set pagination off
set width 0
set confirm off
set print pretty off
set print elements unlimited
set print repeats unlimited
set print symbol off
set print static-members off
set print entry-values no
set exec-wrapper env -i
python
WANTED = {wanted!r}
STARTS = {{}}
ENTRIES = {entries!r}
base = 0
if ENTRIES:
    gdb.execute('starti >/dev/null')
    with open('/proc/%d/maps' % gdb.selected_inferior().pid) as maps:
        ours = [line for line in maps if line.rstrip().endswith({path!r})]
    base = min(int(line.partition('-')[0], 16) for line in ours)
for name in WANTED:
    at = '*%#x' % (base + ENTRIES[name]) if ENTRIES else name
    made = gdb.Breakpoint(at, internal=True)
    STARTS[made.number] = name
def write(name, item, text):
    gdb.write('@@' + '\\x1f'.join((name, item, text.strip().replace('\\n', '\\x02'))) + '\\n')
def shown(item):
    try:
        return gdb.execute('output ' + item, to_string=True)
    except gdb.error as err:
        return '<error: %s>' % err
hit = []
gdb.events.stop.connect(lambda event: hit.extend(
    STARTS[one.number] for one in getattr(event, 'breakpoints', ()) if one.number in STARTS))
gdb.execute('continue' if ENTRIES else 'run >/dev/null')
while gdb.selected_inferior().pid:
    if not hit:
        gdb.execute('continue')
        continue
    name = hit.pop()
    write(name, '', '')
    for item in WANTED[name]:
        write(name, item, shown(item))
    gdb.execute('finish')
end
"""


def gdb_calls(
    path: Path,
    wanted: Mapping[str, Sequence[str]],
    *,
    folder: Path,
    entries: Mapping[str, int] | None = None,
) -> dict[str, list[dict[str, Any]]]:
    """What gdb prints: function → the items of each call.

    Args:
        path: the program.
        wanted: function → items.
        folder: for the script.
        entries: where each function begins, to print there: optimised code has its arguments where
            the debug information says from the first instruction on.
    """
    gdb = need_program("gdb")
    script = folder / "calls.gdb"
    named = {name: [*items] for name, items in wanted.items()}
    places = dict(entries or {})
    script.write_text(_SCRIPT.format(wanted=named, entries=places, path=str(path)))
    done = subprocess.run(
        [gdb, "-nx", "-batch", "-x", script, path],
        capture_output=True,
        text=True,
        errors="surrogateescape",
        check=False,
        timeout=patient(60.0),
    )
    found: dict[str, list[dict[str, Any]]] = {}
    name = ""
    for line in done.stdout.splitlines():
        if line.startswith("Value returned is $"):
            found[name][-1]["return"] = gdb_value(line.partition(" = ")[2])
        if line.startswith("@@"):
            name, item, text = line[2:].split("\x1f")
            if not item:
                found.setdefault(name, []).append({})
            else:
                found[name][-1][item] = gdb_value(text)
    assert found, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return found


# A printer of libstdc++ that misses what clang leaves to the library's own debug information.
_FAILED = re.compile(r"Python Exception <[^>]*>: [^\x02]*\x02?")
_WARNING = re.compile(r"warning: [^\x02]*\x02")
_NUMBER = re.compile(r"-?(?:0x[0-9a-f]+|(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?))")
_VECTOR = re.compile(r"std::vector of length \d+, capacity -?\d+(?: = )?")
_POINTER = re.compile(r"std::\w+_ptr<[^=]*> (?:\([^)]*\) )?= \{get\(\) = (0x[0-9a-f]+)\}")
_OPTIONAL = re.compile(r"std::optional<[^=]*>(?: = (?=\{)| \[no contained value\])")
_SLICE = re.compile(r"&(?:mut )?\[[^\]]*\] ")
_NAME = re.compile(r"[A-Za-z_$~][\w$:.~]*")
_LABEL = re.compile(r"(<[^=]*>|[A-Za-z_][\w.$]*)(?: = |: )")
_ESCAPE = re.compile(r"\\([0-7]{3}|.)")
_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b"}


def gdb_value(text: str) -> Any:
    """The value that a text of gdb's stands for."""
    text = _FAILED.sub("<error>", _WARNING.sub("", text))
    reader = _Reader(text)
    value = reader.value()
    reader.space()
    assert reader.at == len(text), f"{text!r} is not understood from {text[reader.at :]!r} on"
    return value


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def value(self) -> Any:
        self.space()
        first = self.text[self.at : self.at + 1]
        if first == '"':
            return self._quoted('"')
        if first == "<":
            self._to_close("<", ">")
            return LOST
        if first == "@":
            self.at = self.text.index(": ", self.at) + 2
            return self.value()
        if first == "&":
            found = _SLICE.match(self.text, self.at)
            assert found, f"{self.text!r} is not understood at {self.at}"
            self.at = found.end()
            return self.value()
        if first in ("{", "["):
            return self._braces("}" if first == "{" else "]")
        if first == "(":
            return self._parentheses()
        for pattern in (_VECTOR, _POINTER):
            found = pattern.match(self.text, self.at)
            if found:
                self.at = found.end()
                if pattern is _POINTER:
                    return At(int(found[1], 16))
                return self.value() if found[0].endswith("= ") else []
        optional = _OPTIONAL.match(self.text, self.at)
        if optional:  # its printer shows it without what it is made of
            self.at = optional.end()
            self._to_close("{", "}")
            return LOST
        number = _NUMBER.match(self.text, self.at)
        if number:
            return self._number(number)
        return self._named()

    def _number(self, number: re.Match[str]) -> Any:
        self.at = number.end()
        text, rest = None, self.text[self.at : self.at + 2]
        if rest == " '":
            self.at += 1
            self._quoted("'")
        elif rest == ' "':
            self.at += 1
            text = self._quoted('"')
        elif rest == " <":
            self.at += 1
            self._to_close("<", ">")
        if "0x" in number[0]:
            return At(int(number[0], 16), text)
        return float(number[0]) if set(number[0]) & set(".e") else int(number[0])

    def _named(self) -> Any:
        found = _NAME.match(self.text, self.at)
        assert found, f"{self.text!r} is not understood at {self.at}"
        self.at = found.end()
        if self.text.startswith("<", self.at):
            self._to_close("<", ">")
            if self.text.startswith("::", self.at):
                return self._continued()
        name = found[0].rpartition("::")[2]
        return self._behind(name)

    def _continued(self) -> Any:
        self.at += 2
        return self._named()

    def _behind(self, name: str) -> Any:
        if name in ("true", "false"):
            return name == "true"
        if name in ("inf", "nan"):
            return float(name)
        inner = re.match(r" ?\{", self.text[self.at :])
        if inner:
            self.at += inner.end() - 1
            members = self._braces("}")
            return Form(name, (members,)) if inner[0] == "{" else members
        tuple_of = re.match(r" ?\(", self.text[self.at :])
        if tuple_of:
            self.at += tuple_of.end()
            return Form(name, tuple(self._listed(")")))
        return name

    def _parentheses(self) -> Any:
        start = self.at
        self._to_close("(", ")")
        inside = self.text[start + 1 : self.at - 1]
        if self.text[self.at : self.at + 1] == " " and self.text[self.at + 1 : self.at + 2] != "|":
            self.at += 1
            return self.value()  # a cast
        if re.fullmatch(r"[A-Za-z_][\w:]*(?: \| [\w: ]+)*", inside):
            return inside
        self.at = start + 1
        return self._listed(")")

    def _listed(self, close: str) -> list[Any]:
        found = []
        while True:
            self.space()
            if self.text.startswith(close, self.at):
                self.at += 1
                return found
            found.append(self.value())
            self._comma(close)

    def _braces(self, close: str) -> Any:
        self.at += 1
        names: dict[str, Any] = {}
        values: list[Any] = []
        while True:
            self.space()
            if self.text.startswith(close, self.at):
                self.at += 1
                break
            label = _LABEL.match(self.text, self.at) if close == "}" else None
            if label:
                self.at = label.end()
            value = self.value()
            if label and not label[1].startswith("<"):
                names[label[1]] = value
            elif isinstance(value, dict) and (label or names):
                names.update(value)
            else:
                values.append(value)
            self._comma(close)
        if values and not names:
            return values
        for value in values:  # a structure that begins with one without a name
            names.update(value)
        return names if names or close == "}" else []

    def _comma(self, close: str) -> None:
        self.space()
        if self.text.startswith(",", self.at):
            self.at += 1
            return
        assert self.text.startswith(close, self.at), f"{self.text!r}: {close} expected: {self.at}"

    def _quoted(self, mark: str) -> str:
        end = self.at + 1
        while self.text[end] != mark:
            end += 2 if self.text[end] == "\\" else 1
        raw = self.text[self.at + 1 : end]
        self.at = end + 1
        return _ESCAPE.sub(_character, raw)

    def _to_close(self, opening: str, close: str) -> None:
        depth = 0
        while True:
            one = self.text[self.at]
            self.at += 1
            depth += (one == opening) - (one == close and self.text[self.at - 2] != "-")
            if not depth:
                return

    def space(self) -> None:
        while self.text.startswith(" ", self.at):
            self.at += 1


def _character(found: re.Match[str]) -> str:
    if len(found[1]) == 3:
        return chr(int(found[1], 8))
    return _SIMPLE.get(found[1], found[1])


def says_the_same(shown: Any, gdb: Any) -> bool:
    """Whether what a tracer shows is what gdb prints."""
    if gdb is LOST:  # within a structure
        return True
    if isinstance(gdb, At):
        if isinstance(shown, str):
            return gdb.text == shown if not shown.startswith("0x") else gdb.address == int(shown, 0)
        return bool(shown == gdb.address)
    if isinstance(gdb, Form):
        return _form(shown, gdb)
    if isinstance(gdb, dict):
        return _structure(shown, gdb)
    if isinstance(gdb, list):
        return _row(shown, gdb)
    if isinstance(gdb, str) and shown == {}:
        return True  # a structure of Rust without members
    if isinstance(gdb, str) and isinstance(shown, dict):  # a text within: by its members
        return len(gdb) in (shown.get("_M_string_length"), shown.get("length"))
    if isinstance(gdb, str) and isinstance(shown, list):  # bytes, which gdb shows as text
        return [*map(ord, gdb.rstrip("\0"))] == _without_zeros([one & 255 for one in shown])
    if isinstance(gdb, str) and isinstance(shown, str):
        return _characters(shown) == gdb.partition("\0")[0] or shown == gdb.rpartition("::")[2]
    return bool(shown == gdb)


def _characters(text: str) -> str:
    # Bytes that are no UTF-8, as gdb shows them.
    return "".join(map(chr, text.encode("utf-8", "surrogateescape")))


def _without_zeros(row: list[int]) -> list[int]:
    while row and not row[-1]:
        row = row[:-1]
    return row


def _structure(shown: Any, gdb: dict[str, Any]) -> bool:
    if isinstance(shown, dict) and "ptr" in gdb and "ptr" not in shown:
        return True  # Rc<T>, of which the T is shown: the programs print that themselves
    if isinstance(shown, dict):
        return set(shown) == set(gdb) and all(says_the_same(shown[k], gdb[k]) for k in gdb)
    # Texts and lists of Rust: gdb shows their parts.
    length = (gdb.get("vec") or gdb).get("len")
    size = len(shown.encode("utf-8", "surrogateescape")) if isinstance(shown, str) else None
    return length is not None and length == (len(shown) if size is None else size)


def _form(shown: Any, gdb: Form) -> bool:
    # An enum of Rust with data is shown as its name, or with them: {"Some": {"__0": 4}}. A
    # structure without names has the same form.
    if isinstance(shown, dict) and "__0" in shown:
        return _row(dict(sorted(shown.items())), [*gdb.values])
    if not isinstance(shown, dict) or [*shown] != [gdb.name]:
        return bool(shown == gdb.name)
    inner = shown[gdb.name]
    if len(gdb.values) == 1 and isinstance(gdb.values[0], dict) and "__0" not in inner:
        return says_the_same(inner, gdb.values[0])
    return _row(dict(sorted(inner.items())), [*gdb.values])


def _row(shown: Any, gdb: list[Any]) -> bool:
    if isinstance(shown, dict):  # a tuple of Rust
        shown = [*shown.values()]
    return (
        isinstance(shown, list)
        and len(shown) == len(gdb)
        and all(says_the_same(one, other) for one, other in zip(shown, gdb, strict=True))
    )
