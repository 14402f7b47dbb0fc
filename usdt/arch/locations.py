"""Where a value is when a probe fires, and how its bytes are read.

A provider of probes (USDT notes, uprobes, kernel functions) describes each argument by a
:class:`ValueType` and a :data:`Location`. The code generator turns a location into instructions.
This module knows no CPU, no operand syntax and no command.
"""

from __future__ import annotations

import enum
from typing import Literal

from usdt.base.frozen import frozen

__all__ = (
    "Address",
    "AtFunctionReturn",
    "Captured",
    "Constant",
    "ContextArea",
    "Location",
    "Memory",
    "Register",
    "TypedContextWord",
    "Unreadable",
    "ValueClass",
    "ValueType",
)


class ValueClass(enum.Enum):
    """How the bytes of a value are read."""

    SIGNED = "signed"
    UNSIGNED = "unsigned"
    FLOAT = "float"  # IEEE 754, 4 or 8 bytes
    BYTES = "bytes"  # an aggregate passed by value: shown as raw bytes
    STRING = "string"  # NUL-terminated bytes, the result of str()


@frozen
class ValueType:
    """A value's kind and its size in bytes."""

    kind: ValueClass
    size: int

    @property
    def signed(self) -> bool:
        """Whether comparison, division and right shift are signed."""
        return self.kind is ValueClass.SIGNED


@frozen
class Constant:
    """A value known when the program is written. ``value`` is the number itself, -2^63…2^64-1."""

    value: int


@frozen
class Register:
    """Bytes of ``struct pt_regs``: where the kernel saved a register.

    Attributes:
        offset: byte offset in the structure of the bytes wanted. On a little-endian CPU that is
            the register's own offset (+1 for %ah), on a big-endian one the end of it minus size.
        size: how many bytes to read there: 1, 2, 4 or 8.
    """

    offset: int
    size: int


@frozen
class Memory:
    """The traced process's memory at ``base + index * scale + displacement``.

    Attributes:
        base, index: byte offsets in ``struct pt_regs`` of registers of ``address_size`` bytes (on a
            big-endian CPU that may be the end of a wider slot), or None.
        scale: a power of two.
        displacement: signed, added to the sum.
        address_size: 4 or 8: a 32-bit process's addresses are cut to 4 bytes, as are its registers.
        size: how many bytes to read.
        index_type: of an index that is narrower than an address; ``index`` is then the offset of
            just its bytes.
        kernel: the kernel's memory, which is always there: ``base`` is where the context has an
            address of it.
    """

    base: int | None
    index: int | None
    scale: int
    displacement: int
    address_size: int
    size: int
    index_type: ValueType | None = None
    kernel: bool = False


@frozen
class ContextArea:
    """Bytes of the event's record that the context is: a string or an array.

    Attributes:
        offset: of them; or of the u32 that says where they are: its upper half how many, its lower
            half where, from the record's begin (``data_loc``) or from behind the u32 (``rel_loc``).
        size: how many, if they are ``here``.
    """

    offset: int
    size: int
    location: Literal["here", "data_loc", "rel_loc"] = "here"


@frozen
class Address:
    """The number ``base + displacement`` itself: a symbol's run-time address by way of ip.

    Attributes:
        base: byte offset in ``struct pt_regs`` of a register of ``address_size`` bytes.
        displacement: signed.
        size: 4 or 8: bytes of the result; what is beyond is cut off.
        address_size: 4 or 8.
    """

    base: int
    displacement: int
    size: int
    address_size: int = 8


@frozen
class Unreadable:
    """A value that no program can read here; ``reason`` is shown in its place."""

    reason: str


@frozen
class TypedContextWord:
    """Bytes of a context whose words the kernel holds for pointers of their types (fentry's).

    They are copied, and so are numbers, with which a program may do as it likes.
    """

    offset: int
    size: int


@frozen
class AtFunctionReturn:
    """A register as a function's return leaves it; everything else is as its entry has it."""

    register: Register | TypedContextWord | Unreadable


@frozen
class Captured:
    """A value captured at a function's entry for its return (``compiler.entry_return``).

    Attributes:
        offset: in the frame: of a number of eight bytes, or of a string with its length prefix.
        size: bytes reserved for a string, without its length prefix; 0: a number.
        bit: in the frame's bitmap of unreadable captures; None: it can always be read.
        reason: why it may not have been readable.
    """

    offset: int
    size: int = 0
    bit: int | None = None
    reason: str = ""


Location = (
    Constant
    | Register
    | TypedContextWord
    | Memory
    | Address
    | ContextArea
    | Unreadable
    | AtFunctionReturn
    | Captured
)
