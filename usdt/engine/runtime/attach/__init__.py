"""Attaching: each kind of attach point, by the newest method that the kernel has.

attacher           passes each request to the module for its kind of attach point
attach_points      attach points; ``requests``: a variant at an attach point, and failures
uprobes            sites of files; ``kernel_events``: tracepoints and system calls
kernel_functions   kprobes; ``kprobe_session``: entry and return; ``kprobe_batch``: thousands
loader             loads programs; keeps links and maps until the session closes
"""
