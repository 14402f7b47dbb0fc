"""Targets: the processes, commands and files that are traced.

tracer           attach what the finders find in the files of the targets, now and later
target_set       the processes of the targets and their end; the files they map, now and later
probe_finders    a requested probe in a file → attach points: USDT probes, functions
traced_files     a file of the targets, and what is known of it
provider         the kinds usdt and uprobe, for the engine's registry
search           TARGET arguments → files; the search for programs and libraries
spawn            commands that are stopped at their first instruction; command_user: --user
follow_forks     children of traced processes, and the files they map
cgroup_targets   processes in selected cgroups, and the files they map
probe_names      names for completion in shells
listing_files    the files of ``usdt list``; function_hint: what a missing probe may mean
"""
