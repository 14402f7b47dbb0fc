"""Locations of parameters and results: in registers, in memory, or not readable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from usdt.arch.locations import Register

__all__ = ("NotReadable", "Passed", "PassedInMemory", "PassedInRegisters", "RegisterPiece", "Value")


@frozen
class Value:
    """A parameter or a result.

    Attributes:
        type: ID of its type; 0 for void.
        by_reference: True if C++ passes the address of a copy instead.
    """

    type: int
    by_reference: bool = False


@frozen
class RegisterPiece:
    """Bytes of a value in a register.

    Attributes:
        start: offset of the first byte in the value.
        size: number of bytes.
        register: their location; None if programs cannot read the register.
        name: name of the register.
        problem: why programs cannot read the register.
    """

    start: int
    size: int
    register: Register | None
    name: str
    problem: str = ""


@frozen
class PassedInRegisters:
    """A value in registers."""

    pieces: tuple[RegisterPiece, ...]

    @property
    def where(self) -> str:
        """The location as text."""
        names = ":".join(dict.fromkeys(one.name for one in self.pieces))
        return f"in register{'s' * (len(self.pieces) > 1)} {names}"


@frozen
class PassedInMemory:
    """A value in memory.

    Attributes:
        register: the register that holds the address, or the base of ``displacement``.
        displacement: bytes from the register to the value; None if the register holds the address.
        name: name of the register.
        pointer: True if the address of the value, not the value, is stored there.
    """

    register: Register
    displacement: int | None
    name: str
    pointer: bool = False

    @property
    def where(self) -> str:
        """The location as text."""
        if self.displacement is None:
            return f"at the address in register {self.name}"
        sign = "-" if self.displacement < 0 else "+"
        location = f"at {self.name} {sign} {abs(self.displacement)}"
        return f"at the address that is {location}" if self.pointer else f"in memory {location}"


@frozen
class NotReadable:
    """A value whose location is unknown, or that programs cannot read."""

    reason: str

    @property
    def where(self) -> str:
        """The location as text."""
        return f"not readable: {self.reason}"


Passed = PassedInRegisters | PassedInMemory | NotReadable
