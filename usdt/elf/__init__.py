"""ELF files: bounded readers that distrust every length.

file, format    headers, segments, sections; the structures of elf(5)
dynamic         what the dynamic loader reads: program headers, the dynamic section
symbols         addresses of the symbols that operands name
symbol_index    functions of a file by address
functions       functions of a file by name
"""
