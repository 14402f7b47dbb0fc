"""The common parts of all operand syntaxes: the operand, numbers, sums of numbers and symbols.

One module per CPU (see :mod:`usdt.arch.operands`) parses the text after the size into an
:class:`Operand`, and turns an operand into a location. All functions are pure, and none raises for
any text.
"""

from __future__ import annotations

from typing import Literal

from usdt.arch.locations import ValueClass, ValueType
from usdt.base.frozen import frozen
from usdt.base.machine import BIG_ENDIAN, MACHINES_32BIT, word_size

__all__ = (
    "MAX_AGGREGATE",
    "MAX_UINT64",
    "WORD",
    "ArgSpec",
    "LinearAddress",
    "NumberType",
    "Operand",
    "OperandKind",
    "excerpt",
    "integer",
    "parse_linear",
    "value_type",
    "wrap",
)

NumberType = Literal["signed", "unsigned", "float"]
OperandKind = Literal["constant", "register", "memory", "unknown"]

MAX_UINT64 = (1 << 64) - 1
MIN_INT64 = -(1 << 63)
MAX_AGGREGATE = 4096  # bytes of a value passed by value; a note with a larger one is damaged
MAX_NUMBER_LENGTH = 66  # "0b" and 64 binary digits
SCALARS = (1, 2, 4, 8)  # sizes of integers, and of one load from a register

# Bytes of the machine's word: the size of an argument without an explicit size.
WORD = dict.fromkeys(MACHINES_32BIT, 4)
WIDEST_WORD = 8

# Characters of symbols besides letters and digits of any script (which gcc allows in names), and
# bytes that are not UTF-8.
SYMBOL_PUNCTUATION = dict.fromkeys(map(ord, "_.$"), "a") | dict.fromkeys(range(0xDC80, 0xDD00), "a")

KINDS = {"signed": ValueClass.SIGNED, "unsigned": ValueClass.UNSIGNED}


@frozen
class Operand:
    """One argument of a probe, parsed from its argument spec.

    Attributes:
        text: the argument as written, ``-4@%eax``.
        size: bytes of the value; the machine's word if the text has no size.
        type: how the bytes are interpreted.
        kind: determines which other attributes apply; "unknown" always has an error.
        value: a constant, wrapped to size and type (bits of a float); None for a symbol's address.
        register: name of the register that holds the value, without sigils.
        base: name of the register an address is relative to, or None.
        index: name of the register that is multiplied and added, or None.
        scale: factor of the index.
        displacement: added to the address (or to the symbol of a constant), signed.
        symbol: added to the address, or None.
        relocation: relocation of the symbol (``GOTOFF``, ``tpoff``), or None.
        segment: ``fs`` or ``gs`` if the address is relative to thread-local memory, or None.
        extend: ``uxtw`` or ``sxtw``, the extension of a 32-bit index (arm64), or None.
        low_part: bytes of the value that the register holds, its lowest, if it is a pair of
            registers of which the text names the first; else None.
        error: why the value cannot be read at run time, or None.
    """

    text: str
    size: int
    type: NumberType
    kind: OperandKind
    value: int | None = None
    register: str | None = None
    base: str | None = None
    index: str | None = None
    scale: int = 1
    displacement: int = 0
    symbol: str | None = None
    relocation: str | None = None
    segment: str | None = None
    extend: str | None = None
    low_part: int | None = None
    error: str | None = None

    @property
    def read_size(self) -> int:
        """The bytes that can be read of the value."""
        return self.low_part or self.size

    def to_json(self) -> dict[str, int | str]:
        """Return the operand as ``usdt list --json`` shows it: the attributes of its kind."""
        shown: dict[str, int | str] = {"kind": self.kind, "size": self.size, "type": self.type}
        if self.register is not None:
            shown["register"] = self.register
        if self.low_part is not None:
            shown["bytes"] = self.low_part
        if self.value is not None:
            shown["value"] = self.value
        if self.kind in ("memory", "constant"):
            shown.update(self._address_to_json())
        if self.error is not None:
            shown["error"] = self.error
        return shown

    def _address_to_json(self) -> dict[str, int | str]:
        shown: dict[str, int | str] = {}
        if self.base is not None:
            shown["base"] = self.base
        if self.index is not None:
            shown["index"] = self.index
            shown["scale"] = self.scale
        absolute = self.kind == "memory" and not (self.base or self.index or self.symbol)
        if self.displacement or absolute:
            shown["displacement"] = self.displacement
        for name in ("symbol", "relocation", "segment", "extend"):
            text = getattr(self, name)
            if text is not None:
                shown[name] = text
        return shown


@frozen
class ArgSpec:
    """One argument with its size split off: the input of a CPU's parser; it builds the operands.

    Attributes:
        text: the whole argument, ``-4@%eax``.
        body: the text after the size, ``%eax``.
        size: bytes of the value.
        type: how the bytes are interpreted.
        machine: the CPU, as ElfFile.machine_name gives it.
    """

    text: str
    body: str
    size: int
    type: NumberType
    machine: str

    def unknown(self, reason: str) -> Operand:
        """Return an operand that could not be parsed."""
        return Operand(self.text, self.size, self.type, "unknown", error=reason)

    def constant(self, number: int, error: str | None = None) -> Operand:
        """Return a constant operand, wrapped to the argument's size and sign."""
        if not MIN_INT64 <= number <= MAX_UINT64:
            return self.unknown(f"constant {excerpt(self.body)} does not fit into 64 bits")
        if self.size not in SCALARS:
            error = f"a constant of {self.size} bytes is not supported (1, 2, 4 and 8 are)"
        value = wrap(number, self.size, signed=self.type == "signed")
        return Operand(self.text, self.size, self.type, "constant", value=value, error=error)

    def address(self, total: LinearAddress) -> Operand:
        """Return an operand whose value is a symbol's address plus a number."""
        return Operand(
            self.text,
            self.size,
            self.type,
            "constant",
            displacement=total.displacement,
            symbol=total.symbol,
            relocation=total.relocation,
        )

    def in_register(self, name: str, error: str | None = None) -> Operand:
        """Return a register operand; ``error`` says why it cannot be read."""
        return Operand(self.text, self.size, self.type, "register", register=name, error=error)

    def in_register_of(self, name: str, width: int, sigil: str = "") -> Operand:
        """Return the operand of a register of ``width`` bytes.

        Compilers name the first register of a pair: on little-endian CPUs it has the low half.
        """
        word = word_size(self.machine)
        pair = self.size == 2 * word and width == word and self.type != "float"
        if pair and self.machine not in BIG_ENDIAN:
            return Operand(
                self.text, self.size, self.type, "register", register=name, low_part=word
            )
        error = None
        if self.size > width:
            error = f"{sigil}{name} holds a part of its {self.size} bytes; the rest is not noted"
        elif self.size not in SCALARS:
            sizes = "1, 2, 4 and 8 are"
            error = f"a value of {self.size} bytes in a register is not supported ({sizes})"
        return self.in_register(name, error)

    def in_memory(
        self,
        total: LinearAddress,
        *,
        base: str | None = None,
        index: str | None = None,
        scale: int = 1,
        segment: str | None = None,
        extend: str | None = None,
        error: str | None = None,
    ) -> Operand:
        """Return a memory operand; ``error`` says why it cannot be read."""
        if error is None and self.size > MAX_AGGREGATE:
            error = f"a value of {self.size} bytes is not supported (at most {MAX_AGGREGATE})"
        return Operand(
            self.text,
            self.size,
            self.type,
            "memory",
            base=base,
            index=index,
            scale=scale,
            displacement=total.displacement,
            symbol=total.symbol,
            relocation=total.relocation,
            segment=segment,
            extend=extend,
            error=error,
        )


@frozen
class LinearAddress:
    """A sum of numbers and at most one symbol: ``-8+3+sv@GOTOFF``.

    Attributes:
        displacement: the sum of the numbers.
        symbol: the symbol without its relocation, or None.
        relocation: the text after the symbol's ``@``, or None.
        error: why the text is not such a sum, or None.
    """

    displacement: int = 0
    symbol: str | None = None
    relocation: str | None = None
    error: str | None = None


def parse_linear(text: str) -> LinearAddress:
    """Parse ``term ([+-] term)*``, in which a term is a number or ``symbol[@relocation]``."""
    number = integer(text)
    if number is not None and MIN_INT64 <= number <= MAX_UINT64:  # the usual case
        return LinearAddress(number)
    displacement, symbol, relocation = 0, None, None
    # Make every minus the sign of its term. The term before a leading sign is empty.
    terms = text.replace("+-", "-").replace("-", "+-").split("+")
    for term in terms[1:] if len(terms) > 1 and not terms[0] else terms:
        name, at, suffix = term.partition("@")
        number = integer(name)
        if at and (relocation is not None or not is_symbol(suffix)):
            return LinearAddress(error=f"{excerpt(term)}: unknown relocation")
        relocation = suffix if at else relocation
        if number is not None:
            displacement += number
        elif not is_symbol(name):
            return LinearAddress(error=f"{excerpt(term)} is neither a number nor a symbol")
        elif symbol is not None:
            return LinearAddress(error=f"{excerpt(text)} has two symbols")
        else:
            symbol = name
    if not MIN_INT64 <= displacement <= MAX_UINT64:
        return LinearAddress(error=f"{excerpt(text)} does not fit into 64 bits")
    return LinearAddress(displacement, symbol, relocation)


def integer(text: str) -> int | None:
    """Parse a number in assembler syntax: decimal, 0x…, 0b… or octal (leading 0); else None."""
    digits = text[1:] if text[:1] == "-" else text
    if not digits.isascii() or not digits[:1].isdigit() or len(digits) > MAX_NUMBER_LENGTH:
        return None
    base = 10
    if digits[0] == "0" and len(digits) > 1:
        base = {"x": 16, "X": 16, "b": 2, "B": 2}.get(digits[1], 8)
    if "_" in digits:  # which int() would accept
        return None
    try:
        number = int(digits, base)
    except ValueError:
        return None
    return -number if text[0] == "-" else number


def is_symbol(text: str) -> bool:
    """Return True if a text is a symbol: letters, digits, ``_``, ``.`` and ``$``."""
    return not text[:1].isdigit() and text.translate(SYMBOL_PUNCTUATION).isalnum()


def wrap(number: int, size: int, *, signed: bool) -> int:
    """Truncate a number to ``size`` bytes and interpret it as signed or unsigned."""
    bits = 8 * min(size, 8)
    number &= (1 << bits) - 1
    return number - (1 << bits) if signed and number >> (bits - 1) else number


def value_type(operand: Operand) -> ValueType:
    """Return the type of an operand's value; aggregates and unsupported floats are bytes."""
    if operand.low_part is not None:  # the sign is in the other part
        return ValueType(ValueClass.UNSIGNED, operand.low_part)
    if operand.type == "float":
        kind = ValueClass.FLOAT if operand.size in (4, 8) else ValueClass.BYTES
    else:
        kind = KINDS[operand.type] if operand.size in SCALARS else ValueClass.BYTES
    return ValueType(kind, operand.size)


def excerpt(text: str, most: int = 60) -> str:
    """Quote, escape and shorten a text for a message."""
    return repr(text if len(text) <= most else f"{text[:most]}…")
