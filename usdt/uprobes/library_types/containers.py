"""Strings and sequences of C++ and Rust: address and number of elements, found by type members.

    std::string        libstdc++: _M_dataplus._M_p and _M_string_length; in the ABI before
                       GCC 5, the length is stored three words before the text
                       libc++: the first bit selects the form: three words (capacity, length,
                       text), or a byte (twice the length) followed by the text
    std::string_view   _M_str and _M_len; libc++: __data_ and __size_, without _ in older ones
    std::vector<T>     _M_impl._M_start and _M_finish, libc++: __begin_ and __end_; not
                       vector<bool>, whose elements are bits
    &str, &[T], Box<str>, …   data_ptr and length
    String, Vec<T>     len, and a pointer somewhere in buf (of a String: in its vec)

Types are recognized by members as well as by name, so that a program's own ``String`` is not taken
for Rust's.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from usdt.arch.locations import ValueClass, ValueType
from usdt.base.frozen import frozen
from usdt.btf import types as btf_types
from usdt.engine.compiler.constant_folding import fold
from usdt.engine.compiler.ir import (
    S64,
    U64,
    Arithmetic,
    Convert,
    Deref,
    LValue,
    Node,
    Number,
    PointerExpr,
)

if TYPE_CHECKING:
    from usdt.uprobes.library_types.member_access import MemberAccess

__all__ = ("SequenceView", "sequence_view_of")

_TEXT = re.compile(r"(?:[^<]*::)?basic_string(?:_view)?<char[,> ]")
_RUST_TEXT = re.compile(r"(?:^|&|&mut |\bBox<|\bRc<|\bArc<|\bconst |\bmut )str\b")
_VECTOR = re.compile(r"(?:[^<]*::)?vector<")
_RUST_VECTOR = re.compile(r"(?:^|::)Vec<(.*?)(?:, [\w:]*Global)?>$")
_LIBSTDCXX = ("std::__cxx11::basic_string<", "std::basic_string<")
_OLD_LENGTH = -24  # offset of the length from the text, libstdc++ before GCC 5
_MAX_NESTING = 8


@frozen
class SequenceView:
    """The elements of a string or sequence.

    Attributes:
        address: address of the first element.
        count: number of elements.
        element: type ID of an element.
        text: True if the elements are characters.
    """

    address: Node
    count: Node
    element: int
    text: bool


def sequence_view_of(types: MemberAccess, node: Node) -> SequenceView | None:
    """Return the elements of a value if it is a string or sequence, else None."""
    if not isinstance(node, LValue) or node.type_id is None:
        return None
    found = types.btf.resolve(node.type_id)
    if isinstance(found, btf_types.Forward):
        return _declared_text(types, node, found.name)
    if not isinstance(found, btf_types.Composite):
        return None
    name = found.name
    if _TEXT.match(name):
        return _cxx_text(types, node, name)
    if _VECTOR.match(name):
        return _cxx_vector(types, node)
    return _rust(types, node, name)


def _cxx_text(types: MemberAccess, node: LValue, name: str) -> SequenceView | None:
    text = _first(types, node, "_M_str", "__data_", "__data")
    count = _first(types, node, "_M_len", "__size_", "__size")
    if text is None and types.member_by_name(node, "_M_dataplus") is None and "__1::" in name:
        return _libcxx_text(types, node)
    if text is None:
        outer = types.member_by_name(node, "_M_dataplus")
        count = types.member_by_name(node, "_M_string_length")
        if _is_declared(types, outer):
            return _declared_text(types, node, name)
        text = None if outer is None else types.member_by_name(outer, "_M_p")
    if not isinstance(text, PointerExpr) or text.type_id is None:
        return None
    if count is None:
        before = fold(Arithmetic("+", text.address, Number(_OLD_LENGTH & (1 << 64) - 1, U64), U64))
        count = Deref(before, U64)
    return SequenceView(text.address, count, text.type_id, text=True)


def _first(types: MemberAccess, node: LValue, *names: str) -> Node | None:
    # The first of several members that exists.
    found = (types.member_by_name(node, name) for name in names)
    return next((one for one in found if one is not None), None)


def _libcxx_text(types: MemberAccess, node: LValue) -> SequenceView | None:
    # On little-endian machines, libc++'s ABI is fixed, but the names of members vary.
    element = types.type_named("char")
    if element is None or types.big_endian or not _first(types, node, "__r_", "__rep_"):
        return None
    word = types.btf.pointer_size
    kind = ValueType(ValueClass.UNSIGNED, word)

    def at(offset: int, kind: ValueType) -> Node:
        lvalue = Arithmetic("+", node.address, Number(offset, U64), U64)
        return fold(Convert(Deref(fold(lvalue), kind), U64))

    first = at(0, ValueType(ValueClass.UNSIGNED, 1))
    is_long = Arithmetic("-", Number(0, U64), Arithmetic("&", first, Number(1, U64), U64), U64)
    inside = fold(Arithmetic("+", node.address, Number(1, U64), U64))
    text = _either(is_long, at(2 * word, kind), inside)
    half = Arithmetic(">>", first, Number(1, U64), U64)
    return SequenceView(text, _either(is_long, at(word, kind), half), element, text=True)


def _either(mask: Node, one: Node, other: Node) -> Node:
    # ``one`` if the mask is all ones, ``other`` if it is 0.
    kept = Arithmetic("&", one, mask, U64)
    rest = Arithmetic("&", other, Arithmetic("~", mask, None, U64), U64)
    return Arithmetic("|", kept, rest, U64)


def _is_declared(types: MemberAccess, node: Node | None) -> bool:
    number = node.type_id if isinstance(node, LValue) else None
    return number is not None and isinstance(types.btf.resolve(number), btf_types.Forward)


def _declared_text(types: MemberAccess, node: LValue, name: str) -> SequenceView | None:
    # clang may only declare libstdc++'s std::string, or its member with the pointer. The ABI fixes
    # their layout.
    if not _TEXT.match(name) or not name.startswith(_LIBSTDCXX) or "_view<" in name:
        return None
    element = types.type_named("char")
    if element is None:
        return None
    text = Deref(node.address, U64)
    if name.startswith(_LIBSTDCXX[0]):
        count: Node = Deref(fold(Arithmetic("+", node.address, Number(8, U64), U64)), U64)
    else:
        before = fold(Arithmetic("+", text, Number(_OLD_LENGTH & (1 << 64) - 1, U64), U64))
        count = Deref(before, U64)
    return SequenceView(text, count, element, text=True)


def _cxx_vector(types: MemberAccess, node: LValue) -> SequenceView | None:
    inner = types.member_by_name(node, "_M_impl") or node
    if not isinstance(inner, LValue):
        return None
    begin = _first(types, inner, "_M_start", "__begin_")
    end = _first(types, inner, "_M_finish", "__end_")
    if not isinstance(begin, PointerExpr) or not isinstance(end, PointerExpr):
        return None
    if not begin.type_id:
        return None
    size = types.btf.size_of(begin.type_id)
    if not size:
        return None
    first, behind = (fold(Convert(one.address, S64)) for one in (begin, end))
    apart = fold(Arithmetic("-", behind, first, S64))
    count = fold(Arithmetic("/", apart, Number(size, S64), S64)) if size > 1 else apart
    return SequenceView(begin.address, count, begin.type_id, text=False)


def _rust(types: MemberAccess, node: LValue, name: str) -> SequenceView | None:
    begin, count = types.member_by_name(node, "data_ptr"), types.member_by_name(node, "length")
    if isinstance(begin, PointerExpr) and begin.type_id is not None and count is not None:
        return SequenceView(begin.address, count, begin.type_id, bool(_RUST_TEXT.search(name)))
    text = name == "String" or name.endswith("::String")
    vector = types.member_by_name(node, "vec") if text else node
    if not isinstance(vector, LValue):
        return None
    buffer, count = types.member_by_name(vector, "buf"), types.member_by_name(vector, "len")
    if not isinstance(buffer, LValue) or count is None:
        return None
    begin = _pointer_in(types, buffer, 0, set())
    element = begin.type_id if begin is not None else None
    if not text:
        match = _RUST_VECTOR.search(name)
        element = types.type_named(match[1]) if match else None
    if begin is None or not element:
        return None
    return SequenceView(begin.address, count, element, text)


def _pointer_in(
    types: MemberAccess, lvalue: LValue, depth: int, seen: set[int]
) -> PointerExpr | None:
    # The pointer inside a structure of Rust: RawVec, RawVecInner, Unique, NonNull. ``seen`` has the
    # types that were searched.
    found = None if lvalue.type_id is None else types.btf.resolve(lvalue.type_id)
    if not isinstance(found, btf_types.Composite) or depth > _MAX_NESTING or found.id in seen:
        return None
    seen.add(found.id)
    for member in found.members[:_MAX_NESTING]:
        inner = types.member_by_name(lvalue, member.name)
        if isinstance(inner, LValue):
            inner = _pointer_in(types, inner, depth + 1, seen)
        if isinstance(inner, PointerExpr):
            return inner
    return None
