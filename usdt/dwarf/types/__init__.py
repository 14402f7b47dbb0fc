"""Debug information as BTF types.

dwarf_btf        a ``Btf`` that grows as types are used
convert          entries → BTF types
variants         tagged unions
abi_known_types  types whose layout an ABI fixes
functions        parameters and results; ``source_syntax``: as the source language writes them
"""
