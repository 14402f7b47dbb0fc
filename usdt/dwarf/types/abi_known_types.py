"""Types that compilers leave to a library's own debug information, whose layout its ABI promises.

clang only declares ``std::string`` of libstdc++, or what has the pointer in it, where it makes no
such object: they are made here, so that classes with strings in them can be shown whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.btf.format import Encoding, Kind
from usdt.btf.types import Array, Composite, Int, Member

if TYPE_CHECKING:
    from usdt.dwarf.types.dwarf_btf import DwarfTypes

__all__ = ("declared_type",)

_TEXT = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >"
_HIDER = f"{_TEXT}::_Alloc_hider"
_LOCAL = 16  # bytes of a text that fits the object


def declared_type(types: DwarfTypes, number: int, name: str) -> Composite | None:
    """The type of a name, with a number; None of all that no ABI promises.

    Args:
        types: what it is one of.
        number: its own.
        name: of the type, in full.
    """
    if name not in (_TEXT, _HIDER):
        return None
    word = types.pointer_size
    char = types.add(lambda one: Int(one, "char", 1, int(Encoding.CHAR), 8, 0))
    pointer = Member("_M_p", types.pointer_to(char), 0, 0)
    if name == _HIDER:
        return Composite(number, Kind.STRUCT, name, word, (pointer,), flag=False)
    hider = types.add(lambda one: Composite(one, Kind.STRUCT, _HIDER, word, (pointer,), flag=False))
    length = types.add(lambda one: Int(one, "unsigned long", word, 0, 8 * word, 0))
    local = types.add(lambda one: Array(one, "", char, 0, _LOCAL))
    members = (
        Member("_M_dataplus", hider, 0, 0),
        Member("_M_string_length", length, 8 * word, 0),
        Member("_M_local_buf", local, 16 * word, 0),
    )
    return Composite(number, Kind.STRUCT, name, 2 * word + _LOCAL, members, flag=False)
