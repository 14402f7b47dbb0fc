"""What stands before texts, buffers and structures in a record: their bytes, or why there are none.

A lead is an s64. With :data:`USERS` in it, a pointer that the kernel's types know led to a
process's memory.
"""

from __future__ import annotations

__all__ = ("FAULT", "NO_ADDRESS", "NULL", "REASONS", "USERS", "reason_of")

USERS = 1 << 32
FAULT = -14  # EFAULT
NO_ADDRESS = -6  # ENXIO: already what the address is made of could not be read
NULL = -4096  # no error number of the kernel's
REASONS = {
    FAULT: "memory not readable",
    NO_ADDRESS: "memory not readable, in which its address is",
    NULL: "NULL pointer",
    -75: "longer than a record has room for",
}


def reason_of(lead: int) -> str:
    """Why there is nothing; ``lead`` is negative."""
    return REASONS.get(lead) or f"errno {-lead}"
