"""Whom to trace: processes, commands, files.

target_files      TARGET arguments → files; ``executables``, ``library_search``, ``ldcache``
listing_files     the files that a listing is about
spawn             a command held at its start
follow_forks      children, and the files that they map later
tracer            what is attached when, and when tracing ends
"""
