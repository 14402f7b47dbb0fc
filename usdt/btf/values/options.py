"""What can be chosen about a rendering, and what comes out of one."""

from __future__ import annotations

import enum

from usdt.base.frozen import frozen

__all__ = ("ALL_QUIRKS", "DumpError", "Options", "Quirk", "Rendered")


@frozen
class Options:
    """``struct btf_dump_type_data_opts``.

    Attributes:
        compact: one line, without spaces.
        skip_names: neither member names nor types.
        emit_zeroes: values that are zero, too.
        emit_strings: arrays of characters with a NUL as ``"text"``.
        indent_str: one step of indentation.
        indent_level: steps in front of the outermost value.
        words: booleans as ``true`` and ``false``, flags by their names, code by its symbols: what
            libbpf does not do.
    """

    compact: bool = False
    skip_names: bool = False
    emit_zeroes: bool = False
    emit_strings: bool = False
    indent_str: str = "\t"
    indent_level: int = 0
    words: bool = False


@frozen
class Rendered:
    """A value as text.

    Attributes:
        text: as far as there was data.
        size: bytes of the type, or None with an error.
        error: "", "E2BIG" (the data ended too early) or "EINVAL" (no such value can be shown).
    """

    text: str
    size: int | None
    error: str


class DumpError(Exception):
    """Rendering ends here; ``error`` as in :class:`Rendered`."""

    def __init__(self, error: str) -> None:
        super().__init__(error)
        self.error = error


class Quirk(enum.Enum):
    """Where libbpf's text is wrong; this toolkit's is not, unless told to be libbpf."""

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


#: Those of libbpf in 2026.
ALL_QUIRKS = frozenset(Quirk) - {Quirk.OLD_NUL, Quirk.OLD_BOUND}
