"""The state of a walk through a user stack, in a map: the offsets of its fields.

Programs on uprobes are preempted, so that each CPU has several states: a program claims a free one
(``BUSY``), and the walk's steps, which the kernel calls, find everything in it.

The stack that is found (``VALUE``) is the value of the map of stacks:

    u32      number of addresses
    u32      :class:`usdt.arch.unwind_rows.WalkEnd`
    u64 …    addresses, innermost first; bit 63 marks those that are no return addresses
"""

from __future__ import annotations

import struct

from usdt.engine.language.tree import MAX_FRAMES

__all__ = (
    "BUSY",
    "CACHED",
    "EXACT",
    "EXACT_MARK",
    "FILE_KEY",
    "FIRST",
    "FOUND",
    "FP",
    "FRAMES",
    "HASH",
    "KEY",
    "LIMIT",
    "LINK",
    "NUMBER",
    "PC",
    "RANGE",
    "RANGES",
    "RANGE_BITS",
    "REASON",
    "RETRY",
    "ROWS",
    "ROW_BITS",
    "SCRATCH",
    "SLICE",
    "SLICES",
    "SP",
    "STATES_PER_CPU",
    "STATE_SIZE",
    "TEMP",
    "UNCHECKED",
    "VALUE",
    "VALUE_HEADER",
    "WALKS",
    "WANTED",
)

# Maps
WALKS = "walks"  # array: the states, STATES_PER_CPU of each CPU
SLICES = "unwind.procs"  # hash: u32 process → SLICE
RANGES = "unwind.ranges"  # array of blocks of RANGE
ROWS = "unwind.rows"  # array of blocks of usdt.arch.unwind_rows.ROW
WANTED = "unwind.wanted"  # hash: u32 process whose mappings were not known → u64 hits

STATES_PER_CPU = 8
SLICE = struct.Struct("=III4xQ")  # block of RANGES, index of the first one, number; mm_struct
RANGE = struct.Struct("=QQQII")  # start, end, address of the table's address 0, first row, rows
RANGE_BITS = 14  # of a number of ranges in a block
ROW_BITS = 19  # of a number of rows in a block; a range's first row has the block above

# Fields of a state
BUSY, PC, FP, TEMP, SCRATCH, SP, LINK = 0, 8, 16, 24, 32, 40, 48  # TEMP is behind FP
EXACT, NUMBER, LIMIT, REASON, HASH = 56, 64, 72, 80, 88
CACHED = 96  # a RANGE: that of the last address
KEY = 128  # of a map
FRAMES = 136  # the slice of the process
FILE_KEY = 152  # of the map of files
FOUND = 168  # whether the map of files had the file
UNCHECKED = 176  # whether no call instruction is known to be before the address
VALUE = 184
STATE_SIZE = VALUE + 8 + 8 * MAX_FRAMES

VALUE_HEADER = struct.Struct("=II")
EXACT_MARK = 1 << 63
# Bits of EXACT: the address is that of an instruction; it is in the stack already
FIRST, RETRY = 3, 2
