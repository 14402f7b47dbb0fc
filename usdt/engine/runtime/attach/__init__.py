"""Attaching: each kind of point by the newest method that the kernel has.

attacher           sends each request to the module for its kind of point
attach_points      where programs are attached; ``requests``: what is attached there, and failures
uprobes            sites of files; ``kernel_events``: tracepoints and system calls
kernel_functions   kprobes; ``kprobe_session``: entry and return; ``kprobe_batch``: thousands
loader             loads programs; keeps links and maps until the session closes
"""
