"""Demangle names of C++ and Rust.

demangle         one function for both
cxx              the Itanium C++ ABI; the parsers of its grammar stand on each other:
                 ``cxx_names``, ``cxx_expressions``, ``cxx_types``
cxx_nodes        the syntax tree, which prints itself
rust             both manglings of Rust
bounded          a reader and a printer with limits, since symbol tables are hostile
"""
