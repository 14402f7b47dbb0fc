"""Resolution of expressions: syntax tree → typed expressions, by C's rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.locations import (
    AtFunctionReturn,
    ContextArea,
    Register,
    Unreadable,
    ValueClass,
    ValueType,
)
from usdt.base.errors import BtfError, LanguageError, TracingError
from usdt.base.frozen import replace
from usdt.base.text import closest
from usdt.engine.compiler.constant_folding import fold
from usdt.engine.compiler.ir import (
    U64,
    ArgumentValue,
    Arithmetic,
    Compare,
    Deref,
    LValue,
    Node,
    Not,
    Number,
    PointerExpr,
    ShortCircuit,
    Unavailable,
)
from usdt.engine.compiler.resolve.addresses import address_of
from usdt.engine.compiler.resolve.conversions import (
    common,
    convert,
    moved,
    no_pointers,
    pointer_arithmetic,
    promote,
)
from usdt.engine.compiler.resolve.names import (
    KINDS,
    constant_of,
    resolve_integer,
    resolve_name,
    resolve_register,
)
from usdt.engine.compiler.resolve.operands import is_string
from usdt.engine.compiler.resolve.strings import StringComparisons
from usdt.engine.compiler.resolve.tasks import TASK_BUILTINS, expression_of, task_scope
from usdt.engine.compiler.value_names import Errno, ErrnoOrAddress
from usdt.engine.language import parse_expression
from usdt.engine.language.c_type_names import NAMED_TYPES
from usdt.engine.language.error_numbers import ERROR_NUMBERS
from usdt.engine.language.tree import (
    Binary,
    Call,
    Cast,
    Index,
    Integer,
    Member,
    Name,
    Text,
    TypeKind,
    Unary,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.engine.compiler.scope import Scope, TypeProvider
    from usdt.engine.language.tree import Expression, TypeName

__all__ = ("Resolver", "resolve")

_ORDER = ("==", "!=", "<", "<=", ">", ">=")


def resolve(tree: Expression, scope: Scope) -> Node:
    """Return the typed expression of ``tree``.

    Raises:
        LanguageError: a name is unknown, or operands do not fit.
    """
    return Resolver(scope).resolve(tree)


class Resolver(StringComparisons):
    """Resolves any expression."""

    def resolve(self, tree: Expression) -> Node:
        """Return the typed expression of ``tree``.

        Raises:
            LanguageError: a name is unknown, or operands do not fit.
        """
        match tree:
            case Integer():
                return resolve_integer(tree)
            case Name(name=name) if name in TASK_BUILTINS and name not in self.scope.arguments:
                return self._of_task(tree)
            case Name():
                return resolve_name(tree, self.scope)
            case Unary():
                return self._unary(tree)
            case Binary():
                return self._binary(tree)
            case Cast():
                return self._cast(tree)
            case Index():
                return self._index(tree)
            case Text():
                raise self.scope.error(
                    tree, 'a string can only be compared, as in str(arg0) == "GET"'
                )
            case Member():
                return self._member(tree)
            case Call(function="reg"):
                return resolve_register(tree, self.scope)
            case Call():
                raise self.scope.error(tree, _MISPLACED[tree.function])

    def _of_task(self, tree: Name) -> Node:
        # The type is known to the kernel's BTF, not to the type information of the probe.
        if tree.at_return:
            return resolve_name(tree, self.scope)
        try:
            inner = parse_expression(expression_of(tree.name)).expression
            node = Resolver(task_scope()).resolve(inner)
        except LanguageError as err:
            raise self.scope.error(tree, f"{tree.name}: {err.reason}") from err
        except TracingError as err:
            raise self.scope.error(tree, f"{tree.name}: {err}") from err
        return replace(node, type_id=None) if isinstance(node, Deref | LValue) else node

    def _unary(self, tree: Unary) -> Node:
        if tree.op == "&":
            return address_of(tree, self.scope, self.resolve)
        if tree.op == "*":
            target = self.resolve(tree.operand)
            if self.scope.types is not None:
                found = self._known(tree, lambda types: types.deref(tree, target))
                if found is not None:
                    return found
            if not isinstance(target, PointerExpr):
                raise self.scope.error(
                    tree, "only a cast pointer can be followed, as in *(int *)arg0"
                )
            return self._at(tree, target)
        operand = self.scalar(tree.operand)
        if tree.op == "!":
            return fold(Not(operand))
        if isinstance(operand, PointerExpr):
            raise self.scope.error(tree, no_pointers(tree.op))
        operand = promote(operand)
        if tree.op == "+":
            return operand
        return fold(Arithmetic(tree.op, operand, None, operand.type))

    def _binary(self, tree: Binary) -> Node:
        if tree.op in _ORDER and (is_string(tree.left) or is_string(tree.right)):
            return self.compare_strings(tree)
        self._check_flags(tree)
        self._check_error(tree)
        left, right = self.resolve(tree.left), self.resolve(tree.right)
        if tree.op in _ORDER:
            arrays = self.compare_arrays(tree, left, right)
            if arrays is not None:
                return arrays
        left, right = self.check_scalar(tree.left, left), self.check_scalar(tree.right, right)
        if tree.op in ("&&", "||"):
            return fold(ShortCircuit(tree.op, left, right))
        if tree.op not in _ORDER and (
            isinstance(left, PointerExpr) or isinstance(right, PointerExpr)
        ):
            return pointer_arithmetic(tree, left, right, self.scope)
        left, right = promote(left), promote(right)
        if tree.op in ("<<", ">>"):
            return fold(Arithmetic(tree.op, left, right, left.type))
        kind = common(left.type, right.type)
        left, right = convert(left, kind), convert(right, kind)
        if tree.op in _ORDER:
            return fold(Compare(tree.op, left, right, kind))
        return fold(Arithmetic(tree.op, left, right, kind))

    def _check_flags(self, tree: Binary) -> None:
        # C takes "flags == O_WRONLY|O_CREAT" for "(flags == O_WRONLY) | O_CREAT".
        compared, flag = tree.left, tree.right
        if (
            tree.op in ("|", "&", "^")
            and isinstance(compared, Binary)
            and compared.op in _ORDER
            and isinstance(flag, Name)
            and flag.name not in self.scope.arguments
            and constant_of(flag.name, self.scope) is not None
        ):
            first = self.scope.text[compared.right.start : compared.right.end]
            reason = (
                f"{compared.op} binds more tightly than {tree.op}, as in C: write parentheses, "
            )
            reason += f"… {compared.op} ({first}{tree.op}{flag.name})"
            raise self.scope.error(tree, reason)

    def _check_error(self, tree: Binary) -> None:
        # The result of a system call that failed is negative.
        for value, number in ((tree.left, tree.right), (tree.right, tree.left)):
            if tree.op in ("==", "!=") and isinstance(value, Name) and isinstance(number, Name):
                argument = self.scope.arguments.get(value.name)
                errors = argument is not None and isinstance(argument.names, Errno | ErrnoOrAddress)
                if errors and number.name in ERROR_NUMBERS:
                    reason = f"the result of a failed call is negative: write -{number.name}"
                    raise self.scope.error(number, reason)

    def _member(self, tree: Member) -> Node:
        if self.scope.types is not None:
            target = self.resolve(tree.object)
            if _is_unavailable(target):
                return target
            node = self._known(tree, lambda types: types.member(tree, target))
            if node is not None:
                return node
        else:
            self.resolve(tree.object)  # an unknown name in it is the first error to report
        sign = "->" if tree.arrow else "."
        reason = (
            f"{sign}{tree.name} needs the type before it, and none is known here: "
            f"give the member's type and offset yourself, as in *(int *)(arg0 + 8)"
        )
        raise LanguageError(self.scope.text, tree.end - len(tree.name), reason)

    def _cast(self, tree: Cast) -> Node:
        kind = tree.type
        if not kind.built_in:
            rebound = _rebind_cast(tree, self._untyped)
            if rebound is not None and self.scope.types is not None:
                return self.resolve(rebound)
            return self._cast_named(tree, lambda: self.resolve(tree.operand))
        return self._cast_plain(kind, self.scalar(tree.operand))

    def _cast_plain(self, kind: TypeName, operand: Node) -> Node:
        # Cast to an integer, or to a pointer to integers or void.
        kernel = isinstance(operand, PointerExpr) and operand.kernel
        if kind.pointers:
            operand = operand.address if isinstance(operand, PointerExpr) else convert(operand, U64)
        if kind.kind is TypeKind.VOID and kind.pointers == 1:
            return operand
        if kind.pointers > 1:
            inner = replace(kind, pointers=kind.pointers - 1)
            return PointerExpr(operand, U64, kernel=kernel, points_to=inner)
        if kind.name in ("bool", "_Bool") and not kind.pointers:
            return fold(Not(fold(Not(operand))))  # C17 6.3.1.2: 1 for everything but 0
        target = ValueType(KINDS[kind.signed], kind.size)
        if kind.pointers == 1:
            return PointerExpr(operand, target, kernel=kernel)
        return convert(operand, target)

    def _cast_named(self, tree: Cast, operand: Callable[[], Node]) -> Node:
        if self.scope.types is not None:
            value = operand()
            node = self._known(tree, lambda types: types.cast(tree, value))
            if node is not None:
                return node
        kind = tree.type
        name = kind.tagged_name
        close = closest(name, NAMED_TYPES, 0.85) if kind.kind is TypeKind.TYPEDEF else ""
        if close:
            raise self.scope.error(
                tree, f"the type {name} is not known here; did you mean {close}?"
            )
        reason = f"{name} is not known here: no types come with this probe; integer types, and "
        raise self.scope.error(
            tree, reason + "pointers to them, as in *(int *)(arg0 + 8), always work"
        )

    def _untyped(self, tree: Expression) -> bool:
        return not isinstance(self.resolve(tree), (LValue, PointerExpr))

    def _index(self, tree: Index) -> Node:
        target = self.resolve(tree.object)
        element = None
        if not isinstance(target, PointerExpr) or target.points_to is None:
            element = self._element(tree, target)
        if element is not None:
            return element
        if not isinstance(target, PointerExpr):
            raise self.scope.error(tree, "only a cast pointer has elements, as in ((int *)arg0)[2]")
        return self._at(tree, moved(target, self.scalar(tree.index), "+"))

    def _at(self, tree: Index | Unary, target: PointerExpr) -> Node:
        # The target of a pointer that has a type from a cast, not from type information.
        if target.points_to is not None:
            inner = fold(Deref(target.address, U64, None, target.kernel))
            if target.points_to.built_in:
                return self._cast_plain(target.points_to, inner)
            followed = tree.operand if isinstance(tree, Unary) else tree.object
            cast = Cast(target.points_to, followed, tree.start, tree.end)
            return self._cast_named(cast, lambda: inner)
        if target.type_id is not None or target.target.kind is ValueClass.BYTES:
            raise self.scope.error(
                tree, "what it points at is of no known size: cast it, as in *(int *)p"
            )
        return fold(Deref(target.address, target.target, None, target.kernel))

    def _element(self, tree: Index, target: Node) -> Node | None:
        # An element of an array in the tracepoint's record (the index is a constant), or of an
        # array whose type the type provider knows.
        index = self.scalar(tree.index)
        if isinstance(tree.object, Name) and tree.object.name in self.scope.arguments:
            argument = self.scope.arguments[tree.object.name]
            fetch, element = argument.fetch, argument.element
            if isinstance(fetch, ContextArea) and element is not None:
                length = fetch.size // element.size if fetch.location == "here" else 0
                if not isinstance(index, Number) or not 0 <= index.value < length:
                    reason = f"{argument.name} takes a constant index, 0 to {length - 1}"
                    if not length:
                        reason = f"{argument.name} has a variable length; show all of it, unindexed"
                    raise self.scope.error(tree.index, reason)
                register = Register(fetch.offset + index.value * element.size, element.size)
                return ArgumentValue(register, element)
        return self._known(tree, lambda types: types.index(tree, target, index))

    def _known(
        self, tree: Cast | Index | Member | Unary, ask: Callable[[TypeProvider], Node | None]
    ) -> Node | None:
        # Ask the type provider; None without one.
        if self.scope.types is None:
            return None
        try:
            return ask(self.scope.types)
        except BtfError as err:
            column = tree.end - len(tree.name) if isinstance(tree, Member) else tree.start
            raise LanguageError(self.scope.text, column, str(err)) from err


_MISPLACED = {
    "str": "str() stands alone as an item, or on a side of == or !=",
    "buf": 'buf() stands alone as an item, or beside a constant, as in buf(arg0, 2) == "PK"',
    "hex": "hex() stands alone as an item: it says how to show a value",
    "ustack": "ustack() stands alone as an item: a stack is no number",
    "kstack": "kstack() stands alone as an item: a stack is no number",
    "pystack": "pystack() stands alone as an item: a stack is no number",
    "usym": "usym() stands alone as an item: it says how to show an address",
    "ksym": "ksym() stands alone as an item: it says how to show an address",
}


def _is_unavailable(node: Node) -> bool:
    # True for a value that cannot be read here. Its members cannot be read either.
    fetch = node.fetch if isinstance(node, ArgumentValue) else None
    unread = isinstance(fetch, AtFunctionReturn) and isinstance(fetch.register, Unreadable)
    return isinstance(node, Unavailable) or unread


def _rebind_cast(tree: Cast, untyped: Callable[[Expression], bool]) -> Expression | None:
    # Rewrite ``(struct request *)arg0->path`` as ``((struct request *)arg0)->path``. In C, the cast
    # applies to the member. But an untyped number has no members, so the cast can only be meant
    # for the number. Return None if C's meaning is possible.
    accesses: list[Member | Index] = []
    inner = tree.operand
    while isinstance(inner, (Member, Index)):
        accesses.append(inner)
        inner = inner.object
    if not tree.type.pointers or not any(isinstance(access, Member) for access in accesses):
        return None
    if not untyped(inner):
        return None
    rebound: Expression = Cast(tree.type, inner, tree.start, inner.end)
    for access in reversed(accesses):
        if isinstance(access, Member):
            rebound = Member(rebound, access.name, access.arrow, tree.start, access.end)
        else:
            rebound = Index(rebound, access.index, tree.start, access.end)
    return rebound
