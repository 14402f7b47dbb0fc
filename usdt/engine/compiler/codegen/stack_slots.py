"""The 512 bytes of BPF stack: who writes what where, as offsets from r10."""

from __future__ import annotations

__all__ = (
    "COMM_SLOT",
    "FRAME_SLOT",
    "KEY_SLOT",
    "PIDNS_SLOT",
    "READ_SLOT",
    "SESSION_SLOT",
    "SLOTS",
    "STACK_BOTTOM",
    "TEXT_SLOT",
)

KEY_SLOT = -8  # a map's key
READ_SLOT = -16  # what a read of user memory brings
PIDNS_SLOT = -24  # struct bpf_pidns_info
FRAME_SLOT = PIDNS_SLOT  # once that is done: the frame of a call that returns, or 0
COMM_SLOT = -40
SESSION_SLOT = COMM_SLOT  # before that, at a return: the entry's stack pointer, if it is kept
TEXT_SLOT = -40 - 264  # a string to compare: 255 bytes, its NUL, one more; or pieces of two
SLOTS = TEXT_SLOT  # below: temporaries, growing down
STACK_BOTTOM = -512
