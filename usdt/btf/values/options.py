"""Options of a rendering, and its result."""

from __future__ import annotations

import enum

from usdt.base.frozen import frozen

__all__ = ("ALL_QUIRKS", "DumpError", "Options", "Quirk", "Rendered")


@frozen
class Options:
    """How a value is rendered: ``struct btf_dump_type_data_opts``, and ``symbolic``.

    Attributes:
        compact: render on one line, without indentation.
        skip_names: leave out member names and types.
        emit_zeroes: show members that are zero, too.
        emit_strings: show arrays of characters that contain a NUL as ``"text"``.
        indent_str: one step of indentation.
        indent_level: steps of indentation in front of the outermost value.
        symbolic: show booleans as ``true`` and ``false``, flags by name and code by its symbol;
            libbpf shows all three as numbers.
    """

    compact: bool = False
    skip_names: bool = False
    emit_zeroes: bool = False
    emit_strings: bool = False
    indent_str: str = "\t"
    indent_level: int = 0
    symbolic: bool = False


@frozen
class Rendered:
    """The result of a rendering.

    Attributes:
        text: the value as text, up to the error if there is one.
        size: bytes of the type; None if there is an error.
        error: "", "E2BIG" (the data ends too early) or "EINVAL" (values of a type in it cannot be
            shown).
    """

    text: str
    size: int | None
    error: str


class DumpError(Exception):
    """Ends a rendering; ``error`` is that of :class:`Rendered`."""

    def __init__(self, error: str) -> None:
        super().__init__(error)
        self.error = error


class Quirk(enum.Enum):
    """Errors in libbpf's text, which this toolkit makes only if asked for libbpf's text."""

    FIRST_MEMBER = "a structure inside another is hidden if its first member is 0"
    CHARS_FOREVER = "after one array of bytes, all arrays and bytes are treated as characters"
    NUL_DROPPED = "a NUL in an array of characters does not end it"
    ENUM_DELIMITER = "a signed enumeration's unknown value has no comma and no line end"
    STRING_DELIMITER = "a string is indented twice and has no comma and no line end"
    BITS = "bit fields and misaligned enumerations are read by the whole word of their type"
    PAST_THE_END = "zeroes are looked for behind the end of the data, and arrays go on there"
    NO_SIZE = "arrays of empty structures are an error"
    LOW_HALF = "an unknown value of an 8-byte enumeration of kind ENUM is cut to 32 bits"
    SUFFIX = "of several types of one name the second is called NAME___2"
    OLD_NUL = "libbpf 1.1: the NUL that ends an array of characters ends all arrays, unseen"
    OLD_BOUND = "libbpf 1.1: bit fields need the whole word of their type to be there"


#: The quirks of libbpf in 2026.
ALL_QUIRKS = frozenset(Quirk) - {Quirk.OLD_NUL, Quirk.OLD_BOUND}
