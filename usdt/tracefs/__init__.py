"""The kernel's event tracer, tracefs: definitions, instances, records; no BPF.

mount               where tracefs is mounted, and its control files
definitions         dynamic events: written, removed, errors explained
instance, owner     an instance and a group for each run; both name the process that made them
kprobe_events       kprobes as events that programs attach to; ``multi_probe_events``: many in one
format/             ``format`` files: fields, values, ``print fmt``
trace_pipe_reader, pages  raw ring buffer pages → records; ``session``: a run of the tracer

Instances and groups carry the process ID and start time of their maker, so that what a killed run
left behind can be told from what is in use.
"""
