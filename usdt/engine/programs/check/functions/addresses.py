"""Functions of addresses: of memory, of networks, and stacks of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.frozen import replace
from usdt.engine.compiler.resolve.names import resolve_register
from usdt.engine.language import tree as language
from usdt.engine.language.tree import StackKind
from usdt.engine.programs.check.nodes import constant, lvalue_of, wide
from usdt.engine.programs.syntax import tree
from usdt.engine.programs.typed import (
    LowBytes,
    Read,
    ReadText,
    Scalar,
    Text,
    UserSymbol,
)
from usdt.engine.programs.types import (
    ArrayType,
    BufferType,
    IntegerType,
    PointerType,
    StackType,
    bytes_of,
    spelled,
)

if TYPE_CHECKING:
    from usdt.engine.programs.typed import Value
from usdt.engine.programs.check.functions.arguments import FunctionChecker

__all__ = ("AddressFunctions",)

_MAC = 6
_IPV6 = 16


class AddressFunctions(FunctionChecker):
    """A checker of the functions of addresses."""

    def _call_pton(self, node: tree.Call) -> Value:
        import ipaddress  # noqa: PLC0415 - few programs have addresses

        (first,) = self.arguments(node, 1, 1)
        text = self.text(first, "the address of pton()").decode("utf-8", "backslashreplace")
        try:
            data = ipaddress.ip_address(text).packed
        except ValueError:
            raise self.error(first, f"{text!r} is no address of IPv4 or IPv6") from None
        return Text(data, ArrayType(IntegerType(1, signed=False), len(data)))

    def _call_ntop(self, node: tree.Call) -> Value:
        *_, last = self.arguments(node, 1, 2)
        value = self.value(last)
        # All have the size of the largest, so that a variable may hold addresses of both families.
        kind = BufferType(_IPV6, address=True)
        if isinstance(value, Scalar):
            return LowBytes(value, kind)
        found = lvalue_of(value, self.new_variable)
        if found is None or not isinstance(value.type, ArrayType):
            raise self.error(last, f"ntop() takes a number or an array, not {spelled(value.type)}")
        array, _, before = found
        address = Scalar(array.address, PointerType(kernel=array.kernel), before)
        return Read(address, kind, constant(min(bytes_of(value.type), _IPV6)))

    def _call_macaddr(self, node: tree.Call) -> Value:
        (first,) = self.arguments(node, 1, 1)
        value = self.value(first)
        address = value.address if isinstance(value, Read | ReadText) else value
        if not isinstance(address, Scalar):
            raise self.error(first, "macaddr() takes an array of 6 bytes, or its address")
        return Read(address, BufferType(_MAC, hardware=True))

    def _call_kptr(self, node: tree.Call) -> Scalar:
        return self._in_space(node, kernel=True)

    def _call_uptr(self, node: tree.Call) -> Scalar:
        return self._in_space(node, kernel=False)

    def _in_space(self, node: tree.Call, *, kernel: bool) -> Scalar:
        # The same address, of the kernel or of the process.
        (first,) = self.arguments(node, 1, 1)
        number = self.number(first, f"{node.function}()")
        kind = number.type
        if isinstance(kind, PointerType):
            return Scalar(number.node, replace(kind, kernel=kernel), number.before)
        return Scalar(wide(number), PointerType(kernel=kernel), number.before)

    def _call_kaddr(self, node: tree.Call) -> Scalar:
        from usdt.engine.output.kernel_symbols import address_of  # noqa: PLC0415 - few programs

        (first,) = self.arguments(node, 1, 1)
        name = self.text(first, "the symbol of kaddr()")
        address = address_of(name)
        if address is None:
            shown = name.decode("utf-8", "backslashreplace")
            reason = "/proc/kallsyms shows no address of it (see kernel.kptr_restrict)"
            raise self.error(first, f"Failed to resolve kernel symbol: {shown}: {reason}")
        return constant(address)

    def _call_usym(self, node: tree.Call) -> Value:
        (first,) = self.arguments(node, 1, 1)
        self.state.user_symbols = True
        return UserSymbol(self.number(first, "usym()"), StackType(StackKind.USER, 0))

    def _call_kstack(self, node: tree.Call) -> Value:
        return self._stack(node, StackKind.KERNEL)

    def _call_ustack(self, node: tree.Call) -> Value:
        return self._stack(node, StackKind.USER)

    def _stack(self, node: tree.Call, kind: StackKind) -> Value:
        frames = 127
        mode = ""
        for one in self.arguments(node, 0, 2):
            if isinstance(one, tree.Identifier):
                mode = one.name
            else:
                frames = max(1, min(self.integer(one, "the frames of a stack"), 127))
        if mode not in ("", "bpftrace", "perf", "raw", "build_id"):
            raise self.error(node, f"{mode} is no mode of stacks: bpftrace, perf, raw, build_id")
        made = self.stack(kind, frames)
        return made if not mode else type(made)(kind, StackType(kind, frames, mode))

    def _call_reg(self, node: tree.Call) -> Value:
        (first,) = self.arguments(node, 1, 1)
        name = language.Text((self.text(first, "reg()"),), first.start, first.end)
        call = language.Call("reg", (name,), node.start, node.end)
        return self.typed(resolve_register(call, self.site.scope))
