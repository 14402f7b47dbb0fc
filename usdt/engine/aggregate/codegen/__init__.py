"""Code that adds a hit to a table in the kernel.

action          what a program does at a hit
keys, values    code that makes a key, and adds to a value
"""
