"""The check of functions, by what they are about; ``calls`` finds them by their names.

arguments    what they share: the check of their arguments
text         strings and bytes
addresses    addresses of memory and of networks; symbols and stacks
kernel_objects  what takes objects of the kernel: sockets, paths
maps         maps
aggregates   what maps compute: count() and the like
tasks        processes and threads
questions    what is answered before the program runs: types, assertions, the system
"""
