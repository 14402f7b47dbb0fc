"""Targets: the processes, commands and files that are traced.

tracer           attach probes in the files of the targets, now and later, and detect the end
trace_requests   requested probes and the files they are searched in
provider         the kinds usdt and uprobe, registered with the engine
target_files     TARGET words → files; library_search, ldcache: as the dynamic loader finds them
executables      programs as a shell and the kernel find them
spawn            commands held at their start
follow_forks     children of traced processes, and the files they map
listing_files    the files of ``usdt list``
"""
