"""Types as text: C, and what bpftool prints.

declare       a type as a declaration in C
c_dump        all types as a header that compiles; ``c_alignment`` pads and packs its structures
raw_dump      all types as ``bpftool btf dump`` prints them
"""
