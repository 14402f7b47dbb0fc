"""The 512 bytes of BPF stack, as offsets from r10. Slots that share bytes have separate lifetimes.

slot                 bytes  alive
KEY_SLOT             8      from storing a map's key to the call that takes it
READ_SLOT            8      from a read of a number to loading it
PIDNS_SLOT           8      while the task filter runs: struct bpf_pidns_info
ENTRY_STATE_SLOT     8      the same bytes, afterwards: address of the entry state, or 0
COMM_SLOT            16     while a predicate compares the process's name
ENTRY_POINTER_SLOT   8      the same bytes, before: the entry's stack pointer, at a return
STRING_SLOT          264    while strings are compared; else keys of maps longer than 8 bytes
TEMPORARIES          208    below: operands that wait, pushed and popped, down to STACK_BOTTOM
"""

from __future__ import annotations

__all__ = (
    "COMM_SLOT",
    "ENTRY_POINTER_SLOT",
    "ENTRY_STATE_SLOT",
    "KEY_SLOT",
    "PIDNS_SLOT",
    "READ_SLOT",
    "STACK_BOTTOM",
    "STRING_SLOT",
    "TEMPORARIES",
)

KEY_SLOT = -8
READ_SLOT = -16
PIDNS_SLOT = -24
ENTRY_STATE_SLOT = PIDNS_SLOT
COMM_SLOT = -40
ENTRY_POINTER_SLOT = COMM_SLOT
STRING_SLOT = -40 - 264  # 255 bytes, the NUL, one more; or pieces of two strings
TEMPORARIES = STRING_SLOT
STACK_BOTTOM = -512
