"""The check of programs: syntax tree → typed program.

program      a whole program, in passes until all types are known; ``state``: its maps and events
statements   statements and blocks
calls        functions; ``functions``: by what they are about; ``formats``: those of printf()
builtins     names that stand for a value of the hit
operators    operators, members and elements; ``casts``: casts, sizes and offsets of types
values       constants, variables and maps; ``fields``: those of tracepoints
helper_errors  reports of reads that fail and keys that are absent, with -k
site         a probe at an attach point; ``nodes``: expressions of the engine as typed values
"""
