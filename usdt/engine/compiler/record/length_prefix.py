"""Length prefixes: the s64 before a string, buffer, array, structure or stack in a record.

It is the number of bytes that follow: for a string with the NUL, for a structure without its
address. For text and lists whose length is known, it is their length: if it is larger than the
column, the value was cut. A negative number is the reason why there are none. The flag
:data:`USERS` says that a pointer of the kernel's types referred to a process's memory.
"""

from __future__ import annotations

__all__ = ("FAULT", "MAX_LENGTH", "NO_ADDRESS", "NULL", "REASONS", "USERS", "reason_of")

USERS = 1 << 32
MAX_LENGTH = (1 << 31) - 1  # of a value that was cut; what is longer counts as this long
FAULT = -14  # EFAULT
NO_ADDRESS = -6  # ENXIO: the address itself could not be computed
NULL = -4096  # a NULL pointer; the kernel's error numbers end at -4095
REASONS = {
    FAULT: "memory not readable",
    NO_ADDRESS: "the memory that holds its address is not readable",
    NULL: "NULL pointer",
    -75: "too long for its record",
}


def reason_of(prefix: int) -> str:
    """Return why a value is missing; ``prefix``, its length prefix, is negative."""
    return REASONS.get(prefix) or f"errno {-prefix}"
