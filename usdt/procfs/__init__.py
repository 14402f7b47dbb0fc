"""Processes as /proc shows them.

process         maps, files by device and inode, namespaces, start times
thread_groups   the process that a thread belongs to
"""
