"""Sessions without BPF: probes as dynamic events of tracefs.

fetch_args, event_filter   expressions → fetch arguments and filters
event_plan                 plans → definitions; records → rows
evaluate                   what the kernel cannot compute
session                    defines, reads and removes
"""
