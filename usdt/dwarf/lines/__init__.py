"""Addresses to source lines.

line_program   the line table of a unit, and its source files by number
inlining       functions of a unit, and the functions inlined into them
source_lines   the source lines of one ELF file
"""
