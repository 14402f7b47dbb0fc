"""Smart pointers: the pointer inside those of C++, the value that those of Rust point to.

    std::unique_ptr<T>   libstdc++: the first element of a tuple; libc++: __ptr_
    std::shared_ptr<T>, std::weak_ptr<T>   _M_ptr; libc++: __ptr_
    (libc++ before LLVM 19: in a unique_ptr, __ptr_ is a pair; __value_ of its first element)
    Rc<T>, Arc<T>        ptr.pointer points to the counts and the value
    std::optional<T>     dereferenced like a pointer: _M_payload._M_payload._M_value; libc++: __val_

Types are recognized by members as well as by name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from usdt.btf.types import Composite
from usdt.engine.compiler.ir import LValue, PointerExpr

if TYPE_CHECKING:
    from usdt.engine.compiler.ir import Node
    from usdt.uprobes.library_types.member_access import MemberAccess

__all__ = ("pointer_in", "value_in")

_CXX = re.compile(r"^std::(?:\w+::)*(?:unique|shared|weak)_ptr<")
_RUST = re.compile(r"(?:^|::)(?:Rc|Arc)<")
_PATHS = (("_M_ptr",), ("__ptr_",), ("__ptr_", "__value_"))
_HEAD = "std::_Tuple_impl<0"
_MAX_NESTING = 8


def value_in(types: MemberAccess, node: LValue, name: str) -> Node | None:
    """Return the value inside a std::optional (libstdc++, libc++), set or not; else None."""
    if not name.startswith("std::") or "optional<" not in name.partition("<")[0] + "<":
        return None
    inner = _followed(types, node, ("_M_payload", "_M_payload", "_M_value"))
    return inner or types.member_by_name(node, "__val_")


def pointer_in(types: MemberAccess, node: LValue, name: str) -> Node | None:
    """Return the pointer inside a C++ smart pointer, or the value of a Rust one; else None.

    Args:
        types: access to the program's types.
        node: the object.
        name: name of its type.
    """
    if _CXX.match(name):
        found = (_followed(types, node, path) for path in _PATHS)
        known = next((one for one in found if isinstance(one, PointerExpr)), None)
        return known or _head(types, node, 0, set())
    if not _RUST.search(name):
        return None
    inner = _followed(types, node, ("ptr", "pointer"))
    if not isinstance(inner, PointerExpr) or inner.type_id is None:
        return None
    counted = types.lvalue_at(inner.address, inner.type_id)
    if not isinstance(counted, LValue):
        return None
    return types.member_by_name(counted, "value") or types.member_by_name(counted, "data")


def _head(types: MemberAccess, node: Node | None, depth: int, seen: set[int]) -> PointerExpr | None:
    # The first element of a libstdc++ tuple, which consists of base classes. ``seen`` has the types
    # that were searched.
    if not isinstance(node, LValue) or node.type_id is None or depth > _MAX_NESTING:
        return None
    found = types.btf.resolve(node.type_id)
    if not isinstance(found, Composite) or found.id in seen:
        return None
    seen.add(found.id)
    if found.name.startswith(_HEAD):
        inner = types.member_by_name(node, "__0")
        return inner if isinstance(inner, PointerExpr) else None
    parts = (types.member_at(node, one.bit_offset, one) for one in found.members[:_MAX_NESTING])
    heads = (_head(types, one, depth + 1, seen) for one in parts)
    return next((one for one in heads if one is not None), None)


def _followed(types: MemberAccess, node: Node, path: tuple[str, ...]) -> Node | None:
    # A member of a member, by the names on the path.
    for name in path:
        inner = types.member_by_name(node, name)
        if inner is None:
            return None
        node = inner
    return node
