"""Programs in bpftrace's language.

syntax/    text → tree
constants  constants of headers that no type information has
headers    the headers that a program includes
"""
