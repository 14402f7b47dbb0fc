"""libbpf's description of a site's arguments: ``struct __bpf_usdt_spec``, encoded and decoded.

A program that includes ``usdt.bpf.h`` reads the location of each argument from a map. The
structure is 8-byte aligned, in the byte order of the machine:

    struct __bpf_usdt_arg_spec args[12];  u64 usdt_cookie;  s16 arg_cnt;  6 bytes of padding

    an argument up to libbpf 1.6, 16 bytes          an argument since 1.7, 24 bytes
     0  u64  val_off                                 0  u64  val_off
     8  u32  arg_type                                8  u8   arg_type (big-endian: reserved)
    12  s16  reg_off                                10  u16  idx_reg_off : 12, scale_bitshift : 4
    14  u8   arg_signed                             12  u8   reserved (big-endian: arg_type)
    15  u8   arg_bitshift                           14  s16  reg_off
                                                    16  u8   arg_signed
                                                    17  u8   arg_bitshift, and 6 bytes of padding

The newer structure was meant to keep the size of the older one. It does not: bit fields of a u16
must not straddle a u16 boundary, so compilers move ``idx_reg_off`` by two bytes (gcc and clang
agree, for BPF and for every host). The size of the map's values therefore identifies the layout.

The value of an argument is one of these, shifted left and then right by ``arg_bitshift``:

    CONST       ``val_off`` itself
    REG         eight bytes of ``struct pt_regs`` at ``reg_off``
    REG_DEREF   eight bytes of process memory at that register plus ``val_off``
    SIB         the same, with another register times a power of two added to the address

The structure can express more than libbpf's parser accepts: ``SYM(%rip)``, ``%ah`` and floats in
general registers. An argument that it cannot express has the type NONE, for which
``bpf_usdt_arg()`` returns -EINVAL; the arguments after it keep their numbers.
"""

from __future__ import annotations

import enum
import errno
import struct
import sys
from typing import TYPE_CHECKING, Literal

from usdt.arch.locations import Address, Constant, Memory, Register, Unreadable, ValueClass
from usdt.arch.operands.grammar import integer, wrap
from usdt.base.frozen import frozen
from usdt.base.machine import KERNEL_WORD_SIZE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.engine.compiler.arguments import Argument

__all__ = (
    "MAX_ARGUMENTS",
    "ArgType",
    "Problem",
    "Spec",
    "SpecArgument",
    "UsdtSpecLayout",
    "decode_spec",
    "encode_spec",
    "make_spec",
)

MAX_ARGUMENTS = 12  # BPF_USDT_MAX_ARG_CNT
SIZES = (1, 2, 4, 8)
MASK64 = (1 << 64) - 1
INDEX_BITS = 12

ByteOrder = Literal["little", "big"]


class ArgType(enum.IntEnum):
    """``enum __bpf_usdt_arg_type``, and NONE."""

    CONST = 0
    REG = 1
    REG_DEREF = 2
    SIB = 3  # libbpf 1.7
    NONE = 0xFF  # not a type of libbpf: an argument that cannot be expressed


class UsdtSpecLayout(enum.Enum):
    """The layouts of the structure; the value is its size in bytes."""

    CLASSIC = 208
    SIB = 304


@frozen
class SpecArgument:
    """``struct __bpf_usdt_arg_spec``: the location of one argument.

    Attributes:
        type: the kind of location; it decides which other attributes are used.
        val_off: the constant, or the displacement of an address; wrapped to 64 bits.
        reg_off: byte offset of the register in ``struct pt_regs``.
        idx_reg_off: byte offset of the index register in ``struct pt_regs``.
        scale_bitshift: number of bits by which the index is shifted left.
        signed: True if the value is sign-extended.
        bitshift: 64 minus the size of the value in bits.
    """

    type: ArgType
    val_off: int = 0
    reg_off: int = 0
    idx_reg_off: int = 0
    scale_bitshift: int = 0
    signed: bool = False
    bitshift: int = 0


@frozen
class Spec:
    """``struct __bpf_usdt_spec``: all arguments of a site, and the cookie of the attachment."""

    arguments: tuple[SpecArgument, ...]
    cookie: int = 0


@frozen
class Problem:
    """A reason why something cannot be expressed: a message, and the errno that libbpf returns."""

    text: str
    errno: int = errno.EINVAL


def make_spec(
    arguments: Sequence[Argument],
    texts: Sequence[str],
    *,
    cookie: int = 0,
    layout: UsdtSpecLayout = UsdtSpecLayout.CLASSIC,
    byteorder: ByteOrder = sys.byteorder,
    word: int = KERNEL_WORD_SIZE,
) -> tuple[Spec, tuple[Problem, ...]]:
    """Convert the arguments of a site to libbpf's spec.

    Args:
        arguments: the arguments, as :func:`usdt.probes.sites.arguments_of` returns them.
        texts: the text of each argument in the note, for messages and constants.
        cookie: the user's cookie, 64 bits.
        layout: layout of the map's values.
        byteorder: byte order of the machine.
        word: size in bytes of the kernel's registers and addresses.

    Returns:
        The spec, and the problems. An argument that cannot be expressed has the type NONE.
    """
    problems = []
    specs = []
    if len(arguments) > MAX_ARGUMENTS:
        text = f"{len(arguments)} arguments: libbpf's structure holds {MAX_ARGUMENTS}"
        problems.append(Problem(text, errno.E2BIG))
    for argument, text in list(zip(arguments, texts, strict=True))[:MAX_ARGUMENTS]:
        found = _expressed(argument, text, layout, byteorder, word)
        if isinstance(found, Problem):
            problems.append(Problem(f"{argument.name} ({text}): {found.text}", found.errno))
            size = argument.part_of or argument.type.size
            bitshift = 64 - 8 * size if size in SIZES else 0
            found = SpecArgument(ArgType.NONE, signed=argument.type.signed, bitshift=bitshift)
        specs.append(found)
    return Spec(tuple(specs), cookie & MASK64), tuple(problems)


def _expressed(
    argument: Argument, text: str, layout: UsdtSpecLayout, byteorder: ByteOrder, word: int
) -> SpecArgument | Problem:
    kind, size, fetch = argument.type.kind, argument.type.size, argument.fetch
    if isinstance(fetch, Unreadable):
        return Problem(fetch.reason, errno.ENOENT if "%" in fetch.reason else errno.EINVAL)
    if size not in SIZES or kind is ValueClass.BYTES or argument.part_of:
        whole = argument.part_of or size
        return Problem(f"a value of {whole} bytes: bpf_usdt_arg() fetches 1, 2, 4 or 8")
    signed, bitshift = argument.type.signed, 64 - 8 * size
    if isinstance(fetch, Constant):
        number = _as_spelled(fetch.value, text, size, signed=signed)
        return SpecArgument(ArgType.CONST, number & MASK64, signed=signed, bitshift=bitshift)
    if isinstance(fetch, Register):
        # bpf_usdt_arg() reads from the start of a register; on a big-endian CPU, the location here
        # is that of its last bytes.
        start = fetch.offset - (word - fetch.size if byteorder == "big" else 0)
        return SpecArgument(ArgType.REG, reg_off=start, signed=signed, bitshift=bitshift)
    if isinstance(fetch, Address):
        return Problem("the address of a symbol itself, for which libbpf has no type")
    if not isinstance(fetch, Memory):
        return Problem("what only a program of the toolkit's own has")
    if fetch.address_size != word:
        return Problem("its address has 32 bits, to which bpf_usdt_arg() does not cut registers")
    if fetch.index_type is not None:
        return Problem("an index of 32 bits, for which libbpf has no type")
    return _in_memory(fetch, layout, signed=signed, bitshift=bitshift)


def _as_spelled(value: int, text: str, size: int, *, signed: bool) -> int:
    # Constants of this toolkit are wrapped to their type; libbpf stores the number as written. A
    # program reads the same value from both, but the bytes of the maps must be equal as well.
    written = integer(text.rpartition("@")[2].lstrip("$#i"))
    return written if written is not None and wrap(written, size, signed=signed) == value else value


def _in_memory(
    fetch: Memory, layout: UsdtSpecLayout, *, signed: bool, bitshift: int
) -> SpecArgument | Problem:
    base, index, scale = fetch.base, fetch.index, fetch.scale
    if base is None and scale == 1:
        base, index = index, None
    if base is None:
        where = "an index without a base" if index is not None else "an absolute address"
        return Problem(f"{where}, for which libbpf has no type")
    offset = fetch.displacement & MASK64
    if index is None:
        return SpecArgument(
            ArgType.REG_DEREF, offset, reg_off=base, signed=signed, bitshift=bitshift
        )
    if layout is UsdtSpecLayout.CLASSIC:
        text = "a base and an index register, which programs built with libbpf 1.7 can read"
        return Problem(text, errno.ENOENT)
    if index >> INDEX_BITS:
        return Problem(f"its index register lies beyond {1 << INDEX_BITS} bytes of pt_regs")
    return SpecArgument(
        ArgType.SIB, offset, base, index, scale.bit_length() - 1, signed=signed, bitshift=bitshift
    )


def encode_spec(spec: Spec, layout: UsdtSpecLayout, byteorder: ByteOrder = sys.byteorder) -> bytes:
    """Return the bytes of ``struct __bpf_usdt_spec``.

    Raises:
        ValueError: more than :data:`MAX_ARGUMENTS` arguments.
    """
    if len(spec.arguments) > MAX_ARGUMENTS:
        raise ValueError(f"{len(spec.arguments)} arguments: at most {MAX_ARGUMENTS}")
    encode = _encode_classic if layout is UsdtSpecLayout.CLASSIC else _encode_sib
    order = "<" if byteorder == "little" else ">"
    body = b"".join(encode(argument, order) for argument in spec.arguments)
    tail = struct.pack(f"{order}Qh6x", spec.cookie, len(spec.arguments))
    return body.ljust(layout.value - len(tail), b"\0") + tail


def _encode_classic(argument: SpecArgument, order: str) -> bytes:
    return struct.pack(
        f"{order}QIhBB",
        *(argument.val_off, argument.type, argument.reg_off, argument.signed, argument.bitshift),
    )


def _encode_sib(argument: SpecArgument, order: str) -> bytes:
    kind, index, shift = int(argument.type), argument.idx_reg_off, argument.scale_bitshift
    if order == "<":
        first, packed, second = kind, index | shift << INDEX_BITS, 0
    else:
        first, packed, second = 0, index << 4 | shift, kind
    return struct.pack(
        f"{order}QBxHBxhBB6x",
        *(argument.val_off, first, packed, second),
        *(argument.reg_off, argument.signed, argument.bitshift),
    )


def decode_spec(data: bytes, layout: UsdtSpecLayout, byteorder: ByteOrder = sys.byteorder) -> Spec:
    """Decode ``struct __bpf_usdt_spec``; entries beyond its number of arguments are ignored.

    Raises:
        ValueError: wrong size, impossible number of arguments, or unknown type.
    """
    if len(data) != layout.value:
        raise ValueError(f"a spec of {layout.value} bytes expected, {len(data)} given")
    order = "<" if byteorder == "little" else ">"
    cookie, count = struct.unpack_from(f"{order}Qh", data, layout.value - 16)
    if not 0 <= count <= MAX_ARGUMENTS:
        raise ValueError(f"a spec of {count} arguments: 0 to {MAX_ARGUMENTS} expected")
    size = (layout.value - 16) // MAX_ARGUMENTS
    decode = _decode_classic if layout is UsdtSpecLayout.CLASSIC else _decode_sib
    return Spec(tuple(decode(data, index * size, order) for index in range(count)), cookie)


def _decode_classic(data: bytes, offset: int, order: str) -> SpecArgument:
    val_off, kind, reg_off, signed, shift = struct.unpack_from(f"{order}QIhBB", data, offset)
    return SpecArgument(ArgType(kind), val_off, reg_off, signed=bool(signed), bitshift=shift)


def _decode_sib(data: bytes, offset: int, order: str) -> SpecArgument:
    val_off, first, packed, second, reg_off, signed, shift = struct.unpack_from(
        f"{order}QBxHBxhBB", data, offset
    )
    if order == "<":
        kind, index, scale = first, packed & (1 << INDEX_BITS) - 1, packed >> INDEX_BITS
    else:
        kind, index, scale = second, packed >> 4, packed & 15
    return SpecArgument(
        ArgType(kind), val_off, reg_off, index, scale, signed=bool(signed), bitshift=shift
    )
