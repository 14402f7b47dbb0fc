"""Definitions as values; ``str()`` returns their text in the kernel's syntax."""

from __future__ import annotations

from usdt.base.frozen import frozen

__all__ = (
    "AllArguments",
    "Argument",
    "Comm",
    "Definition",
    "Deletion",
    "Deref",
    "EventName",
    "Fetch",
    "FileOffset",
    "FunctionArgument",
    "Immediate",
    "KernelAddress",
    "KernelSymbol",
    "Memory",
    "MemoryOfFile",
    "MemoryOfSymbol",
    "ProbePoint",
    "Register",
    "ReturnValue",
    "Stack",
    "StackSlot",
    "Text",
    "TracepointName",
    "Type",
    "Variable",
)


def _shortest(number: int) -> str:
    # The shorter of decimal and hexadecimal, because kernels limit an argument to 63 characters.
    return min(str(number), hex(number), key=len)


@frozen
class Register:
    """``%di``: a register, by the kernel's name."""

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
    """``$stackN``: the Nth long on the stack, counted from 0."""

    number: int

    def __str__(self) -> str:
        return f"$stack{self.number}"


@frozen
class ReturnValue:
    """``$retval``: the return value."""

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
    """``$argN``: the Nth argument of the function, counted from 1."""

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
    """A parameter with optional members (``file->f_mode``), or ``$field`` of an event."""

    text: str

    def __str__(self) -> str:
        return self.text


@frozen
class Memory:
    """``@ADDRESS``: memory of the kernel (in a uprobe: of the process)."""

    address: int

    def __str__(self) -> str:
        return f"@{_shortest(self.address)}"


@frozen
class MemoryOfSymbol:
    """``@SYMBOL+OFFSET``: memory at a symbol of the kernel."""

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
    r"""``\NUMBER``: a constant."""

    value: int

    def __str__(self) -> str:
        return f"\\{_shortest(self.value)}"


@frozen
class Text:
    r"""``\"TEXT"``: a constant string without white space."""

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
    """The type of an argument: ``u32``, ``string``, ``b4@2/8``, ``s16[4]``.

    Attributes:
        name: name of the type; for a bit field, ``bWIDTH@OFFSET/CONTAINER``.
        count: number of elements of an array; 0 if it is not an array.
    """

    name: str
    count: int = 0

    def __str__(self) -> str:
        return f"{self.name}[{self.count}]" if self.count else self.name


@frozen
class Argument:
    """A fetch argument: ``[NAME=]FETCH[:TYPE]``."""

    fetch: Fetch
    name: str | None = None
    type: Type | None = None

    def __str__(self) -> str:
        name = f"{self.name}=" if self.name else ""
        return f"{name}{self.fetch}{f':{self.type}' if self.type else ''}"


@frozen
class KernelSymbol:
    """``[MODULE:]SYMBOL[+OFFSET]``: an instruction of the kernel, by symbol."""

    symbol: str
    offset: int = 0
    module: str | None = None

    def __str__(self) -> str:
        module = f"{self.module}:" if self.module else ""
        return f"{module}{self.symbol}{f'+{self.offset}' if self.offset else ''}"


@frozen
class KernelAddress:
    """An address in the kernel's code."""

    address: int

    def __str__(self) -> str:
        return f"{self.address:#x}"


@frozen
class FileOffset:
    """``PATH:OFFSET[(REF_CTR_OFFSET)]``: an instruction in a file, for uprobes.

    Attributes:
        path: the file.
        offset: file offset of the instruction.
        ref_ctr: file offset of the reference counter (semaphore), or None.
    """

    path: str
    offset: int
    ref_ctr: int | None = None

    def __str__(self) -> str:
        counter = "" if self.ref_ctr is None else f"({self.ref_ctr:#x})"
        return f"{self.path}:{self.offset:#x}{counter}"


@frozen
class EventName:
    """``SYSTEM.EVENT``: the trace event that an event probe is attached to."""

    system: str
    event: str

    def __str__(self) -> str:
        return f"{self.system}.{self.event}"


@frozen
class TracepointName:
    """The name of a tracepoint, without its system."""

    name: str

    def __str__(self) -> str:
        return self.name


ProbePoint = KernelSymbol | KernelAddress | FileOffset | EventName | TracepointName


@frozen
class Definition:
    """The definition of a dynamic event.

    Attributes:
        kind: "p", "r" (a return probe), "e", "f" or "t".
        probe_point: the attach point.
        arguments: the fetch arguments that are recorded.
        group: name of the group; None if the kernel chooses it.
        event: name of the event; None if the kernel chooses it.
        maxactive: for return probes, the number of concurrent calls; None if the kernel decides.
        returns: for "f", True to probe the function's return.
        filter: for "e", the condition after ``if``.
    """

    kind: str
    probe_point: ProbePoint
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
        probe_point = f"{self.probe_point}{'%return' if self.returns else ''}"
        tail = f" if {self.filter}" if self.filter else ""
        return " ".join((head, probe_point, *map(str, self.arguments))) + tail


@frozen
class Deletion:
    """``-:[GROUP/]EVENT``, or ``-:GROUP/`` to delete all events of a group."""

    group: str | None
    event: str | None

    def __str__(self) -> str:
        return f"-:{self.group + '/' if self.group else ''}{self.event or ''}"
