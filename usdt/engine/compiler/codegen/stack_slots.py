"""The 512 bytes of BPF stack: who writes what where, as offsets from r10."""

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

KEY_SLOT = -8  # a map's key
READ_SLOT = -16  # what a read of user memory brings
PIDNS_SLOT = -24  # struct bpf_pidns_info
ENTRY_STATE_SLOT = PIDNS_SLOT  # once that is done: the frame of a call that returns, or 0
COMM_SLOT = -40
ENTRY_POINTER_SLOT = COMM_SLOT  # before that, at a return: the entry's stack pointer, if it is kept
STRING_SLOT = -40 - 264  # a string to compare: 255 bytes, its NUL, one more; or pieces of two
TEMPORARIES = STRING_SLOT  # below: temporaries, growing down
STACK_BOTTOM = -512
