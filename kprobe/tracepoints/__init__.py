"""Tracepoints, raw tracepoints and system calls as probes.

catalog     which events there are, and their formats
fields      a format's fields → arguments
numbers     system calls by number; numbers32: of 32-bit kernels
syscalls    system calls → arguments, of their begin or their return
flagtables  names of flags that no format and no BTF has
raw         raw tracepoints: arguments by BTF
source      probes of these kinds → points of a session
"""
