"""From a syntax tree to a plan, and from a plan to bytecode.

scope, resolve/         names and types: tree → typed expressions (``ir``, ``constant_folding``)
arguments, value_names  what a probe's provider tells about an argument
outputs, plan           values to show, predicates, the record; ``limits``: maximum sizes
entry_return            one plan of a function as two: at entry and at return
record/                 the record's format, which output reads
codegen/                plans → eBPF programs
"""
