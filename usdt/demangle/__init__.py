"""Mangled names of C++ and Rust to what people write.

demangle      one function for both
cxx           the Itanium C++ ABI: ``cxx_names``, ``cxx_types``, ``cxx_expressions``, ``cxx_nodes``
rust          both manglings of Rust
bounded       a reader and a writer with limits: names are hostile
"""
