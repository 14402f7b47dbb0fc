"""The engine of both commands, as the stages of a compiler.

language/               text → syntax tree
compiler/               tree → typed expressions → plan → bytecode
output/                 records → text, JSON, Python events
runtime/                programs attached, records taken; a back end with BPF and one without
aggregate/, recording/  what becomes of hits: tables in the kernel, files
run/, cli/, api/        what both commands and both Python interfaces share

The engine knows no ELF file, process or kernel symbol: kinds of probes register with ``run``.
"""
