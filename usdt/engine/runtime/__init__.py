"""Sessions: programs are planned, attached and polled.

planner            probes and attach points → variants and attach requests, without the kernel
attach/            loads programs and attaches them by the newest method that the kernel has
session            attaches, polls, counts losses; ``poller``, ``ringbuf_reader``: waiting
entry_state        maps of values captured at a function's entry
cgroup_set         the set of traced cgroups
follow             the set of traced tasks; ``call_chain``, ``chain_filter``: call chains (-s)
tracefs_backend/   the same sessions without BPF
"""
