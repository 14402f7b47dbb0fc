"""Addresses to source lines.

line_program   the line table of a unit
file_table     names of source files by number
inlining       functions of a unit and what was inlined into them
source_lines   all of it for one file
"""
