"""``@frozen``: immutable, slotted records that are cheap to declare, and cheap enums of numbers.

``dataclass(frozen=True, slots=True)`` compiles six methods for every class, which takes 0.5 ms each
time a program starts. With hundreds of records that would be most of the toolkit's start time. Here
the methods are shared, and so is the code of ``__init__`` by records with as many fields. Type
checkers treat the result as a dataclass.

``enum.IntEnum`` takes 20 µs for each of its members. The kernel's numbers, of which a start needs a
hundred, are ``Numbers`` instead: the same to users and type checkers, without the options of enums.
What the engine tells apart by names is ``Names`` in the same way, in place of ``enum.Enum``.
"""

from __future__ import annotations

import functools
import operator
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from enum import Enum as Names
    from enum import IntEnum as Numbers
    from types import CodeType

__all__ = ("Names", "Numbers", "field", "fields_of", "frozen", "replace")

T = TypeVar("T")
_MISSING: Any = object()

# What initializes records of 1 to 16 fields: compiled with this module, not at each start, which
# took 2 ms. The functions that set a field return None, as __init__ does: so "or" goes on.
s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = s8 = s9 = s10 = s11 = s12 = s13 = s14 = s15 = _MISSING
# fmt: off
_INITIALIZERS: tuple[Callable[..., None], ...] = (
    lambda r, a: s0(r, a),  # noqa: PLW0108 - its code is taken
    lambda r, a, b: s0(r, a) or s1(r, b),
    lambda r, a, b, c: s0(r, a) or s1(r, b) or s2(r, c),
    lambda r, a, b, c, d: s0(r, a) or s1(r, b) or s2(r, c) or s3(r, d),
    lambda r, a, b, c, d, e: s0(r, a) or s1(r, b) or s2(r, c) or s3(r, d) or s4(r, e),
    lambda r, a, b, c, d, e, f:
        s0(r, a) or s1(r, b) or s2(r, c) or s3(r, d) or s4(r, e) or s5(r, f),
    lambda r, a, b, c, d, e, f, g:
        s0(r, a) or s1(r, b) or s2(r, c) or s3(r, d) or s4(r, e) or s5(r, f) or s6(r, g),
    lambda r, a, b, c, d, e, f, g, h:
        s0(r, a) or s1(r, b) or s2(r, c) or s3(r, d) or s4(r, e) or s5(r, f) or s6(r, g) or
        s7(r, h),
    lambda r, a, b, c, d, e, f, g, h, i:
        s0(r, a) or s1(r, b) or s2(r, c) or s3(r, d) or s4(r, e) or s5(r, f) or s6(r, g) or
        s7(r, h) or s8(r, i),
    lambda r, a, b, c, d, e, f, g, h, i, j:
        s0(r, a) or s1(r, b) or s2(r, c) or s3(r, d) or s4(r, e) or s5(r, f) or s6(r, g) or
        s7(r, h) or s8(r, i) or s9(r, j),
    lambda r, a, b, c, d, e, f, g, h, i, j, k:
        s0(r, a) or s1(r, b) or s2(r, c) or s3(r, d) or s4(r, e) or s5(r, f) or s6(r, g) or
        s7(r, h) or s8(r, i) or s9(r, j) or s10(r, k),
    lambda r, a, b, c, d, e, f, g, h, i, j, k, m:
        s0(r, a) or s1(r, b) or s2(r, c) or s3(r, d) or s4(r, e) or s5(r, f) or s6(r, g) or
        s7(r, h) or s8(r, i) or s9(r, j) or s10(r, k) or s11(r, m),
    lambda r, a, b, c, d, e, f, g, h, i, j, k, m, n:
        s0(r, a) or s1(r, b) or s2(r, c) or s3(r, d) or s4(r, e) or s5(r, f) or s6(r, g) or
        s7(r, h) or s8(r, i) or s9(r, j) or s10(r, k) or s11(r, m) or s12(r, n),
    lambda r, a, b, c, d, e, f, g, h, i, j, k, m, n, o:
        s0(r, a) or s1(r, b) or s2(r, c) or s3(r, d) or s4(r, e) or s5(r, f) or s6(r, g) or
        s7(r, h) or s8(r, i) or s9(r, j) or s10(r, k) or s11(r, m) or s12(r, n) or s13(r, o),
    lambda r, a, b, c, d, e, f, g, h, i, j, k, m, n, o, p:
        s0(r, a) or s1(r, b) or s2(r, c) or s3(r, d) or s4(r, e) or s5(r, f) or s6(r, g) or
        s7(r, h) or s8(r, i) or s9(r, j) or s10(r, k) or s11(r, m) or s12(r, n) or s13(r, o) or
        s14(r, p),
    lambda r, a, b, c, d, e, f, g, h, i, j, k, m, n, o, p, q:
        s0(r, a) or s1(r, b) or s2(r, c) or s3(r, d) or s4(r, e) or s5(r, f) or s6(r, g) or
        s7(r, h) or s8(r, i) or s9(r, j) or s10(r, k) or s11(r, m) or s12(r, n) or s13(r, o) or
        s14(r, p) or s15(r, q),
)
# fmt: on


class _Field:
    def __init__(self, default: Any, *, compare: bool) -> None:
        self.default = default
        self.compare = compare


def field(*, default: Any = _MISSING, compare: bool = True) -> Any:
    """Declare a field with a default, or one that equality and hash ignore."""
    return _Field(default, compare=compare)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """Make a class of annotated fields immutable, slotted, comparable and hashable.

    Pass fields by position or by name; fields with a default may be left out. Two records are
    equal if they have the same class and their compared fields are equal. Records cannot inherit
    fields.
    """
    names = tuple(cls.__annotations__)
    own = dict(cls.__dict__)
    for key in ("__dict__", "__weakref__"):
        own.pop(key, None)
    compared, defaults = _take_fields(own, names)
    setters: dict[str, Any] = {}
    space = {
        "__delattr__": _refuse,
        "__init__": _initializer(cls, names, defaults, setters),
        "__reduce__": _reduce,
        "__repr__": _represent,
        "__setattr__": _refuse,
        **_comparison(compared),
        **own,
        "__slots__": names,
        "__match_args__": names,
    }
    made: type[T] = type(cls.__name__, cls.__bases__, space)
    for at, name in enumerate(names):
        setters[f"s{at}"] = made.__dict__[name].__set__
    return made


def fields_of(record: object) -> dict[str, Any]:
    """Return the fields of a frozen record, by name."""
    return {name: getattr(record, name) for name in vars(type(record))["__match_args__"]}


def replace(record: T, **changes: Any) -> T:
    """Return a copy of a frozen record with some fields changed."""
    return type(record)(**(fields_of(record) | changes))


def _take_fields(own: dict[str, Any], names: tuple[str, ...]) -> tuple[list[str], tuple[Any, ...]]:
    # The compared fields and the defaults.
    compared, defaults = [], []
    for name in names:
        value = own.pop(name, _MISSING)
        if value.__class__ is _Field:
            if value.compare:
                compared.append(name)
            value = value.default
        else:
            compared.append(name)
        if value is not _MISSING:
            defaults.append(value)
    return compared, tuple(defaults)


def _initializer(
    cls: type[Any], names: tuple[str, ...], defaults: tuple[Any, ...], setters: dict[str, Any]
) -> Callable[..., None]:
    code = _template(len(names)).replace(
        co_varnames=("self", *names),
        co_name="__init__",
        co_qualname=f"{cls.__qualname__}.__init__",
    )
    return FunctionType(code, setters, "__init__", defaults)


@functools.cache
def _template(count: int) -> CodeType:
    # The code of __init__ for so many fields. Records differ in the names of their fields, which
    # are names of variables in the code, and in the functions that set them, which are globals.
    # To compile the code for each record would take the time that this module saves.
    if 0 < count <= len(_INITIALIZERS):
        return _INITIALIZERS[count - 1].__code__
    parameters = "".join(f", value_{at}" for at in range(count))
    body = "".join(f"s{at}(r, value_{at}); " for at in range(count)) or "pass"
    space: dict[str, Any] = {}
    exec(f"def __init__(r{parameters}): {body}", space)  # noqa: S102 - only numbers are put in
    code: CodeType = space["__init__"].__code__
    return code


def _comparison(compared: list[str]) -> dict[str, Callable[..., Any]]:
    key: Callable[[Any], Any] = operator.attrgetter(*compared) if compared else lambda _: ()

    def __eq__(self: Any, other: object) -> Any:  # noqa: N807
        if other.__class__ is not self.__class__:
            return NotImplemented
        return key(self) == key(other)

    def __hash__(self: Any) -> int:  # noqa: N807
        return hash((self.__class__, key(self)))

    return {"__eq__": __eq__, "__hash__": __hash__}


def _represent(self: object) -> str:
    values = ", ".join(f"{name}={value!r}" for name, value in fields_of(self).items())
    return f"{type(self).__qualname__}({values})"


def _reduce(self: object) -> tuple[type[Any], tuple[Any, ...]]:
    return type(self), tuple(fields_of(self).values())


def _refuse(self: object, name: str, *_: object) -> None:
    raise AttributeError(f"{type(self).__name__} is immutable: {name}")


_new_int: Callable[[Any, Any], Any] = int.__new__
_new_object: Callable[[Any], Any] = object.__new__


class _MembersType(type):
    # The class of classes of numbers and names: their members by value, in the order of definition.
    _members: dict[Any, Any]

    def __new__(cls, name: str, bases: tuple[type, ...], space: dict[str, Any]) -> _MembersType:
        # Python 3.13 and newer add the number of the first line, as __firstlineno__.
        values = {
            key: value
            for key, value in space.items()
            if value.__class__ in (int, str) and not key.startswith("__")
        }
        rest = {key: value for key, value in space.items() if key not in values}
        made = super().__new__(cls, name, bases, rest)
        made._members = {}
        of_numbers = issubclass(made, int)
        for key, value in values.items():
            member = made._members.get(value)
            if member is None:
                member = _new_int(made, value) if of_numbers else _new_object(made)
                made._members[value] = member
                member.name = key
                if not of_numbers:
                    member.value = value
            setattr(made, key, member)
        return made

    def __call__(cls, value: Any) -> Any:
        found = cls._members.get(value)
        if found is None:
            raise ValueError(f"{value!r} is not a valid {cls.__qualname__}")
        return found

    def __iter__(cls) -> Iterator[Any]:
        return iter(cls._members.values())

    def __len__(cls) -> int:
        return len(cls._members)


if not TYPE_CHECKING:

    class Names(metaclass=_MembersType):
        """Names with values, as ``enum.Enum`` has them; each is equal to itself only."""

        name: str
        value: str | int

        def __repr__(self) -> str:
            return f"<{type(self).__name__}.{self.name}: {self.value!r}>"

        def __str__(self) -> str:
            return f"{type(self).__name__}.{self.name}"

        def __reduce_ex__(self, _protocol: object) -> tuple[type[Names], tuple[str | int]]:
            return type(self), (self.value,)

    class Numbers(int, metaclass=_MembersType):
        """Numbers with names, as ``enum.IntEnum`` has them."""

        name: str

        @property
        def value(self) -> int:
            """The number itself."""
            return int(self)

        def __repr__(self) -> str:
            return f"<{type(self).__name__}.{self.name}: {int(self)}>"

        __str__ = int.__repr__

        def __reduce_ex__(self, _protocol: object) -> tuple[type[Numbers], tuple[int]]:
            return type(self), (int(self),)
