"""Programs in bpftrace's language.

syntax/    text → tree
"""
