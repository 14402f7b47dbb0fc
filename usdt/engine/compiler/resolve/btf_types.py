"""Resolution of members, elements and casts by BTF, as in ``skb->dev->name``.

The ``type_id`` of an expression is that of its type in the BTF, or of its target if it is a
pointer. The BTF may be the kernel's, a module's, or made from a program's debug information.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from usdt.arch.locations import Register, ValueClass, ValueType
from usdt.base.errors import BtfError
from usdt.base.frozen import replace
from usdt.base.machine import BIG_ENDIAN, KERNEL_MACHINE
from usdt.base.text import closest
from usdt.btf import types as btf_types
from usdt.btf.dump.declare import declaration
from usdt.btf.format import Encoding
from usdt.btf.lookup import find_type
from usdt.btf.types import flag_names, is_char
from usdt.engine.compiler.arguments import Display
from usdt.engine.compiler.constant_folding import fold
from usdt.engine.compiler.ir import (
    S64,
    U64,
    ArgumentValue,
    Arithmetic,
    BtfType,
    ByAddress,
    Convert,
    Deref,
    InRegisters,
    LValue,
    Node,
    NoValue,
    Number,
    PointerExpr,
    RegisterAggregate,
    Unavailable,
    address_in,
)
from usdt.engine.compiler.resolve.in_registers import loaded, readable, unreadable
from usdt.engine.compiler.scope import DefaultFormat
from usdt.engine.compiler.value_names import Enumerators, Flags, ValueNames

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.arch.abi import RegisterPiece
    from usdt.btf.reader import Btf
    from usdt.btf.values.type_snapshot import TypeSnapshot
    from usdt.engine.compiler.arguments import Argument
    from usdt.engine.language.tree import Cast, Index, Member, Unary

__all__ = ("BtfTypes", "enum_names", "value_type")

_HOST_BIG_ENDIAN = KERNEL_MACHINE in BIG_ENDIAN
_DEEPEST = 16  # the maximum nesting of anonymous structures
_BYTE = ValueType(ValueClass.UNSIGNED, 1)


class BtfTypes:
    """A :class:`usdt.engine.compiler.scope.TypeProvider` that uses BTF.

    Args:
        source: returns the BTF; called when a type is first needed.
        big_endian: whether the values are big-endian; by default the byte order of this machine.
        kernel: whether pointers to these types are kernel pointers, not those of a process.
    """

    def __init__(
        self,
        source: Callable[[], Btf],
        *,
        big_endian: bool = _HOST_BIG_ENDIAN,
        kernel: bool = True,
    ) -> None:
        self._names: dict[Node, ValueNames] = {}
        self._shapes: dict[int, TypeSnapshot | None] = {}
        self._kernel = kernel
        self._source = source
        self._made: Btf | None = None
        self._big_endian = big_endian

    @property
    def btf(self) -> Btf:
        """The BTF.

        Raises:
            NotSupported: there is none.
        """
        if self._made is None:
            self._made = self._source()
        return self._made

    def argument(self, argument: Argument, node: ArgumentValue) -> Node:
        """Return ``node``, an argument, with its type; a structure becomes an object."""
        match argument.type_ref:
            case None:
                return node
            case BtfType(id=number):
                return self._typed(node, number)
            case ByAddress(id=number):
                reason = f"values of its type ({argument.type.size} bytes) cannot be read"
                return self._at(address_in(node.fetch), 0, number, 0) or Unavailable(reason)
            case InRegisters() as held:
                return self._load_member(held, 0, held.id, 0)
            case NoValue(reason=reason):
                return Unavailable(reason)
            case other:
                assert_never(other)

    def _typed(self, node: Node, number: int) -> Node:
        # A number with its type: a pointer with that of its target, an enum with names.
        found = self.btf.resolve(number)
        if isinstance(found, btf_types.Pointer):
            return self.pointer(node, found.type_id)
        if isinstance(node, ArgumentValue):
            node = ArgumentValue(node.fetch, node.type, number)
        return self._named(node, found)

    def _named(self, node: Node, found: btf_types.Type) -> Node:
        # Remember the names of the values of an enum.
        names = enum_names(found)
        if names is not None:
            self._names[node] = names
        return node

    def names(self, node: Node) -> ValueNames | None:
        """Return the names of the expression's values, or None if it is not an enum."""
        return self._names.get(node)

    def shown(self, node: Node) -> DefaultFormat | None:
        """Return how an expression is shown if the item does not specify it."""
        match node:
            case LValue(type_id=int(number)):
                form = Display.INTEGER if is_wide(self.btf.resolve(number)) else Display.STRUCT
                return DefaultFormat(form, self._shape(number))
            case PointerExpr(type_id=int(number)):
                return self._shown_pointer(number)
            case ArgumentValue(type_id=int(number)) | Deref(type_id=int(number)):
                return self._shown_number(number)
            case Convert(type_id=int(number)):
                return self._shown_number(number)
        return None

    def _shown_number(self, number: int) -> DefaultFormat:
        form = Display.BOOL if _is_truth(self.btf.resolve(number)) else Display.INTEGER
        return DefaultFormat(form, cast=declaration(self.btf, number, strip=True))

    def _shown_pointer(self, target: int) -> DefaultFormat:
        found = self.btf.resolve(target)
        cast = f"{declaration(self.btf, target, strip=True)} *"
        if is_char(found):
            return DefaultFormat(Display.STRING, cast=cast)
        if isinstance(found, btf_types.FunctionProto):
            return DefaultFormat(Display.KERNEL_SYMBOL if self._kernel else Display.USER_SYMBOL)
        if isinstance(found, btf_types.Composite):
            return DefaultFormat(Display.STRUCT, self._shape(target), cast)
        return DefaultFormat(Display.HEX, cast=cast)

    def _shape(self, number: int) -> TypeSnapshot | None:
        if number not in self._shapes:
            from usdt.btf.values.type_snapshot import snapshot_of  # noqa: PLC0415 - only for structures

            self._shapes[number] = snapshot_of(self.btf, number)
        return self._shapes[number]

    def member(self, tree: Member, target: Node) -> Node | None:
        """Return ``target->name`` or ``target.name``; None if the type of ``target`` is not known.

        Raises:
            BtfError: the type is no structure, has no such member, or its members are not known.
        """
        self._check_structure(tree, target)
        number = _type_id(target)
        if number is None or isinstance(target, PointerExpr) is not tree.arrow:
            return None
        found = self.btf.resolve(number)
        if isinstance(found, btf_types.Forward):
            kind = "union" if found.union else "struct"
            raise BtfError(f"{kind} {found.name} is only named here: its members are not known")
        if not isinstance(found, btf_types.Composite):
            return None
        found_member = self._find(found, tree.name, 0, 0)
        if found_member is None:
            raise BtfError(self._no_member(found, tree.name))
        return self.member_at(target, *found_member)

    def _check_structure(self, tree: Member, target: Node) -> None:
        number = getattr(target, "type_id", None)
        found = None if number is None else self.btf.resolve(number)
        is_pointer = isinstance(target, PointerExpr)
        if isinstance(found, btf_types.Composite):
            if is_pointer is not tree.arrow:
                is_a, sign = ("a pointer", "->") if is_pointer else ("a structure", ".")
                raise BtfError(f"what stands before it is {is_a}: write {sign}{tree.name}")
        elif number and not isinstance(found, btf_types.Forward):
            spelled = declaration(self.btf, number, "*" if is_pointer else "", strip=True)
            raise BtfError(f"{spelled} is no structure: it has no member {tree.name!r}")

    def member_at(self, target: Node, bits: int, member: btf_types.Member) -> Node | None:
        """Return a member that begins ``bits`` bits into the structure at or in ``target``."""
        if isinstance(target, LValue) and target.registers is not None:
            held = target.registers
            return self._load_member(held, held.bits + bits, member.type_id, member.bitfield_size)
        return self._at(_address(target), bits, member.type_id, member.bitfield_size)

    def index(self, tree: Index, target: Node, index: Node) -> Node | None:  # noqa: ARG002
        """Return ``target[index]`` of an array or a pointer; None if its type is not known."""
        number = _type_id(target)
        if number is None:
            return None
        if isinstance(target, LValue):
            found = self.btf.resolve(number)
            if not isinstance(found, btf_types.Array):
                return None
            number = found.type_id
            if target.registers is not None:
                return self._load_element(target.registers, number, index)
        try:
            size = Number(self.btf.size_of(number), S64)
        except BtfError:  # void, a function, a structure that is only declared
            return None
        scaled = fold(Arithmetic("*", _converted(index, S64), size, S64))
        address = fold(Arithmetic("+", _address(target), _converted(scaled, U64), U64))
        return self._at(address, 0, number, 0)

    def deref(self, tree: Unary, target: Node) -> Node | None:  # noqa: ARG002
        """Return ``*target``; None if its type is not known."""
        if not isinstance(target, PointerExpr) or target.type_id is None:
            return None
        return self._at(target.address, 0, target.type_id, 0)

    def cast(self, tree: Cast, operand: Node) -> Node | None:
        """Return ``(struct X *)operand``, or the cast to an enum or a typedef.

        Returns None if the type is neither an integer nor a pointer.

        Raises:
            BtfError: the BTF has no such type.
        """
        kind = tree.type
        number = find_type(self.btf, kind.tagged_name)
        operand = operand.address if isinstance(operand, PointerExpr | LValue) else operand
        value = _converted(operand, U64)
        if kind.pointers == 1:
            return self.pointer(value, number)
        if kind.pointers:
            next_ = replace(kind, pointers=kind.pointers - 1)
            return PointerExpr(value, U64, kernel=self._kernel, points_to=next_)
        inner = self.btf.resolve(number)
        if isinstance(inner, btf_types.Pointer):
            return self.pointer(value, inner.type_id)
        found = value_type(self.btf, number)
        if found is None:
            return None
        node = Convert(_converted(operand, found), found, number)
        return self._named(node, self.btf.resolve(number))

    def variable_hint(self, name: str) -> str:  # noqa: ARG002 - for overrides
        """Return "": only some types come with variables."""
        return ""

    # ------------------------------------------------------------ objects in memory

    def pointer(self, node: Node, target: int) -> PointerExpr:
        """Return ``node``, an address, as a pointer to a type."""
        found = value_type(self.btf, target)
        if found is None:
            try:
                found = ValueType(ValueClass.BYTES, self.btf.size_of(target))
            except BtfError:  # void, a function, a structure that is only declared
                found = _BYTE
        return PointerExpr(node, found, type_id=target, kernel=self._kernel)

    def _at(self, address: Node, bits: int, number: int, width: int) -> Node | None:
        # The object of type ``number`` at ``bits`` bits after ``address``; ``width`` is the number
        # of bits of a bit field, else 0.
        start = (
            fold(Arithmetic("+", address, Number(bits // 8, U64), U64)) if bits // 8 else address
        )
        found = self.btf.resolve(number)
        if width:
            return self._bit_field(address, bits, width, found)
        if isinstance(found, btf_types.Pointer):
            word = ValueType(ValueClass.UNSIGNED, self.btf.pointer_size)
            return self.pointer(
                _converted(Deref(start, word, number, self._kernel), U64), found.type_id
            )
        kind = self._value_type(number)
        if kind is not None:
            return self._named(Deref(start, kind, number, self._kernel), found)
        if isinstance(found, btf_types.Array):
            return self._array(start, found)
        if isinstance(found, btf_types.Composite) or is_wide(found):
            whole = ValueType(ValueClass.BYTES, self.btf.size_of(number))
            lvalue = LValue(start, whole, type_id=number, kernel=self._kernel)
            return self._object(lvalue, found)
        return None

    def _value_type(self, number: int) -> ValueType | None:
        # How a number of a type is read; None for other types.
        return value_type(self.btf, number)

    def _object(self, lvalue: LValue, found: btf_types.Type) -> Node:  # noqa: ARG002 - for overrides
        # What stands for an object of type ``found``: by default the object.
        return lvalue

    def _array(self, start: Node, found: btf_types.Array) -> LValue:
        element = value_type(self.btf, found.type_id)
        size = self.btf.size_of(found.type_id) * found.count
        inner = self.btf.resolve(found.type_id)
        if isinstance(inner, btf_types.Int) and inner.size == 1 and inner.name == "char":
            return LValue(
                start, ValueType(ValueClass.STRING, size), element, found.id, self._kernel
            )
        return LValue(start, ValueType(ValueClass.BYTES, size), element, found.id, self._kernel)

    def _bit_field(self, address: Node, bits: int, width: int, found: btf_types.Type) -> Node:
        first, shift = divmod(bits, 8)
        size = next((size for size in (1, 2, 4, 8) if size * 8 >= shift + width), 0)
        if not size:
            raise BtfError(f"a bit field of {width} bits across nine bytes is not read")
        if self._big_endian:
            shift = size * 8 - shift - width
        start = fold(Arithmetic("+", address, Number(first, U64), U64))
        word = Deref(start, ValueType(ValueClass.UNSIGNED, size), None, self._kernel)
        return self._bits(word, shift, width, found)

    def _bits(self, word: Node, shift: int, width: int, found: btf_types.Type) -> Node:
        # ``width`` bits of a number, from bit ``shift`` on.
        kind = S64 if getattr(found, "signed", False) else U64
        left = Arithmetic("<<", _converted(word, U64), Number(64 - shift - width, U64), U64)
        begun = _converted(fold(left), kind)
        value = fold(Arithmetic(">>", begun, Number(64 - width, U64), kind))
        return self._named(Convert(value, kind, found.id), found)

    def _find(
        self,
        found: btf_types.Composite,
        name: str,
        bits: int,
        depth: int,
        searched: dict[int, int] | None = None,
    ) -> tuple[int, btf_types.Member] | None:
        # Return the bit offset of a member, and the member; search anonymous structures too.
        # ``searched`` has the types that were searched, and how deep they are: damaged types repeat
        # one at every level.
        searched = {} if searched is None else searched
        if searched.get(found.id, depth + 1) <= depth:
            return None
        searched[found.id] = depth
        for member in found.members:
            if member.name == name:
                return bits + member.bit_offset, member
        for member in found.members if depth < _DEEPEST else ():
            if not member.name:
                inner = self.btf.resolve(member.type_id)
                if isinstance(inner, btf_types.Composite):
                    at = bits + member.bit_offset
                    found_member = self._find(inner, name, at, depth + 1, searched)
                    if found_member is not None:
                        return found_member
        return None

    def _no_member(self, found: btf_types.Composite, name: str) -> str:
        names = [member.name for member in found.members if member.name]
        near = closest(name, names)
        hint = f"; did you mean {near}?" if near else ""
        kind = "union" if found.kind.name == "UNION" else "struct"
        return f"{kind} {found.name or '{…}'} has no member {name!r}{hint}"

    # ------------------------------------------------------------ values in registers

    def _load_member(self, held: InRegisters, bits: int, number: int, width: int) -> Node:
        # The value of type ``number``, ``bits`` bits into the registers; ``width`` as in _at().
        found = self.btf.resolve(number)
        if width:
            return self._load_bit_field(held, bits, width, found)
        if isinstance(found, btf_types.Pointer):
            word = ValueType(ValueClass.UNSIGNED, self.btf.pointer_size)
            return self._typed(_converted(self._load_bytes(held, bits // 8, word), U64), number)
        kind = self._value_type(number)
        if kind is not None:
            return self._typed(self._load_bytes(held, bits // 8, kind), number)
        whole = ValueType(ValueClass.BYTES, self.btf.size_of(number))
        start = self._load_all(held, bits // 8, whole.size, number)
        inner = replace(held, id=number, bits=bits)
        lvalue = LValue(start, whole, type_id=number, kernel=self._kernel, registers=inner)
        return self._object(lvalue, found)

    def _load_element(self, held: InRegisters, number: int, index: Node) -> Node | None:
        # An element of an array in registers; None if the index is not a constant.
        if not isinstance(index, Number):
            return None
        bits = held.bits + 8 * self.btf.size_of(number) * index.value
        return self._load_member(held, bits, number, 0)

    def _load_all(self, held: InRegisters, start: int, size: int, number: int) -> Node:
        # All bytes of a structure or array; unreadable if any of them is.
        if self._shape(number) is None:
            reason = "a structure in registers can only be read member by member"
            return unreadable(held, reason, U64)
        parts: list[tuple[int, Node]] = []
        for piece in held.pieces:
            first, end = max(piece.start, start), min(piece.start + piece.size, start + size)
            if first < end and piece.register is None:
                return unreadable(held, piece.problem, U64)
            while first < end and piece.register is not None:
                at = piece.register.offset + first - piece.start
                width = next(n for n in (8, 4, 2, 1) if n <= end - first and at % n == 0)
                kind = ValueType(ValueClass.UNSIGNED, width)
                parts.append((first - start, self._load_bytes(held, first, kind)))
                first += width
        return RegisterAggregate(tuple(parts), U64)

    def _load_bytes(self, held: InRegisters, start: int, kind: ValueType) -> Node:
        for piece in held.pieces:
            if piece.start <= start < piece.start + piece.size:
                if piece.register is None:
                    return unreadable(held, piece.problem, kind)
                if start + kind.size > piece.start + piece.size:
                    return self._load_split(held, piece, start, kind)
                at = Register(piece.register.offset + start - piece.start, kind.size)
                return loaded(held, at, kind)
        return unreadable(held, "it is in no register", kind)

    def _load_split(
        self, held: InRegisters, first: RegisterPiece, start: int, kind: ValueType
    ) -> Node:
        # A number of a packed structure that starts in one register and ends in the next.
        later = next((one for one in held.pieces if one.start == first.start + first.size), None)
        low, high = first.register, None if later is None else later.register
        if low is None or high is None or self._big_endian or low.size != 8:
            return unreadable(held, "it is split between two registers", kind)
        skipped = 8 * (start - first.start)
        begin = Arithmetic(">>", loaded(held, low, U64), Number(skipped, U64), U64)
        rest = loaded(held, Register(high.offset, 8), U64)
        end = Arithmetic("<<", rest, Number(64 - skipped, U64), U64)
        return fold(Convert(Arithmetic("|", begin, end, U64), kind))

    def _load_bit_field(
        self, held: InRegisters, bits: int, width: int, found: btf_types.Type
    ) -> Node:
        first, shift = divmod(bits, 8)
        size = next((size for size in (1, 2, 4, 8) if size * 8 >= shift + width), 0)
        # Do not read past the end of its register.
        while size and first % 8 + size > 8 and first:
            first, shift = first - 1, shift + 8
        if not size or shift + width > 64:
            reason = f"a bit field of {width} bits in two registers is not supported"
            return unreadable(held, reason, U64)
        size = next(size for size in (1, 2, 4, 8) if size * 8 >= shift + width)
        whole = self._load_bytes(held, first, ValueType(ValueClass.UNSIGNED, size))
        if isinstance(whole, Unavailable) or not readable(whole):
            return whole
        if self._big_endian:
            shift = size * 8 - shift - width
        return self._bits(whole, shift, width, found)


def value_type(btf: Btf, number: int) -> ValueType | None:
    """Return how a number of a type is read; None if the type is not an integer or an enum."""
    found = btf.resolve(number)
    if isinstance(found, btf_types.Int) and found.size in (1, 2, 4, 8):
        return ValueType(ValueClass.SIGNED if found.signed else ValueClass.UNSIGNED, found.size)
    if isinstance(found, btf_types.Enum) and found.size in (1, 2, 4, 8):
        return ValueType(ValueClass.SIGNED if found.signed else ValueClass.UNSIGNED, found.size)
    return None


def is_wide(found: btf_types.Type) -> bool:
    """Return whether a type is ``__int128``: a number that no expression computes with."""
    return isinstance(found, btf_types.Int) and found.size > 8


def enum_names(found: btf_types.Type) -> ValueNames | None:
    """Return the names of an enum's values, or None for every other type."""
    if not isinstance(found, btf_types.Enum):
        return None
    every = tuple((one.value, one.name) for one in found.values)
    flags = flag_names(found)
    return Enumerators(every) if flags is None else Flags(every)


def _type_id(target: Node) -> int | None:
    return target.type_id if isinstance(target, PointerExpr | LValue) else None


def _is_truth(found: btf_types.Type) -> bool:
    return isinstance(found, btf_types.Int) and bool(found.encoding & Encoding.BOOL)


def _address(target: Node) -> Node:
    return target.address if isinstance(target, PointerExpr | LValue) else target


def _converted(node: Node, kind: ValueType) -> Node:
    return node if node.type == kind else fold(Convert(node, kind))
