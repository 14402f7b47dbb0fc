"""Demangle names of C++ and Rust.

demangle         one function for both
cxx              the Itanium C++ ABI; its parser inherits from those in ``cxx_names``,
                 ``cxx_expressions`` and ``cxx_types``, each from the next
cxx_nodes        the syntax tree, with methods that print it
rust             both manglings of Rust
bounded          a reader and a printer with limits, because symbol tables may be hostile
"""
