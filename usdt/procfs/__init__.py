"""Processes as /proc shows them.

maps           mappings of a process; ``mapped_files``: the mapped files, and paths that open them
process        names, parents, start times, pidfds; ``namespaces``: IDs in PID namespaces
thread_groups  the process of a thread that may have ended; ``thread_names``: its name
access         reading files of /proc/PID; errors that give the reason
"""
