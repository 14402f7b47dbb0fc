"""Sessions without BPF: probes as dynamic events of tracefs.

fetch_args, event_filter   expressions → fetch arguments and filters
event_planner              the walk over a plan that collects the values that an event records
event_plan                 plans → definitions; records → rows
site_events                names, paths and shared events of sites
trace_events               events that exist; trace_event_rows: their records → rows
evaluate                   computes the expressions that the kernel cannot
session                    defines events, reads their records, removes the events
"""
