"""Where a value is: in registers, in memory, or nowhere that could be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from usdt.arch.locations import Register

__all__ = ("NotReadable", "Passed", "PassedInMemory", "PassedInRegisters", "RegisterPiece", "Value")


@frozen
class Value:
    """A parameter or a result, as its type says.

    Attributes:
        type: its ID; 0: void.
        by_reference: whether C++ passes the address of a copy instead.
    """

    type: int
    by_reference: bool = False


@frozen
class RegisterPiece:
    """Some bytes of a value; ``register`` is None where ``problem`` says why."""

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
        """In words."""
        names = ":".join(dict.fromkeys(one.name for one in self.pieces))
        return f"in register{'s' * (len(self.pieces) > 1)} {names}"


@frozen
class PassedInMemory:
    """A value in memory.

    Attributes:
        register: that the address is in, or is counted from.
        displacement: of the value, or of the word that has its address, if ``pointer``.
    """

    register: Register
    displacement: int | None
    name: str
    pointer: bool = False

    @property
    def where(self) -> str:
        """In words."""
        if self.displacement is None:
            return f"at the address in register {self.name}"
        place = f"at {self.name} + {self.displacement}"
        return f"at the address that is {place}" if self.pointer else f"in memory {place}"


@frozen
class NotReadable:
    """Nobody knows, or nobody can read it."""

    reason: str

    @property
    def where(self) -> str:
        """In words."""
        return f"not readable: {self.reason}"


Passed = PassedInRegisters | PassedInMemory | NotReadable
