"""ELF files: bounded readers, since files are hostile.

file, format    headers, segments, sections; the structures of elf(5)
file_bytes      bytes of an open file, read when they are used
dynamic         the information that the dynamic loader reads
debug_files     separate debug files, by build ID or .gnu_debuglink
symbol_table    one table: symbols by name and by address; ``symbol``: one of them
symbol_tables   all tables of a file, those of its debug file included
symbol_resolver addresses of the symbols that operands of USDT probes name
variables       where variables are, some in other files; ``got_slots``: the words that say so
"""
