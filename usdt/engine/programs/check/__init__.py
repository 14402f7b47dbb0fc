"""The check of programs: syntax tree → typed program.

program      a whole program, in passes until all types are known; ``state``: its maps and events
statements   statements and blocks
calls        functions; ``formats``: those of printf()
builtins     names that stand for a value of the hit
operators    operators, casts, members and elements
values       constants, variables and maps; ``fields``: those of tracepoints
kernels      what programs need of the kernel; ``settings``: their configuration
site         a probe at an attach point; ``nodes``: expressions of the engine as typed values
"""
