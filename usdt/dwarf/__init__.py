"""Debug information: functions, parameters and types of programs, by DWARF 2 to 5.

What is read is what is asked for: one function's unit, the types its parameters lead to. Names that
may be anywhere are looked up in an index that is made once for each file and kept.
"""
