"""Functions that take objects of the kernel, as the arguments of its functions lead to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.locations import TypedContextWord
from usdt.base.errors import LanguageError
from usdt.bpf._uapi import Helper
from usdt.btf.types import Composite
from usdt.engine.compiler.ir import (
    ArgumentValue,
    Arithmetic,
    Builtin,
    Convert,
    Deref,
    Number,
    PointerExpr,
)
from usdt.engine.compiler.resolve.btf_types import BtfTypes
from usdt.engine.programs.check.functions.arguments import FunctionChecker
from usdt.engine.programs.check.nodes import constant
from usdt.engine.programs.events import EventKind
from usdt.engine.programs.syntax import tree
from usdt.engine.programs.typed import CallWithObject, Emit, JoinSteps, PathText, Read, Scalar
from usdt.engine.programs.types import INT64, UINT64, PointerType, StringType, StructType, spelled

if TYPE_CHECKING:
    from usdt.engine.compiler.ir import Node
    from usdt.engine.programs.typed import Value

__all__ = ("KernelObjectFunctions",)

_WORD = 8
# btf_allowlist_d_path of kernel/trace/bpf_trace.c: where bpf_d_path() may be called
_WITH_PATHS = frozenset(
    (
        *("security_file_permission", "security_inode_getattr", "security_file_open"),
        *("security_path_truncate", "vfs_truncate", "vfs_fallocate", "dentry_open"),
        *("vfs_getattr", "filp_close"),
    )
)


class KernelObjectFunctions(FunctionChecker):
    """A checker of the functions that take objects of the kernel."""

    def _call_socket_cookie(self, node: tree.Call) -> Scalar:
        (first,) = self.arguments(node, 1, 1)
        hint = "elsewhere (struct sock *)… has __sk_common.skc_cookie.counter"
        path = self._path_to(first, "socket_cookie()", "sock_common", "socket", hint)
        return self.step(CallWithObject(Helper.GET_SOCKET_COOKIE, path), UINT64)

    def _call_path(self, node: tree.Call) -> PathText:
        first, *rest = self.arguments(node, 1, 2)
        hint = "elsewhere str() of a dentry's d_name.name is the name of a file"
        path = self._path_to(first, "path()", "path", "struct path", hint)
        if self.site.kind != "iter" and self.site.function not in _WITH_PATHS:
            allowed = ", ".join(sorted(_WITH_PATHS))
            reason = f"the kernel allows it in {allowed}, not in {self.site.function}"
            raise self.error(node, f"path(): {reason}")
        size = self.integer(rest[0], "the size of path()") if rest else self.state.max_string
        if not 0 < size <= self.state.max_string:
            reason = f"path() has 1 to {self.state.max_string} bytes, as max_strlen says"
            raise self.error(rest[0], f"{reason}, not {size}")
        return PathText(path, StringType(size))

    def _call_skboutput(self, node: tree.Call) -> Scalar:
        first, skb, length, offset = self.arguments(node, 4, 4)
        path = self.text(first, "the file of skboutput()").decode("utf-8", "surrogateescape")
        kind = self.number(skb, "skboutput()").type
        known = _begins_with(kind)
        if known and known[0] != "sk_buff":
            reason = f"skboutput() takes a struct sk_buff *, not {spelled(kind)}"
            raise self.error(skb, reason)
        for one in (length, offset):
            self.number(one, "skboutput()")
        from usdt.engine.programs.syntax.library import expand_call  # noqa: PLC0415 - few programs

        try:
            data = self.value(expand_call("packet", skb, length, offset, at=node))
        except LanguageError as err:
            raise self.error(node, f"skboutput(): {err.reason}") from err
        moment = self.clock("")
        event = self.state.event(EventKind.PACKET, (data.type, moment.type), path)
        return self.step(JoinSteps((Emit(event, (data, moment)),), constant(0)), INT64)

    def _path_to(
        self, node: tree.Expression, function: str, wanted: str, what: str, hint: str
    ) -> tuple[int, ...]:
        # Where the object is; see CallWithObject. The kernel checks types from the arguments on,
        # so that there is no way over variables and casts.
        root = {"fentry": "args", "fexit": "args", "iter": "ctx"}.get(self.site.kind)
        if root is None:
            reason = "the kernel knows the types of arguments in fentry, fexit and iter alone"
            raise self.error(node, f"{function}: {reason}; {hint}")
        inner: tree.Expression | tree.Type = node
        while isinstance(inner, tree.Member):
            inner = inner.object
        value = self.value(node)
        address = value.address.node if isinstance(value, Read) else _node(value)
        path = None if address is None else _path(address)
        if not isinstance(inner, tree.Identifier) or inner.name != root or path is None:
            reason = "takes an argument of the function, or what its members lead to: args.NAME"
            reason = reason if root == "args" else "takes what members of ctx lead to: ctx->NAME"
            raise self.error(node, f"{function} {reason}")
        if wanted not in _begins_with(value.type):
            raise self.error(node, f"{function} takes a {what}, not {spelled(value.type)}")
        return tuple(path)


def _node(value: Value) -> Node | None:
    return value.node if isinstance(value, Scalar) else None


def _path(node: Node) -> list[int] | None:
    match node:
        case Convert(operand=inner) | PointerExpr(address=inner):
            return _path(inner)
        case ArgumentValue(fetch=TypedContextWord(offset=offset, size=size)) if size == _WORD:
            return [offset, 0]
        case Builtin(name="ctx"):
            return [0]
        case Arithmetic(op="+", left=inner, right=Number(value=further)):
            found = _path(inner)
            return None if found is None else [*found[:-1], found[-1] + further]
        case Deref(address=inner):
            found = _path(inner)
            return None if found is None else [*found, 0]
    return None


def _begins_with(kind: object) -> list[str]:
    # The names of a structure, and of those that its first bytes are.
    if not isinstance(kind, PointerType | StructType) or not isinstance(kind.types, BtfTypes):
        return []
    names: list[str] = []
    number = kind.type_id
    while number is not None:
        found = kind.types.btf.resolve(number)
        if not isinstance(found, Composite):
            break
        names.append(found.name)
        first = found.members[0] if found.members else None
        number = None if first is None else first.type_id
    return names
