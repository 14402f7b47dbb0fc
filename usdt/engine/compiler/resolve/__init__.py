"""Resolution of names and types: syntax tree → typed expressions, by C's rules.

expressions   :class:`Resolver`, which handles all expressions
strings       comparisons of strings and bytes; ``arrays``: of arrays
operands      operands that must be integers, addresses, strings or containers
names         arguments and variables, built-ins, constants; ``addresses``: the operator &
conversions   C's conversions, and arithmetic with pointers
btf_types     members, elements and casts by BTF; ``in_registers``: structures in registers

Integer promotion and the usual arithmetic conversions are C's (C17 6.3.1): types smaller than
``int`` are promoted to ``int``; operands are converted to the larger of two types, or to the
unsigned one if their sizes are equal. Constants are folded during resolution.
"""
