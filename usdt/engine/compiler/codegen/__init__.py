"""Code generation: plans → eBPF programs.

program        emits one program for one or more variants; ``model``: types shared by its parts
record         emits the code for a record; ``entry_state``: for the entry state of a call
expressions/   emits the code of typed expressions
python_stack   walks the Python frames of a thread; ``python_frames``: one step of the walk
task_filter    emits the test for traced processes, and programs that maintain the set of tasks
current_task   emits the code that reads the name of the task
stack_slots    the layout of the BPF stack; ``map_calls``: helper calls with a map key on it;
               ``buckets``: those of histograms
"""
