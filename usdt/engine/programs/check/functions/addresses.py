"""Functions of addresses: of memory, of networks, and stacks of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.locations import Address, PerCpuAddress, Unreadable, ValueClass, ValueType
from usdt.base.errors import NotSupported
from usdt.base.frozen import replace
from usdt.bpf._uapi import Helper
from usdt.bpf.maps import possible_cpus
from usdt.engine.compiler.ir import S64, U64, ArgumentValue, Arithmetic, Compare, Deref, Number
from usdt.engine.compiler.resolve.names import resolve_register
from usdt.engine.language import tree as language
from usdt.engine.language.tree import StackKind
from usdt.engine.programs.check.functions.arguments import FunctionChecker
from usdt.engine.programs.check.nodes import constant, lvalue_of, wide
from usdt.engine.programs.syntax import tree
from usdt.engine.programs.typed import (
    CallHelper,
    Choose,
    LowBytes,
    Read,
    ReadText,
    Scalar,
    Text,
    UserSymbol,
    WriteUser,
    saved,
)
from usdt.engine.programs.types import (
    BOOLEAN,
    UINT64,
    ArrayType,
    BufferType,
    IntegerType,
    PointerType,
    StackType,
    bytes_of,
    spelled,
)

if TYPE_CHECKING:
    from usdt.engine.programs.typed import StackOf, Value

__all__ = ("AddressFunctions",)

_ERRORS = (1 << 64) - 4095  # the lowest address that is an error: MAX_ERRNO
_TYPES = (tree.NamedType, tree.PointerType, tree.ArrayType, tree.TypeOf)
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

    def _call_percpu_kaddr(self, node: tree.Call) -> Scalar:
        first, *rest = self.arguments(node, 1, 2)
        symbol = self._kernel_symbol(first, self.text(first, "the symbol of percpu_kaddr()"))
        offsets = self._kernel_symbol(first, b"__per_cpu_offset")
        kind = PointerType(U64, kernel=True, spelling="uint64 *")
        if not rest:
            return Scalar(ArgumentValue(PerCpuAddress(symbol, offsets), U64), kind)
        cpu = self.number(rest[0], "the CPU of percpu_kaddr()")
        kept = self.new_variable()
        word = Arithmetic("<<", saved(kept), Number(3, U64), U64)
        at = Arithmetic("+", word, Number(offsets, U64), U64)
        moved = Arithmetic("+", Deref(at, U64, None, kernel=True), Number(symbol, U64), U64)
        there = Compare("<", saved(kept), Number(possible_cpus(), U64), U64)
        chosen = Choose(Scalar(there, BOOLEAN), Scalar(moved, kind), constant(0))
        return self.step(chosen, kind, ((kept, cpu),))

    def _call_uaddr(self, node: tree.Call) -> Scalar:
        (first,) = self.arguments(node, 1, 1)
        name = self.text(first, "the symbol of uaddr()").decode("utf-8", "surrogateescape")
        site = self.site
        if site.kind not in ("uprobe", "uretprobe", "usdt"):
            raise self.error(node, f"uaddr() is of programs: {site.kind} is no probe of one")
        found = site.scope.arguments.get(name)
        if found is None or not isinstance(first, tree.String):
            raise self.error(
                first, f"uaddr(): {site.scope.probe}: its file has no variable {name!r}"
            )
        if isinstance(found.fetch, Unreadable):
            raise self.error(first, f"uaddr(): {found.fetch.reason}")
        size = found.type.size if found.type.size in (1, 2, 4, 8) else 8
        kind = PointerType(ValueType(ValueClass.UNSIGNED, size), spelling=f"uint{8 * size} *")
        if site.returns and isinstance(found.fetch, Address):
            # As far from the function as at its entry; the instruction pointer is elsewhere.
            entry = self.step(CallHelper(Helper.GET_FUNC_IP, context=True), UINT64)
            far = Number(found.fetch.displacement, S64)
            return Scalar(Arithmetic("+", entry.node, far, U64), kind, entry.before)
        return Scalar(ArgumentValue(found.fetch, U64), kind)

    def _call_is_err(self, node: tree.Call) -> Value:
        (first,) = self.arguments(node, 1, 1)
        where = (node.start, node.end)
        number = tree.Cast(tree.NamedType("", "uint64", *where), first, *where)
        return self.value(tree.Binary(">=", number, tree.Integer(_ERRORS, *where), *where))

    def _call_container_of(self, node: tree.Call) -> Value:
        if len(node.arguments) != 3:
            raise self.error(node, "container_of() takes an address, a type and a member")
        address, kind, member = node.arguments
        path: list[str] = []
        while isinstance(member, tree.Member):
            path.insert(0, member.name)
            member = member.object
        if (
            isinstance(address, _TYPES)
            or not isinstance(kind, _TYPES)
            or not isinstance(member, tree.Identifier)
        ):
            raise self.error(node, "container_of() takes an address, a type and a member")
        where = (node.start, node.end)
        offset = tree.OffsetOf(kind, (member.name, *path), *where)
        number = tree.Cast(tree.NamedType("", "uint64", *where), address, *where)
        start = tree.Binary("-", number, offset, *where)
        return self.value(tree.Cast(tree.PointerType(kind, *where), start, *where))

    def _call_macaddr(self, node: tree.Call) -> Value:
        (first,) = self.arguments(node, 1, 1)
        value = self.value(first)
        kind = BufferType(_MAC, hardware=True)
        if isinstance(value, Read | ReadText):
            return Read(value.address, kind)
        if isinstance(value, Scalar):
            return Read(value, kind)
        found = lvalue_of(value, self.new_variable)
        if found is None or bytes_of(value.type) < _MAC:
            raise self.error(first, "macaddr() takes an array of 6 bytes, or its address")
        array, _, before = found
        return Read(Scalar(array.address, PointerType(kernel=array.kernel), before), kind)

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
        (first,) = self.arguments(node, 1, 1)
        return constant(self._kernel_symbol(first, self.text(first, "the symbol of kaddr()")))

    def _kernel_symbol(self, node: tree.Expression, name: bytes) -> int:
        from usdt.engine.output.kernel_symbols import address_of  # noqa: PLC0415 - few programs

        address = address_of(name)
        if address is None:
            shown = name.decode("utf-8", "backslashreplace")
            reason = "/proc/kallsyms shows no address of it (see kernel.kptr_restrict)"
            raise self.error(node, f"Failed to resolve kernel symbol: {shown}: {reason}")
        return address

    def _call_usym(self, node: tree.Call) -> Value:
        (first,) = self.arguments(node, 1, 1)
        self.state.user_symbols = True
        return UserSymbol(self.number(first, "usym()"), StackType(StackKind.USER, 0))

    def _call_kstack(self, node: tree.Call) -> Value:
        return self._stack(node, StackKind.KERNEL)

    def _call_ustack(self, node: tree.Call) -> Value:
        return self._stack(node, StackKind.USER)

    def _call_dw_ustack(self, node: tree.Call) -> Value:
        from usdt.engine.runtime.unwinding import walks_by_tables  # noqa: PLC0415 - few programs

        walks_by_tables("dwarf", kernel=self.site.kernel)
        made = self._stack(node, StackKind.USER)
        frames = made.type.frames
        self.state.walked.add(frames)
        return replace(made, type=replace(made.type, walked=True))

    def _stack(self, node: tree.Call, kind: StackKind) -> StackOf:
        self.check_stack(node)
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

    def _call_write_user(self, node: tree.Call) -> Scalar:
        from usdt.bpf.features import have_user_writes  # noqa: PLC0415 - few programs write

        to, source, count = self.arguments(node, 3, 3)
        address = self.number(to, "the address of write_user()")
        value, length = self.value(source), self.number(count, "the length of write_user()")
        given = length.node.value if isinstance(length.node, Number) else None
        if isinstance(value, Scalar):
            if not isinstance(value.type, PointerType):
                reason = "write_user() takes bytes or their address: &$x of a variable"
                raise self.error(source, f"{reason}, not {spelled(value.type)}")
            if given is None:
                raise self.error(count, "the length of what is at an address is a constant")
            most = self.state.max_string
            value = Read(value, ArrayType(IntegerType(1, signed=False), max(1, min(given, most))))
        else:
            most = bytes_of(value.type)
        if given is not None and not 0 < given <= most:
            raise self.error(count, f"write_user() writes 1 to {most} bytes here, not {given}")
        if not have_user_writes():
            needs = "it needs CAP_SYS_ADMIN and a kernel that is not locked down"
            raise NotSupported(f"bpf_probe_write_user() for write_user() ({needs})")
        return self.step(WriteUser(address, value, length), BOOLEAN)

    def _call_reg(self, node: tree.Call) -> Value:
        (first,) = self.arguments(node, 1, 1)
        name = language.Text((self.text(first, "reg()"),), first.start, first.end)
        call = language.Call("reg", (name,), node.start, node.end)
        return self.typed(resolve_register(call, self.site.scope))
