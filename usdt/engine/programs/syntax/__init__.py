"""The syntax of programs: text → tree.

tree      the nodes of types, expressions and statements
program   the nodes of a program's parts: definitions, macros, functions, probes
"""
