"""The format of records: the contract between programs and the code that decodes records.

columns         the types of values: how they are stored and shown
layout          the offsets of values in a record, and their form in recordings
length_prefix   the word before strings, buffers, arrays, structures and stacks
"""
