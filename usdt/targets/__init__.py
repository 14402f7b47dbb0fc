"""Targets: the processes, commands and files that are traced.

tracer           attach probes in the files of the targets, now and later, and detect the end
trace_requests   requested probes and the files they are searched in
provider         the kinds usdt and uprobe, for the engine's registry
target_files     TARGET arguments → files; library_search, ldcache: the dynamic loader's search
executables      the search for programs, as a shell and the kernel do it
spawn            commands that are stopped at their first instruction
follow_forks     children of traced processes, and the files they map
listing_files    the files of ``usdt list``
"""
