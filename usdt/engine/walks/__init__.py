"""User stacks that programs walk in the kernel by unwind tables, one step of bpf_loop() a frame.

stack_walks   the maps of a session: rows of unwind tables, mappings of processes
walk          the code of a walk; walk_step: a step of it; find_file: tables by file
walk_state    the state of a walk in a map, and the names of the maps
walked        the addresses of a stack that a walk has found
"""
