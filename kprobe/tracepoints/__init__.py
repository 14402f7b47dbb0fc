"""Tracepoints, raw tracepoints and system calls as probes.

catalog     which events there are, and their formats
fields      a format's fields → arguments
numbers     system calls by number
syscalls    system calls → arguments, of their begin or their return
flagtables  names of flags that no format and no BTF has
raw, types  raw tracepoints: arguments by BTF, members through pointers
source      probes of these kinds → points of a session
"""
