"""A probe of a Provider: its argument types, its semaphore, and fire()."""

from __future__ import annotations

import operator
import struct
from typing import TYPE_CHECKING, Any

from usdt.base.text import plural
from usdt.provider.image import ArgumentType
from usdt.provider.loading import NOTHING, ProviderError

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.provider.loading import Library

__all__ = ("TYPES", "FiredProbe", "argument_type")

_DOUBLE, _FLOAT = struct.Struct("=d"), struct.Struct("=f")
_U64, _U32 = struct.Struct("=Q"), struct.Struct("=I")

#: Argument types of probe(): Python types, and names with a size.
TYPES: dict[str | type, ArgumentType] = {
    **{f"u{8 * n}": ArgumentType(f"u{8 * n}", n, "unsigned") for n in (1, 2, 4, 8)},
    **{f"s{8 * n}": ArgumentType(f"s{8 * n}", n, "signed") for n in (1, 2, 4, 8)},
    "f32": ArgumentType("f32", 4, "float"),
    "f64": ArgumentType("f64", 8, "float"),
    bool: ArgumentType("u8", 1, "unsigned"),
    int: ArgumentType("s64", 8, "signed"),
    float: ArgumentType("f64", 8, "float"),
    str: ArgumentType("str", 8, "text"),
    bytes: ArgumentType("bytes", 8, "text"),
}


def argument_type(wanted: str | type) -> ArgumentType:
    """Return the type of an argument.

    Raises:
        ProviderError: there is no such type.
    """
    try:
        return TYPES[wanted]
    except (KeyError, TypeError):
        known = ", ".join(kind if isinstance(kind, str) else kind.__name__ for kind in TYPES)
        raise ProviderError(f"an argument has no type {wanted!r}; there are {known}") from None


class FiredProbe:
    """A probe that this program fires; made by :meth:`usdt.Provider.probe`.

    Attributes:
        provider: the text before the colon in ``provider:name``.
        name: the text after the colon.
        arguments: the type of each argument.

    Raises:
        TypeError: from fire(): wrong number of values, or a value of a wrong type.

    Examples:
        >>> order = shop.probe("order", int, str)
        >>> if order.enabled:
        ...     order.fire(42, "cart")
    """

    __slots__ = ("_convert", "_count", "_semaphore", "_stub", "arguments", "name", "provider")

    def __init__(self, provider: str, name: str, arguments: tuple[ArgumentType, ...]) -> None:
        self.provider = provider
        self.name = name
        self.arguments = arguments
        self._count = len(arguments)
        self._convert = tuple(_CONVERTERS.get(kind.name, operator.index) for kind in arguments)
        self._semaphore = NOTHING
        self._stub: Callable[..., object] | None = None

    if TYPE_CHECKING:

        @property
        def enabled(self) -> int:
            """The semaphore: 0 while nobody traces the probe, or it is not loaded."""
    else:  # implemented in C for half the time, because untraced programs read it too
        enabled = property(
            operator.attrgetter("_semaphore.value"),
            doc="The semaphore: 0 while nobody traces the probe, or it is not loaded.",
        )

    def fire(self, *values: Any) -> None:
        """Fire the probe; do nothing while nobody traces it.

        Integers are truncated to their size, as in C. A ``str`` argument accepts any object and
        passes its ``str()`` in UTF-8; ``bytes`` accepts bytes. Both are NUL-terminated, and None is
        a NULL pointer. Tracers can read strings until the call returns.

        Raises:
            TypeError: wrong number of values; or, while traced, a value that is not a number for an
                argument that needs one.
        """
        if len(values) != self._count:
            wanted = plural(self._count, "value")
            raise TypeError(f"{self.provider}:{self.name} takes {wanted}, not {len(values)}")
        if self._semaphore.value:
            stub = self._stub
            if stub is not None:  # unload() in another thread
                stub(
                    *[convert(value) for convert, value in zip(self._convert, values, strict=True)]
                )

    def connect(self, library: Library, index: int) -> None:
        """Connect the probe with function and semaphore number ``index`` of a loaded object."""
        self._stub = library.function(index, tuple(k.kind == "text" for k in self.arguments))
        self._semaphore = library.semaphore(index)

    def disconnect(self) -> None:
        """Return the probe to the state before loading: not enabled, and fire() does nothing."""
        self._semaphore = NOTHING
        self._stub = None

    def __repr__(self) -> str:
        types = ", ".join(kind.name for kind in self.arguments)
        return f"<probe {self.provider}:{self.name}({types})>"


def _double(value: float) -> int:
    bits: int = _U64.unpack(_DOUBLE.pack(value))[0]
    return bits


def _single(value: float) -> int:
    try:
        packed = _FLOAT.pack(value)
    except OverflowError:  # as C converts a double that is too large
        packed = _FLOAT.pack(float("inf") if value > 0 else float("-inf"))
    bits: int = _U32.unpack(packed)[0]
    return bits


def _text(value: object) -> bytes | None:
    if value is None:
        return None
    text = str(value)
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a lone surrogate that surrogateescape cannot encode
        return text.encode("utf-8", "backslashreplace")


def _bytes(value: bytes | bytearray | memoryview | None) -> bytes | None:
    return None if value is None else bytes(memoryview(value))


_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "f32": _single,
    "f64": _double,
    "str": _text,
    "bytes": _bytes,
}
