"""The compiler: syntax tree → plan → eBPF program.

scope, resolve/         names and types: tree → typed expressions (``ir``, ``constant_folding``)
arguments, value_names  the description of an argument by its probe provider
uapi_names              constants of the kernel's interface that are macros
outputs, plan           columns, predicates and the record of a probe; ``limits``: maximum sizes
entry_return            splits a function's plan in two: one for its entry, one for its return
record/                 the format of records, which :mod:`usdt.engine.output` decodes
codegen/                plans → eBPF programs
"""
