"""The layout of the 512 bytes of BPF stack, as offsets from r10.

Slots that share bytes have separate lifetimes.

slot                 bytes  lifetime and contents
KEY_SLOT             8      from the store of a map's key to the call that uses it
READ_SLOT            8      from the read of a number to its load
PIDNS_SLOT           8      while the task filter runs: struct bpf_pidns_info
ENTRY_STATE_SLOT     8      the same bytes, afterwards: address of the entry state, or 0
SITE_SLOT            8      the same bytes, without entry state: address of the site's row
COMM_SLOT            16     while a predicate compares the thread's name
ENTRY_POINTER_SLOT   8      the same bytes, before that: at a return, the entry's stack pointer
FIRST_STATE_SLOT     8      the same bytes, while a pair is matched: address of the state of slot 0
STRING_SLOT          264    while strings are compared; at other times map keys over 8 bytes
TEMPORARIES          208    from here down to STACK_BOTTOM: operands, pushed and popped
"""

from __future__ import annotations

__all__ = (
    "COMM_SLOT",
    "ENTRY_POINTER_SLOT",
    "ENTRY_STATE_SLOT",
    "FIRST_STATE_SLOT",
    "KEY_SLOT",
    "PIDNS_SLOT",
    "READ_SLOT",
    "SITE_SLOT",
    "STACK_BOTTOM",
    "STRING_SLOT",
    "TEMPORARIES",
)

KEY_SLOT = -8
READ_SLOT = -16
PIDNS_SLOT = -24
ENTRY_STATE_SLOT = PIDNS_SLOT
SITE_SLOT = PIDNS_SLOT
COMM_SLOT = -40
ENTRY_POINTER_SLOT = COMM_SLOT
FIRST_STATE_SLOT = COMM_SLOT
STRING_SLOT = -40 - 264  # 255 bytes, a NUL and one more byte; or two pieces of 128 bytes
TEMPORARIES = STRING_SLOT
STACK_BOTTOM = -512
