"""Functions of the kernel as probes: ``kprobe:[MODULE:]FUNCTION[+OFFSET](ITEMS)``.

places     a probe's text → functions of the kernel, or in one line why there are none
words      by the CPU's calling convention, or the kernel's trampolines: which words hold what
arguments  a prototype of BTF → arguments by name, and ``return``
ways       the kernel's ways of attaching, newest first, and what each lacks here
source     all of this → points of a session, attached
"""
