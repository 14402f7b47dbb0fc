"""The ground floor: what every other room stands on. Imports nothing of the toolkit.

errors      the error tree; every message is one line
frozen      ``@frozen``: immutable, slotted records
machine     the CPU of the kernel and of this process, word size and byte order
closeable   file descriptors that are closed once
"""
