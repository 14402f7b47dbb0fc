"""The format of records: the contract between programs and the code that decodes them.

columns         the types of values: how they are stored and shown
layout          where each value of a record is
length_prefix   the word before strings, buffers, arrays, structures and stacks
"""
