"""Ring buffers, and the reader's side of them.

ringbuf       the kernel's
array_rings   in an array map, where programs need no lock
groups        several that are read as one
"""
