"""ELF files: bounded readers that distrust every length.

file, format    headers, segments, sections; the structures of elf(5)
dynamic         what the dynamic loader reads: program headers, the dynamic section
debug_files     separate debug files, by build ID or .gnu_debuglink
symbol_table    one table: symbols by name and by address
symbol_tables   all tables of a file, those of its debug file included
symbols         addresses of the symbols that operands name
"""
