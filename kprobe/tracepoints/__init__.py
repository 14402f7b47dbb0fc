"""Tracepoints, raw tracepoints and system calls as probes.

catalog          the kernel's trace events and their formats; fields: a format → arguments
syscalls         system calls → arguments, at entry or return; flag_names: names of flags
syscall_numbers  system call numbers; syscall_numbers_32bit: those of 32-bit kernels
raw              raw tracepoints → arguments, from BTF
provider         probes of these kinds → attach points of a session
"""
