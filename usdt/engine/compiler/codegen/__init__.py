"""Code generation: plans in, eBPF programs out.

program        one program of one or more variants; ``model``: what its parts share
record         the code that makes a record; ``entry_state``: that keeps captured values of a call
expressions/   the code of typed expressions
task_filter    whether the current process is traced, and the programs that keep the set of tasks
stack_slots    the layout of the BPF stack; ``map_calls``: calls with a key on it
"""
