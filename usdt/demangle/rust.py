"""Demangle Rust names, v0 (RFC 2603) and legacy, as ``c++filt`` does.

Hashes and crate disambiguators are omitted.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from usdt.demangle.bounded import BoundedPrinter, MalformedName, NameReader

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("demangle_legacy", "demangle_v0")

_BASE62 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_BASIC = {
    "b": "bool",
    "c": "char",
    "e": "str",
    "u": "()",
    "a": "i8",
    "s": "i16",
    "l": "i32",
    "x": "i64",
    "n": "i128",
    "i": "isize",
    "h": "u8",
    "t": "u16",
    "m": "u32",
    "y": "u64",
    "o": "u128",
    "j": "usize",
    "f": "f32",
    "d": "f64",
    "z": "!",
    "p": "_",
    "v": "...",
}
_ESCAPES = {
    "SP": "@",
    "BP": "*",
    "RF": "&",
    "LT": "<",
    "GT": ">",
    "LP": "(",
    "RP": ")",
    "C": ",",
}
_HASH = 17  # "h" and 16 hexadecimal digits
_UNICODE = 0x110000
_SURROGATES = range(0xD800, 0xE000)


def demangle_legacy(name: str) -> str | None:
    """Demangle a name like ``_ZN4core3fmt5write17h0123456789abcdefE``; None if it is not Rust.

    Raises:
        MalformedName: the name is implausibly long, or damaged.
    """
    reader = NameReader(name)
    reader.expect("_ZN")
    parts = []
    while not reader.take("E"):
        if not reader.peek().isdigit():
            return None
        parts.append(reader.next(reader.number()))
    if len(parts) < 2 or not _is_hash(parts[-1]):
        return None
    suffix = reader.text[reader.at :]
    if suffix and not suffix.startswith("."):
        return None
    return "::".join(map(_legacy_part, parts[:-1]))


def _is_hash(part: str) -> bool:
    digits = part[1:]
    known = len(part) == _HASH and part[0] == "h" and set(digits) <= set("0123456789abcdef")
    return known and len(set(digits)) >= 5


def _legacy_part(part: str) -> str:
    if part.startswith("_$"):
        part = part[1:]
    out = []
    while part:
        if part.startswith("$") and "$" in part[1:]:
            code, _, rest = part[1:].partition("$")
            out.append(_escape(code))
            part = rest
        elif part.startswith(".."):
            out.append("::")
            part = part[2:]
        else:
            out.append(part[0])
            part = part[1:]
    return "".join(out)


def _escape(code: str) -> str:
    if code in _ESCAPES:
        return _ESCAPES[code]
    if code.startswith("u") and 1 < len(code) <= 7:
        try:
            number = int(code[1:], 16)
        except ValueError:
            raise MalformedName from None
        if number < _UNICODE and number not in _SURROGATES and chr(number).isprintable():
            return chr(number)
    raise MalformedName


def demangle_v0(name: str) -> str:
    """Demangle a name that begins with ``_R``.

    Raises:
        MalformedName: ``name`` is not a mangled name, or its text would be too long.
    """
    return _V0(name.lstrip("_")[1:]).demangle()


class _V0(NameReader):
    # Prints while it reads. At a back reference, it reads the target again.
    def __init__(self, text: str) -> None:
        # LLVM and GCC add suffixes: .llvm.123, .cold
        body, _, self._suffix = text.partition(".")
        super().__init__(body)
        self.out = BoundedPrinter()
        self._lifetimes = 0
        self._silent = 0

    def demangle(self) -> str:
        if not self.peek().isupper():
            raise MalformedName
        self._path(value=True)
        if not self.done:
            self._silent += 1
            self._path(value=False)  # the crate that instantiated it
            self._silent -= 1
        if not self.done:
            raise MalformedName
        return self.out.text()

    def _put(self, text: str) -> None:
        if not self._silent:
            self.out.put(text)

    @contextmanager
    def _back_reference(self) -> Iterator[None]:
        # Read at an earlier position, then return.
        start = self.at - 1
        target = self.base(_BASE62)
        if target >= start:
            raise MalformedName
        after, self.at = self.at, target
        with self, self.out:
            yield
        self.at = after

    def _disambiguator(self) -> int:
        return self.base(_BASE62) + 1 if self.take("s") else 0

    def _identifier(self) -> str:
        unicode = self.take("u")
        size = 0 if self.take("0") else self.number()
        self.take("_")
        found = self.next(size)
        return _punycode(found) if unicode else found

    # ------------------------------------------------------------ paths

    def _path(self, *, value: bool) -> None:
        with self, self.out:
            kind = self.next()
            match kind:
                case "C":
                    self._disambiguator()
                    self._put(self._identifier())
                case "N":
                    self._nested(value=value)
                case "M" | "X":
                    self._disambiguator()
                    self._silent += 1
                    self._path(value=False)
                    self._silent -= 1
                    self._qualified(trait=kind == "X")
                case "Y":
                    self._qualified(trait=True)
                case "I":
                    self._path(value=value)
                    self._put("::<" if value else "<")
                    self._arguments()
                    self._put(">")
                case "B":
                    with self._back_reference():
                        self._path(value=value)
                case _:
                    raise MalformedName

    def _qualified(self, *, trait: bool) -> None:
        self._put("<")
        self._type()
        if trait:
            self._put(" as ")
            self._path(value=False)
        self._put(">")

    def _nested(self, *, value: bool) -> None:
        space = self.next()
        self._path(value=value)
        number = self._disambiguator()
        name = self._identifier()
        if space.isupper():
            word = {"C": "closure", "S": "shim"}.get(space, space)
            self._put(f"::{{{word}{':' + name if name else ''}#{number}}}")
        elif space.islower():
            self._put(f"::{name}" if name else "")
        else:
            raise MalformedName

    def _arguments(self) -> None:
        first = True
        while not self.take("E"):
            self._put("" if first else ", ")
            first = False
            if self.take("L"):
                self._put(self._lifetime(self.base(_BASE62)))
            elif self.take("K"):
                self._constant()
            else:
                self._type()

    # ------------------------------------------------------------ types

    def _type(self) -> None:
        with self, self.out:
            kind = self.next()
            if kind in _BASIC:
                self._put(_BASIC[kind])
                return
            match kind:
                case "R" | "Q":
                    self._put("&")
                    if self.take("L") and (index := self.base(_BASE62)):
                        self._put(self._lifetime(index) + " ")
                    self._put("mut " if kind == "Q" else "")
                    self._type()
                case "P" | "O":
                    self._put("*mut " if kind == "O" else "*const ")
                    self._type()
                case "A" | "S":
                    self._put("[")
                    self._type()
                    if kind == "A":
                        self._put("; ")
                        self._constant()
                    self._put("]")
                case "T":
                    self._tuple()
                case "F":
                    self._function()
                case "D":
                    self._dynamic()
                case "B":
                    with self._back_reference():
                        self._type()
                case _:
                    self.at -= 1
                    self._path(value=False)

    def _tuple(self) -> None:
        self._put("(")
        number = 0
        while not self.take("E"):
            self._put(", " if number else "")
            self._type()
            number += 1
        self._put(",)" if number == 1 else ")")

    @contextmanager
    def _binder(self) -> Iterator[None]:
        # for<'a, 'b>
        number = self.base(_BASE62) + 1 if self.take("G") else 0
        if number > len(_BASE62):
            raise MalformedName
        if number:
            self._lifetimes += number
            names = ", ".join(self._lifetime(index) for index in range(number, 0, -1))
            self._put(f"for<{names}> ")
        yield
        self._lifetimes -= number

    def _lifetime(self, index: int) -> str:
        # De Bruijn index: 1 is the innermost.
        if not index:
            return "'_"
        depth = self._lifetimes - index
        if depth < 0:
            raise MalformedName
        return f"'{chr(97 + depth)}" if depth < 26 else f"'_{depth}"

    def _function(self) -> None:
        with self._binder():
            self._put("unsafe " if self.take("U") else "")
            if self.take("K"):
                abi = "C" if self.take("C") else self._identifier().replace("_", "-")
                self._put(f'extern "{abi}" ')
            self._put("fn(")
            first = True
            while not self.take("E"):
                self._put("" if first else ", ")
                first = False
                self._type()
            self._put(")")
            if not self.take("u"):
                self._put(" -> ")
                self._type()

    def _dynamic(self) -> None:
        # dyn for<'a> Trait<Arg, Name = Type> + 'b
        self._put("dyn ")
        with self._binder():
            first = True
            while not self.take("E"):
                self._put("" if first else " + ")
                first = False
                self._bound()
        self.expect("L")
        index = self.base(_BASE62)
        if index:
            self._put(f" + {self._lifetime(index)}")

    def _bound(self) -> None:
        opened = self._open_path()
        while self.take("p"):
            self._put(", " if opened else "<")
            opened = True
            self._put(f"{self._identifier()} = ")
            self._type()
        self._put(">" if opened else "")

    def _open_path(self) -> bool:
        # Print a path and leave its "<" open for associated types; return True if there is a "<".
        with self, self.out:
            if self.take("B"):
                with self._back_reference():
                    return self._open_path()
            if self.take("I"):
                self._path(value=False)
                self._put("<")
                self._arguments()
                return True
            self._path(value=False)
            return False

    # ------------------------------------------------------------ constants

    def _constant(self) -> None:
        with self, self.out:
            if self.take("B"):
                with self._back_reference():
                    self._constant()
                return
            kind = self.next()
            if kind == "p":
                self._put("_")
                return
            negative = self.take("n")
            digits = self._hexadecimal() or "0"
            if kind == "b" and digits in ("0", "1"):
                self._put("true" if digits == "1" else "false")
            elif kind == "c":
                self._put(_character(int(digits, 16)))
            elif kind in "aslxnihtmyoj":
                short = len(digits) <= 16
                number = str(int(digits, 16)) if short else f"0x{digits}"
                self._put(("-" if negative else "") + number)
            else:
                raise MalformedName

    def _hexadecimal(self) -> str:
        start = self.at
        while not self.take("_"):
            if self.next() not in "0123456789abcdef":
                raise MalformedName
        return self.text[start : self.at - 1].lstrip("0")


def _character(number: int) -> str:
    if number >= _UNICODE or number in _SURROGATES:
        raise MalformedName
    text = chr(number)
    if text in "'\\":
        return f"'\\{text}'"
    return f"'{text}'" if text.isprintable() else f"'\\u{{{number:x}}}'"


def _punycode(text: str) -> str:
    # RFC 3492, with "_" instead of the hyphen.
    basic, _, rest = text.rpartition("_")
    try:
        return (
            f"{basic}-{rest}".encode().decode("punycode")
            if basic
            else rest.encode().decode("punycode")
        )
    except (UnicodeError, ValueError, OverflowError):
        raise MalformedName from None
