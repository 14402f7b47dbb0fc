"""What a probe can fetch, and what type it has: the words both fronts and the engine share.

A front (USDT notes, uprobes, kernel functions) describes each argument as an
:class:`Argument`: a type and a :data:`Fetch`. The code generator turns a Fetch into
instructions; nothing here knows a CPU, an operand syntax or a command.
"""

from __future__ import annotations

import enum

from bpf.frozen import frozen

__all__ = (
    "Address",
    "Argument",
    "Constant",
    "Fetch",
    "Kind",
    "Memory",
    "Register",
    "Unreadable",
    "ValueType",
)


class Kind(enum.Enum):
    """How the bytes of a value are read."""

    SIGNED = "signed"
    UNSIGNED = "unsigned"
    FLOAT = "float"  # IEEE 754, 4 or 8 bytes
    BYTES = "bytes"  # an aggregate passed by value: shown as raw bytes
    STRING = "string"  # NUL-terminated bytes, the result of str()


@frozen
class ValueType:
    """A value's kind and its size in bytes."""

    kind: Kind
    size: int

    @property
    def signed(self) -> bool:
        """Whether comparison, division and right shift are signed."""
        return self.kind is Kind.SIGNED


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
        base, index: byte offsets in ``struct pt_regs`` of full registers, or None.
        scale: 1, 2, 4 or 8.
        displacement: signed, added to the sum.
        address_size: 4 or 8: a 32-bit process's addresses are cut to 4 bytes, as are its registers.
        size: how many bytes to read.
    """

    base: int | None
    index: int | None
    scale: int
    displacement: int
    address_size: int
    size: int


@frozen
class Address:
    """The number ``base + displacement`` itself: a symbol's run-time address by way of ip.

    Attributes:
        base: byte offset in ``struct pt_regs`` of a full register.
        displacement: signed.
        size: 4 or 8: bytes of the result; what is beyond is cut off.
    """

    base: int
    displacement: int
    size: int


@frozen
class Unreadable:
    """A value that no program can read here; ``reason`` is shown in its place."""

    reason: str


Fetch = Constant | Register | Memory | Address | Unreadable


@frozen
class Argument:
    """One argument of a probe site: ``name`` is ``arg0``… or a name from BTF or DWARF."""

    name: str
    type: ValueType
    fetch: Fetch
