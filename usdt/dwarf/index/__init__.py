"""Which unit has which function and type: made once for each file, and kept.

files         the files that hold the debug information of one ELF file
abbrev_skim   abbreviation tables prepared for skipping entries quickly
indexer       one pass over a unit; ``nested``: functions within functions
index         the result, cached
"""
