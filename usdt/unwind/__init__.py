"""User stacks by unwind tables: the callers of a place in a program, without frame pointers.

rules            where a function's caller has its registers: one row of a table
instructions     call frame instructions → rows
frame_table      ``.eh_frame``, ``.eh_frame_hdr`` and ``.debug_frame`` of a file
expressions      DWARF expressions in rows
thread_state     what was recorded of a thread: registers and the top of its stack
unwinder         the state of a thread → return addresses
"""
