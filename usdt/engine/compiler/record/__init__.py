"""The format of records: the contract between programs and the code that decodes them.

layout          where each value of a record is, and what it is
length_prefix   what precedes strings, buffers and structures
"""
