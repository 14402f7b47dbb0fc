"""The kernel's event tracer, tracefs, without BPF: definitions, instances, formats, records.

mount, owner          where tracefs is mounted; names that identify the process that made them
definitions           dynamic events: define, list, count hits and misses, remove
kprobe_events         kprobe events for programs; ``multi_probe_events``, ``function_entry``
uprobe_event          many sites of a file as one event for a program
instance, session     a private instance with events of its own; a run that reads its records
trace_pipe_reader     raw pages → records; ``pages``: their layout
format/               ``format`` files; ``registers``: register names in definitions

The names of instances and groups have the process ID and start time of the process that made them,
so that those of a killed run can be told from those in use.
"""
