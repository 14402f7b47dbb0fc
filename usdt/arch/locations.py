"""Where a value is when a probe fires, and how its bytes are read.

A provider of probes (USDT notes, uprobes, kernel functions) describes each argument by a
:class:`ValueType` and a :data:`Location`. The code generator turns a location into instructions.
Nothing here depends on a CPU, an operand syntax or a command.
"""

from __future__ import annotations

from typing import Literal

from usdt.base.frozen import Names, frozen

__all__ = (
    "VOID",
    "Address",
    "AtFunctionReturn",
    "Captured",
    "Constant",
    "ContextArea",
    "CurrentTask",
    "ForReturn",
    "Location",
    "Memory",
    "PerCpuAddress",
    "Register",
    "Saved",
    "SiteNumber",
    "TypedContextWord",
    "Unreadable",
    "ValueClass",
    "ValueType",
)


class ValueClass(Names):
    """How the bytes of a value are interpreted."""

    SIGNED = "signed"
    UNSIGNED = "unsigned"
    FLOAT = "float"  # IEEE 754, 4 or 8 bytes
    BYTES = "bytes"  # an aggregate passed by value; shown as raw bytes
    STRING = "string"  # NUL-terminated bytes, the result of str()


@frozen
class ValueType:
    """A value's kind and its size in bytes."""

    kind: ValueClass
    size: int

    @property
    def signed(self) -> bool:
        """True if comparison, division and right shift are signed."""
        return self.kind is ValueClass.SIGNED


@frozen
class Constant:
    """A value known at compile time: an integer from -2^63 to 2^64-1."""

    value: int


@frozen
class SiteNumber:
    """A number that differs from site to site, where many sites share one program.

    Attributes:
        index: its index among the numbers of a site, which the program finds by the attach cookie.
    """

    index: int


@frozen
class Register:
    """Bytes of ``struct pt_regs``, in which the kernel saved a register.

    Attributes:
        offset: byte offset of the value in the structure. On a little-endian CPU this is the
            register's own offset (+1 for %ah), on a big-endian CPU its end minus ``size``.
        size: number of bytes to read: 1, 2, 4 or 8.
    """

    offset: int
    size: int


@frozen
class Memory:
    """The traced process's memory at ``base + index * scale + displacement``.

    Attributes:
        base, index: byte offsets in ``struct pt_regs`` of registers of ``address_size`` bytes, or
            None. On a big-endian CPU the offset may be that of the last bytes of a wider slot.
        scale: a power of two.
        displacement: signed; added to the sum.
        address_size: 4 or 8. Addresses and registers of a 32-bit process are truncated to 4 bytes.
        size: number of bytes to read.
        index_type: type of an index that is narrower than an address; ``index`` is then the offset
            of exactly its bytes. None for an index of full width.
        kernel: True for kernel memory, whose reads do not fault; ``base`` is the offset in the
            context of a kernel address.
        of_site: added to the sum, too.
    """

    base: int | None
    index: int | None
    scale: int
    displacement: int
    address_size: int
    size: int
    index_type: ValueType | None = None
    kernel: bool = False
    of_site: SiteNumber | None = None


@frozen
class ContextArea:
    """A string, an array or a structure inside the program's context.

    Attributes:
        offset: byte offset in the context of the data if ``location`` is "here". Otherwise of a
            u32 that describes the data: the upper half is its size, the lower half its offset,
            counted from the start of the record ("data_loc") or from the end of the u32
            ("rel_loc").
        size: bytes of the data if ``location`` is "here".
    """

    offset: int
    size: int
    location: Literal["here", "data_loc", "rel_loc"] = "here"


@frozen
class Address:
    """The address ``base + displacement`` itself, for example of a symbol, relative to ip.

    Attributes:
        base: byte offset in ``struct pt_regs`` of a register of ``address_size`` bytes.
        displacement: signed.
        size: 4 or 8: bytes of the result, to which the sum is truncated.
        address_size: 4 or 8.
        of_site: added to the sum, too.
    """

    base: int
    displacement: int
    size: int
    address_size: int = 8
    of_site: SiteNumber | None = None


@frozen
class CurrentTask:
    """The address of the kernel's ``struct task_struct`` of the thread that hit the probe."""


@frozen
class PerCpuAddress:
    """The address of this CPU's copy of a variable of the kernel.

    Attributes:
        address: the variable's address in the kernel's symbol table.
        offsets: address of an array of words: what to add on each CPU.
    """

    address: int
    offsets: int


@frozen
class Unreadable:
    """A value that no program can read here; ``reason`` is shown instead."""

    reason: str


#: The result of a function that returns nothing.
VOID = Unreadable("void: nothing is returned")


@frozen
class TypedContextWord:
    """Bytes of a context whose words the verifier tracks as typed pointers (fentry).

    The bytes are copied to the stack, so that the verifier sees plain numbers.
    """

    offset: int
    size: int


@frozen
class AtFunctionReturn:
    """A register when the function returns; all other locations are those at function entry."""

    register: Register | TypedContextWord | Unreadable


EntryLocation = (
    Constant
    | SiteNumber
    | Register
    | TypedContextWord
    | Memory
    | Address
    | ContextArea
    | CurrentTask
    | PerCpuAddress
    | Unreadable
)


@frozen
class ForReturn:
    """A location at function entry, in an expression that is evaluated at the return: ``out()``."""

    entry: EntryLocation


@frozen
class Captured:
    """A value captured at a function's entry for its return (``compiler.entry_return``).

    Attributes:
        offset: byte offset in the entry state of an 8-byte number or a length-prefixed string.
        size: capacity of a string in bytes, without its length; 0 for a number.
        bit: bit in the entry state's word of unreadable values; None if always readable.
        reason: why the value may be unreadable.
    """

    offset: int
    size: int = 0
    bit: int | None = None
    reason: str = ""


@frozen
class Saved:
    """A number that the program has computed and keeps, such as that of a variable.

    Attributes:
        number: tells it from the others of the program.
    """

    number: int


Location = EntryLocation | AtFunctionReturn | ForReturn | Captured | Saved
