"""What a program takes from other files.

headers    the headers that it includes
constants  constants of headers that no type information has
imports    the programs that it imports
"""
