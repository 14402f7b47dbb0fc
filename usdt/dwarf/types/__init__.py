"""Debug information as BTF types.

dwarf_btf        a ``Btf`` that grows as types are asked for
convert          entries → BTF types
variants         enumerations with data
abi_known_types  types whose layout an ABI fixes
functions        parameters and results; ``source_syntax``: as the source language writes them
"""
