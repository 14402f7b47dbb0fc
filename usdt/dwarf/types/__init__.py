"""Debug information as BTF types.

dwarf_btf        a ``Btf`` whose types are created on first use
convert          entries → BTF types
variants         tagged unions
abi_known_types  types whose layout an ABI fixes
functions        parameters and results; ``source_syntax``: their text in the source language
variables        locations of variables
"""
