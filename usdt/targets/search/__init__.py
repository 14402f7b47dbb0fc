"""Files by name, as shells, the kernel and the dynamic loader search them.

target_files    TARGET arguments → files; patterns of files
searched_files  TARGET arguments that take a search: names, files of processes
target          what both return
executables     programs: PATH, and ``#!``
libraries       libraries: the search of the dynamic loader, and what a program loads
ldcache         /etc/ld.so.cache
"""
