"""Demangle C++ names of the Itanium C++ ABI (its section 5.1) as ``c++filt`` does.

A recursive-descent parser creates the nodes of :mod:`.cxx_nodes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.demangle.bounded import MAX_NAME, MalformedName
from usdt.demangle.cxx_names import NameParser
from usdt.demangle.cxx_nodes import CxxEncoding, CxxName, CxxSequence
from usdt.demangle.cxx_types import NameState

if TYPE_CHECKING:
    from usdt.demangle.cxx_nodes import CxxNode

__all__ = ("demangle_cxx",)

_SPECIAL = {
    "TV": "vtable for ",
    "TT": "VTT for ",
    "TI": "typeinfo for ",
    "TS": "typeinfo name for ",
}
_SPECIAL_NAME = {
    "TH": "TLS init function for ",
    "TW": "TLS wrapper function for ",
    "GV": "guard variable for ",
    "GI": "initializer for module ",
}
_KEYED = {"I": "global constructors keyed to ", "D": "global destructors keyed to "}


def demangle_cxx(name: str) -> str:
    """Return the demangled form of a mangled C++ name.

    Raises:
        MalformedName: ``name`` is not a mangled name, or its text would be too long.
    """
    if name.startswith("_GLOBAL_"):
        return _keyed(name)
    if not name.startswith("_Z"):
        raise MalformedName
    parser = _Parser(name)
    parser.at = 2
    found = parser.encoding().text()
    return found + "".join(f" [clone {suffix}]" for suffix in _clones(name[parser.at :]))


def _keyed(name: str) -> str:
    # Functions that run constructors before main: _GLOBAL__I_foo.
    text, kind = name[8:], name[9:10]
    if len(name) > MAX_NAME or text[:1] not in "_.$" or kind not in _KEYED or text[2:3] != "_":
        raise MalformedName
    rest = text[3:]
    return _KEYED[kind] + (demangle_cxx(rest) if rest.startswith("_Z") else rest)


def _clones(rest: str) -> list[str]:
    # Suffixes of parts and copies of functions: .cold, .constprop.0, .isra.1.part.2.
    found: list[str] = []
    while rest:
        if rest[0] != "." or len(found) > 16:
            raise MalformedName
        end = 1
        while end < len(rest) and (rest[end].islower() or rest[end] == "_"):
            end += 1
        if end == 1 and not rest[1:2].isdigit():
            raise MalformedName
        end -= end == 1
        while rest[end : end + 1] == "." and rest[end + 1 : end + 2].isdigit():
            end += 1
            while end < len(rest) and rest[end].isdigit():
                end += 1
        found.append(rest[:end])
        rest = rest[end:]
    return found


class _Parser(NameParser):
    def encoding(self) -> CxxNode:
        """Parse <encoding>: a function, an object, or a special name."""
        with self:
            outer, self.params = self.params, []
            try:
                if self.peek() in ("T", "G"):
                    return self._special()
                return self._named()
            finally:
                self.params = outer

    def _named(self) -> CxxNode:
        state = NameState()
        name = self.name(state)
        if self._at_end():
            return CxxEncoding(name, None, None, (), self.params)
        while self.take("Ua9enable_ifI"):
            while not self.take("E"):
                self.template_arg()
        result = None
        if state.template and not state.special:
            result = self.type()
        parameters: list[CxxNode] = []
        if self.take("v"):
            pass
        else:
            while not self._at_end() and self.peek() != "Q":
                parameters.append(self.type())
        tail: list[str | CxxNode] = [state.qualifiers]
        if self.take("Q"):
            tail += [" requires ", self.expression()]
        return CxxEncoding(name, result, parameters, tail, self.params)

    def _at_end(self) -> bool:
        return self.done or self.peek() in ("E", ".")

    def _special(self) -> CxxNode:
        kind = self.next(2)
        if kind in _SPECIAL:
            return CxxSequence(_SPECIAL[kind], self.type())
        if kind in _SPECIAL_NAME:
            return CxxSequence(_SPECIAL_NAME[kind], self._object())
        match kind:
            case "Th" | "Tv":
                self.at -= 1
                self._offset()
                return CxxSequence(
                    "virtual thunk to " if kind == "Tv" else "non-virtual thunk to ",
                    self.encoding(),
                )
            case "Tc":
                self._offset()
                self._offset()
                return CxxSequence("covariant return thunk to ", self.encoding())
            case "TC":
                derived = self.type()
                self.number()
                self.expect("_")
                return CxxSequence("construction vtable for ", self.type(), "-in-", derived)
            case "TA":
                return CxxSequence("template parameter object for ", self.template_arg())
            case "GR":
                name = self._object()
                number = 0 if self.done else self.base("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ")
                return CxxSequence(f"reference temporary #{number} for ", name)
            case "GA":
                return CxxSequence("hidden alias for ", self.encoding())
            case "GT":
                prefix = "non-" if self.next() == "n" else ""
                return CxxSequence(f"{prefix}transaction clone for ", self.encoding())
        raise MalformedName

    def _object(self) -> CxxNode:
        return CxxEncoding(self.name(NameState()), None, None, (), self.params)

    def _offset(self) -> None:
        # <call-offset>: h <number> _ or v <number> _ <number> _
        kind = self.next()
        if kind not in "hv":
            raise MalformedName
        for _ in range(1 + (kind == "v")):
            self.take("n")
            self.number()
            self.expect("_")

    def local_name(self) -> CxxNode:
        """Parse <local-name>: Z <encoding> E <entity>."""
        self.expect("Z")
        scope = self.encoding()
        self.expect("E")
        if isinstance(scope, CxxEncoding):
            scope = scope.local()
        if self.take("s"):
            self._discriminator()
            return CxxSequence(scope, "::", CxxName("string literal"))
        if self.take("d"):
            number = int(self.digits() or "-1") + 2
            self.expect("_")
            return CxxSequence(scope, f"::{{default arg#{number}}}::", self.name(self.state))
        entity = self.name(self.state)
        self._discriminator()
        return CxxSequence(scope, "::", entity)

    def _discriminator(self) -> None:
        if self.take("__"):
            self.number()
            self.expect("_")
        elif self.peek() == "_" and self.peek(2)[1:].isdigit():
            self.next(2)
