"""A function, or a place inside one, to attach to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from usdt.dwarf.places.scopes import CodePlace

__all__ = ("INLINED", "ProbeFunction")

#: The end of a probe's name that selects the inlined copies as well.
INLINED = "+inlined"


@frozen
class ProbeFunction:
    """A function, or an address inside one, to attach to.

    Attributes:
        name: demangled name of the function; for an address in no known function, the address.
        symbol: its name in the symbol table; "" if it has none.
        path: the file's name, for messages.
        machine: CPU of the file.
        start: link-time address of the function.
        size: size of the function in bytes; 0 if unknown.
        offset_in_function: bytes from the function's start to the address; usually 0.
        offset: offset of the address in the file; of the local entry point on 64-bit PowerPC.
        aliases: other symbols of the same function.
        is_go: True for Go code.
        no_return: why its return cannot be probed; "" if it can.
        written: how the probe names it, if not by the function: ``source.c:12``.
        place: the place in debug information, if it was found by it.
    """

    name: str
    symbol: str
    path: str
    machine: str
    start: int
    size: int
    offset_in_function: int
    offset: int
    aliases: tuple[str, ...] = ()
    is_go: bool = False
    no_return: str = ""
    written: str = ""
    place: CodePlace | None = None

    @property
    def label(self) -> str:
        """The name as it is written: ``function``, ``function+0x10``, ``source.c:12``."""
        if self.written:
            return self.written
        return f"{self.name}+{self.offset_in_function:#x}" if self.offset_in_function else self.name

    @property
    def address(self) -> int:
        """The link-time address."""
        return self.start + self.offset_in_function

    @property
    def inside(self) -> bool:
        """True at a place inside a function, where no convention says what its parameters are."""
        return bool(self.offset_in_function) or self.place is not None

    @property
    def probe(self) -> str:
        """The name of the probe: ``uprobe:libc.so.6:malloc``."""
        return f"uprobe:{self.path.rpartition('/')[2]}:{self.label}"
