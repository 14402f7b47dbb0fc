"""``@frozen``: immutable, slotted records that are cheap to declare.

``dataclass(frozen=True, slots=True)`` compiles six methods for every class, which takes 0.5 ms each
time a program starts. With some sixty records that is a third of the toolkit's start time. Here the
methods are shared closures. Type checkers treat the result as a dataclass.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ("field", "fields_of", "frozen", "replace")

T = TypeVar("T")
_MISSING: Any = object()


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
    fields = {name: _as_field(cls.__dict__.get(name, _MISSING)) for name in names}
    space = {key: value for key, value in cls.__dict__.items() if key not in (*names, "__dict__")}
    space.pop("__weakref__", None)
    space.update(__slots__=names, __match_args__=names)
    made: type[T] = type(cls.__name__, cls.__bases__, space)
    compared = [name for name in names if fields[name].compare]
    methods = {
        "__init__": _initializer(made, names, fields),
        "__reduce__": lambda self: (made, tuple(getattr(self, name) for name in names)),
        "__setattr__": _refuse,
        "__delattr__": _refuse,
        **_comparison(made, compared),
    }
    for key, method in methods.items():
        if key not in space:
            setattr(made, key, method)
    if "__repr__" not in space:
        made.__repr__ = _representation(names)  # type: ignore[method-assign]
    return made


def fields_of(record: object) -> dict[str, Any]:
    """Return the fields of a frozen record, by name."""
    return {name: getattr(record, name) for name in vars(type(record))["__match_args__"]}


def replace(record: T, **changes: Any) -> T:
    """Return a copy of a frozen record with some fields changed."""
    return type(record)(**(fields_of(record) | changes))


def _as_field(value: Any) -> _Field:
    return value if isinstance(value, _Field) else _Field(value, compare=True)


def _initializer(
    made: type[Any], names: tuple[str, ...], fields: dict[str, _Field]
) -> Callable[..., None]:
    setters = [made.__dict__[name].__set__ for name in names]
    defaults = tuple(fields[name].default for name in names)
    least = max((at for at, one in enumerate(defaults, 1) if one is _MISSING), default=0)

    def complete(given: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        if len(given) > len(names):
            raise TypeError(f"{made.__name__}: {len(names)} fields, {len(given)} values")
        values = list(given)
        for name in names[len(given) :]:
            value = named.pop(name, fields[name].default)
            if value is _MISSING:
                raise TypeError(f"{made.__name__}: no value for the field {name!r}")
            values.append(value)
        if named:
            raise TypeError(f"{made.__name__}: fields given twice or unknown: {', '.join(named)}")
        return values

    def __init__(self: Any, *given: Any, **named: Any) -> None:  # noqa: N807 - it becomes one
        if not named and least <= len(given) <= len(names):
            values: Sequence[Any] = given + defaults[len(given) :]
        else:
            values = complete(given, named)
        for put, value in zip(setters, values, strict=True):
            put(self, value)

    return __init__


def _comparison(made: type[Any], compared: list[str]) -> dict[str, Callable[..., Any]]:
    key: Callable[[Any], Any] = operator.attrgetter(*compared) if compared else lambda _: ()

    def __eq__(self: Any, other: object) -> Any:  # noqa: N807
        if other.__class__ is not made:
            return NotImplemented
        return key(self) == key(other)

    def __hash__(self: Any) -> int:  # noqa: N807
        return hash((made, key(self)))

    return {"__eq__": __eq__, "__hash__": __hash__}


def _representation(names: tuple[str, ...]) -> Callable[[Any], str]:
    def __repr__(self: Any) -> str:  # noqa: N807
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({values})"

    return __repr__


def _refuse(self: object, name: str, *_: object) -> None:
    raise AttributeError(f"{type(self).__name__} is immutable: {name}")
