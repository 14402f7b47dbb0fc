"""Definitions as values; ``str()`` of each is what the kernel is given."""

from __future__ import annotations

from usdt.base.frozen import frozen

__all__ = (
    "AllArguments",
    "Argument",
    "Comm",
    "Definition",
    "Deletion",
    "Deref",
    "EventPlace",
    "Fetch",
    "FilePlace",
    "FunctionArgument",
    "Immediate",
    "KernelAddress",
    "KernelPlace",
    "Memory",
    "MemoryOfFile",
    "MemoryOfSymbol",
    "Place",
    "Register",
    "ReturnValue",
    "Stack",
    "StackSlot",
    "Text",
    "TracepointPlace",
    "Type",
    "Variable",
)


def _shortest(number: int) -> str:
    # Decimal or hexadecimal: an argument has no more than 63 characters.
    return min(str(number), hex(number), key=len)


@frozen
class Register:
    """``%di``: a register, under the kernel's name for it."""

    name: str

    def __str__(self) -> str:
        return f"%{self.name}"


@frozen
class Stack:
    """``$stack``: the stack pointer."""

    def __str__(self) -> str:
        return "$stack"


@frozen
class StackSlot:
    """``$stackN``: the Nth word on the stack, from 0."""

    number: int

    def __str__(self) -> str:
        return f"$stack{self.number}"


@frozen
class ReturnValue:
    """``$retval``."""

    def __str__(self) -> str:
        return "$retval"


@frozen
class Comm:
    """``$comm`` (or ``$COMM``): the name of the task."""

    spelling: str = "comm"

    def __str__(self) -> str:
        return f"${self.spelling}"


@frozen
class FunctionArgument:
    """``$argN``: the Nth argument of the function, from 1."""

    number: int

    def __str__(self) -> str:
        return f"$arg{self.number}"


@frozen
class AllArguments:
    """``$arg*``: every argument, by name."""

    def __str__(self) -> str:
        return "$arg*"


@frozen
class Variable:
    """A parameter by name, with its members (``file->f_mode``), or ``$field`` of an event."""

    text: str

    def __str__(self) -> str:
        return self.text


@frozen
class Memory:
    """``@ADDRESS``: kernel memory (in a uprobe: the process's own)."""

    address: int

    def __str__(self) -> str:
        return f"@{_shortest(self.address)}"


@frozen
class MemoryOfSymbol:
    """``@SYMBOL+OFFSET``."""

    symbol: str
    offset: int = 0

    def __str__(self) -> str:
        sign = "" if not self.offset else "+" if self.offset > 0 else "-"
        return f"@{self.symbol}{sign}{_shortest(abs(self.offset)) if sign else ''}"


@frozen
class MemoryOfFile:
    """``@+OFFSET``: memory mapped from the probed file."""

    offset: int

    def __str__(self) -> str:
        return f"@+{_shortest(self.offset)}"


@frozen
class Deref:
    """``+OFFSET(FETCH)``, or ``+uOFFSET(FETCH)`` for memory of the process."""

    offset: int
    inner: Fetch
    user: bool = False

    def __str__(self) -> str:
        sign = "-" if self.offset < 0 else "+"
        return f"{sign}{'u' if self.user else ''}{_shortest(abs(self.offset))}({self.inner})"


@frozen
class Immediate:
    r"""``\NUMBER``."""

    value: int

    def __str__(self) -> str:
        return f"\\{_shortest(self.value)}"


@frozen
class Text:
    r"""``\"TEXT"``: white space cannot be in it."""

    text: str

    def __str__(self) -> str:
        return f'\\"{self.text}"'


Fetch = (
    Register
    | Stack
    | StackSlot
    | ReturnValue
    | Comm
    | FunctionArgument
    | AllArguments
    | Variable
    | Memory
    | MemoryOfSymbol
    | MemoryOfFile
    | Deref
    | Immediate
    | Text
)


@frozen
class Type:
    """``u32``, ``string``, ``b4@2/8``, ``s16[4]``.

    Attributes:
        name: of the type; of a bitfield all of ``bWIDTH@OFFSET/CONTAINER``.
        count: elements of an array, 0: none.
    """

    name: str
    count: int = 0

    def __str__(self) -> str:
        return f"{self.name}[{self.count}]" if self.count else self.name


@frozen
class Argument:
    """``[NAME=]FETCH[:TYPE]``."""

    fetch: Fetch
    name: str | None = None
    type: Type | None = None

    def __str__(self) -> str:
        name = f"{self.name}=" if self.name else ""
        return f"{name}{self.fetch}{f':{self.type}' if self.type else ''}"


@frozen
class KernelPlace:
    """``[MODULE:]SYMBOL[+OFFSET]``."""

    symbol: str
    offset: int = 0
    module: str | None = None

    def __str__(self) -> str:
        module = f"{self.module}:" if self.module else ""
        return f"{module}{self.symbol}{f'+{self.offset}' if self.offset else ''}"


@frozen
class KernelAddress:
    """An address of the kernel's code."""

    address: int

    def __str__(self) -> str:
        return f"{self.address:#x}"


@frozen
class FilePlace:
    """``PATH:OFFSET[(REFERENCE COUNTER)]``."""

    path: str
    offset: int
    ref_ctr: int | None = None

    def __str__(self) -> str:
        counter = "" if self.ref_ctr is None else f"({self.ref_ctr:#x})"
        return f"{self.path}:{self.offset:#x}{counter}"


@frozen
class EventPlace:
    """``SYSTEM.EVENT``: another event."""

    system: str
    event: str

    def __str__(self) -> str:
        return f"{self.system}.{self.event}"


@frozen
class TracepointPlace:
    """A tracepoint by its name alone."""

    name: str

    def __str__(self) -> str:
        return self.name


Place = KernelPlace | KernelAddress | FilePlace | EventPlace | TracepointPlace


@frozen
class Definition:
    """One event.

    Attributes:
        kind: "p", "r" (a return probe), "e", "f" or "t".
        place: what is probed.
        arguments: what is recorded.
        group, event: its name; None: the kernel makes one.
        maxactive: of a return probe, how many calls may be under way; None: the kernel decides.
        returns: of "f", whether it is the function's return.
        filter: of "e", what stands behind ``if``.
    """

    kind: str
    place: Place
    arguments: tuple[Argument, ...] = ()
    group: str | None = None
    event: str | None = None
    maxactive: int | None = None
    returns: bool = False
    filter: str | None = None

    def __str__(self) -> str:
        name = (
            "/".join(part or "" for part in (self.group, self.event))
            if self.group
            else (self.event or "")
        )
        head = f"{self.kind}{self.maxactive or ''}{':' if name else ''}{name}"
        place = f"{self.place}{'%return' if self.returns else ''}"
        tail = f" if {self.filter}" if self.filter else ""
        return " ".join((head, place, *map(str, self.arguments))) + tail


@frozen
class Deletion:
    """``-:[GROUP/]EVENT``; without an event a whole group."""

    group: str | None
    event: str | None

    def __str__(self) -> str:
        return f"-:{self.group + '/' if self.group else ''}{self.event or ''}"
