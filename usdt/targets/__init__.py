"""Targets: the processes, commands and files that are traced.

tracer           attach probes in the files of the targets, now and later, and detect the end
target_files     TARGET words → files; library_search, ldcache: as the dynamic loader finds them
executables      programs as a shell and the kernel find them
spawn            commands held at their start
follow_forks     children of traced processes, and the files they map
listing_files    the files of ``usdt list``
"""
