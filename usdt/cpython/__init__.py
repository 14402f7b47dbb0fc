"""CPython's memory: where a process keeps its Python frames, and what their bytes mean.

layouts         offsets of the structures of each version, and the table that 3.13 has of its own
runtime         what a BPF program must know of one process to find its frames
stack_record    the frames of a stack as a program records them
code_objects    bytes of a code object and of what it refers to → names and line numbers
location_table  the line of an instruction

It reads no process and no file; :mod:`usdt.symbolize` does. Everything that it decodes comes from
a traced process, which may hold anything.
"""
