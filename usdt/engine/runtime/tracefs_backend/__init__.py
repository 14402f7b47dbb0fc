"""Sessions without BPF: probes as dynamic events of tracefs.

fetch_args, event_filter   expressions → fetch arguments and filters
event_planner              the walk over a plan that collects the fields of an event
event_plan                 plans → definitions; records → rows
evaluate                   computes the expressions that the kernel cannot
session                    defines events, reads their records, removes the events
"""
