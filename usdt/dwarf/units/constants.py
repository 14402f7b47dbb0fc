"""Constants of DWARF under the names of the standard (DWARF 5, chapter 7)."""

from __future__ import annotations

import enum

__all__ = (
    "CONSTANT_OPS",
    "TAGS_OF_KINDS",
    "TYPE_KINDS",
    "At",
    "Ate",
    "Form",
    "Op",
    "Tag",
    "TypeKind",
    "UnitType",
    "VariableKind",
)


class UnitType(enum.IntEnum):
    """``DW_UT_*``, DWARF 5 table 7.2; units of ``.debug_types`` are TYPE."""

    COMPILE = 1
    TYPE = 2
    PARTIAL = 3
    SKELETON = 4
    SPLIT_COMPILE = 5
    SPLIT_TYPE = 6


class Tag:
    """``DW_TAG_*``."""

    ARRAY = 0x01
    CLASS = 0x02
    ENUMERATION = 0x04
    PARAMETER = 0x05
    LEXICAL_BLOCK = 0x0B
    MEMBER = 0x0D
    POINTER = 0x0F
    REFERENCE = 0x10
    COMPILE_UNIT = 0x11
    STRING = 0x12
    STRUCTURE = 0x13
    SUBROUTINE = 0x15
    TYPEDEF = 0x16
    UNION = 0x17
    UNSPECIFIED_PARAMETERS = 0x18
    VARIANT = 0x19
    INHERITANCE = 0x1C
    INLINED_SUBROUTINE = 0x1D
    PTR_TO_MEMBER = 0x1F
    SUBRANGE = 0x21
    BASE = 0x24
    CATCH_BLOCK = 0x25
    CONST = 0x26
    ENUMERATOR = 0x28
    PACKED = 0x2D
    SUBPROGRAM = 0x2E
    VARIANT_PART = 0x33
    VARIABLE = 0x34
    VOLATILE = 0x35
    TRY_BLOCK = 0x32
    RESTRICT = 0x37
    INTERFACE = 0x38
    NAMESPACE = 0x39
    UNSPECIFIED = 0x3B
    PARTIAL_UNIT = 0x3C
    SHARED = 0x40
    TYPE_UNIT = 0x41
    RVALUE_REFERENCE = 0x42
    TEMPLATE_ALIAS = 0x43
    ATOMIC = 0x47
    IMMUTABLE = 0x4B


class TypeKind(enum.Enum):
    """A kind of types with names; the value is the letter that the index stores."""

    STRUCT = "s"
    UNION = "u"
    ENUM = "e"
    TYPEDEF = "t"
    BASE = "b"


class VariableKind(enum.Enum):
    """What an entry says of a variable; the value is the letter that the index stores."""

    LOCATED = "V"
    UNLOCATED = "W"  # only declared, or a constant
    INSTANCE = "O"  # located; its name is that of another entry, perhaps of another unit


TYPE_KINDS = {
    Tag.STRUCTURE: TypeKind.STRUCT,
    Tag.CLASS: TypeKind.STRUCT,
    Tag.INTERFACE: TypeKind.STRUCT,
    Tag.UNION: TypeKind.UNION,
    Tag.ENUMERATION: TypeKind.ENUM,
    Tag.TYPEDEF: TypeKind.TYPEDEF,
    Tag.TEMPLATE_ALIAS: TypeKind.TYPEDEF,
    Tag.BASE: TypeKind.BASE,
}
TAGS_OF_KINDS = {
    kind: tuple(tag for tag, other in TYPE_KINDS.items() if other == kind) for kind in TypeKind
}


class At:
    """``DW_AT_*``."""

    SIBLING = 0x01
    LOCATION = 0x02
    NAME = 0x03
    BYTE_SIZE = 0x0B
    BIT_OFFSET = 0x0C
    BIT_SIZE = 0x0D
    STMT_LIST = 0x10
    LOW_PC = 0x11
    HIGH_PC = 0x12
    LANGUAGE = 0x13
    DISCR = 0x15
    DISCR_VALUE = 0x16
    COMP_DIR = 0x1B
    CONST_VALUE = 0x1C
    INLINE = 0x20
    LOWER_BOUND = 0x22
    UPPER_BOUND = 0x2F
    ABSTRACT_ORIGIN = 0x31
    ARTIFICIAL = 0x34
    COUNT = 0x37
    DATA_MEMBER_LOCATION = 0x38
    DECL_FILE = 0x3A
    DECL_LINE = 0x3B
    DECLARATION = 0x3C
    DISCR_LIST = 0x3D
    ENCODING = 0x3E
    EXTERNAL = 0x3F
    FRAME_BASE = 0x40
    SPECIFICATION = 0x47
    TYPE = 0x49
    VIRTUALITY = 0x4C
    ENTRY_PC = 0x52
    RANGES = 0x55
    CALL_FILE = 0x58
    CALL_LINE = 0x59
    DATA_BIT_OFFSET = 0x6B
    SIGNATURE = 0x69
    LINKAGE_NAME = 0x6E
    STR_OFFSETS_BASE = 0x72
    ADDR_BASE = 0x73
    RNGLISTS_BASE = 0x74
    DWO_NAME = 0x76
    LOCLISTS_BASE = 0x8C
    MIPS_LINKAGE_NAME = 0x2007
    GNU_DWO_NAME = 0x2130
    GNU_DWO_ID = 0x2131
    GNU_RANGES_BASE = 0x2132
    GNU_ADDR_BASE = 0x2133


class Ate:
    """``DW_ATE_*``."""

    BOOLEAN = 0x02
    COMPLEX_FLOAT = 0x03
    FLOAT = 0x04
    SIGNED = 0x05
    SIGNED_CHAR = 0x06
    UNSIGNED = 0x07
    UTF = 0x10
    ASCII = 0x12


class Op:
    """``DW_OP_*``."""

    ADDR = 0x03
    CONST4U = 0x0C
    CONST8U = 0x0E
    PLUS_UCONST = 0x23
    FBREG = 0x91
    FORM_TLS_ADDRESS = 0x9B
    CALL_FRAME_CFA = 0x9C
    ADDRX = 0xA1
    CONSTX = 0xA2
    GNU_PUSH_TLS_ADDRESS = 0xE0
    GNU_ADDR_INDEX = 0xFB
    GNU_CONST_INDEX = 0xFC


class Form:
    """``DW_FORM_*``."""

    ADDR = 0x01
    BLOCK2 = 0x03
    BLOCK4 = 0x04
    DATA2 = 0x05
    DATA4 = 0x06
    DATA8 = 0x07
    STRING = 0x08
    BLOCK = 0x09
    BLOCK1 = 0x0A
    DATA1 = 0x0B
    FLAG = 0x0C
    SDATA = 0x0D
    STRP = 0x0E
    UDATA = 0x0F
    REF_ADDR = 0x10
    REF1 = 0x11
    REF2 = 0x12
    REF4 = 0x13
    REF8 = 0x14
    REF_UDATA = 0x15
    INDIRECT = 0x16
    SEC_OFFSET = 0x17
    EXPRLOC = 0x18
    FLAG_PRESENT = 0x19
    STRX = 0x1A
    ADDRX = 0x1B
    REF_SUP4 = 0x1C
    STRP_SUP = 0x1D
    DATA16 = 0x1E
    LINE_STRP = 0x1F
    REF_SIG8 = 0x20
    IMPLICIT_CONST = 0x21
    LOCLISTX = 0x22
    RNGLISTX = 0x23
    REF_SUP8 = 0x24
    STRX1 = 0x25
    STRX2 = 0x26
    STRX3 = 0x27
    STRX4 = 0x28
    ADDRX1 = 0x29
    ADDRX2 = 0x2A
    ADDRX3 = 0x2B
    ADDRX4 = 0x2C
    GNU_ADDR_INDEX = 0x1F01
    GNU_STR_INDEX = 0x1F02
    GNU_REF_ALT = 0x1F20
    GNU_STRP_ALT = 0x1F21


#: DW_OP_const1u to DW_OP_const8s → size in bytes, and whether the operand is signed.
CONSTANT_OPS = {
    0x08 + 2 * power + signed: (1 << power, bool(signed)) for power in range(4) for signed in (0, 1)
}
