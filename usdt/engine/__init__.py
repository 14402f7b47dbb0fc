"""The engine of the usdt and kprobe commands, structured as a compiler.

language/    text → syntax tree
compiler/    tree → typed expressions → plan → eBPF instructions
runtime/     attaches programs and reads their records; one back end with BPF, one with tracefs
output/      records → text, JSON, Python events
walks/       user stacks that programs walk by unwind tables
aggregate/   results computed in kernel maps; ``recording/``: records in files
pages/       report pages: what was traced, summed up
run/         tracing runs; ``cli/``, ``api/``: what both commands and Python interfaces share

The engine does not depend on ELF, processes or kernel symbols: probe providers register with
:mod:`usdt.engine.run.registry`.
"""
