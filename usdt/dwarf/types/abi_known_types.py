"""Types that compilers only declare, although an ABI fixes their layout.

clang only declares ``std::string`` of libstdc++, or its member with the pointer, in units that
construct no string. This module defines them, so that classes with strings can be shown completely.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.btf.format import Encoding, Kind
from usdt.btf.types import Array, Composite, Int, Member

if TYPE_CHECKING:
    from usdt.dwarf.types.dwarf_btf import DwarfTypes

__all__ = ("abi_known_type",)

_TEXT = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >"
_HIDER = f"{_TEXT}::_Alloc_hider"
_LOCAL = 16  # bytes of the string buffer in the object


def abi_known_type(types: DwarfTypes, type_id: int, name: str) -> Composite | None:
    """Return a type by its qualified name; None if no ABI fixes its layout.

    Args:
        types: the types of the program, to which the types of members are added.
        type_id: ID of the new type.
        name: qualified name of the type.
    """
    if name not in (_TEXT, _HIDER):
        return None
    word = types.pointer_size
    char = types.add(lambda one: Int(one, "char", 1, int(Encoding.CHAR), 8, 0))
    pointer = Member("_M_p", types.pointer_to(char), 0, 0)
    if name == _HIDER:
        return Composite(type_id, Kind.STRUCT, name, word, (pointer,), flag=False)
    hider = types.add(lambda one: Composite(one, Kind.STRUCT, _HIDER, word, (pointer,), flag=False))
    length = types.add(lambda one: Int(one, "unsigned long", word, 0, 8 * word, 0))
    local = types.add(lambda one: Array(one, "", char, 0, _LOCAL))
    members = (
        Member("_M_dataplus", hider, 0, 0),
        Member("_M_string_length", length, 8 * word, 0),
        Member("_M_local_buf", local, 16 * word, 0),
    )
    return Composite(type_id, Kind.STRUCT, name, 2 * word + _LOCAL, members, flag=False)
