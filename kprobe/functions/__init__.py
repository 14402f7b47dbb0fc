"""Functions of the kernel as probes: ``kprobe:[MODULE:]FUNCTION[+OFFSET](ITEMS)``.

symbols, blacklist   kallsyms, available_filter_functions; what must not be probed
prototypes           declarations from BTF
lookup               a probe's text → functions, or one line that says why there are none
abi, arguments       where arguments are; a prototype → arguments by name, and ``return``
attach_methods       the kernel's interfaces, newest first, and what each lacks here
attach               all of this → attach points of a session
"""
