"""Ring buffers, and the reader's side of them.

ringbuf       the kernel's
array_rings   in an array map, where programs need no lock
groups        how CPUs share ring buffers
several       those that are read as one
time_order    their records in the order of time
numpy_import  when numpy is imported, which does that faster
"""
