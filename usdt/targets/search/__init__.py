"""Files by name, as shells, the kernel and the dynamic loader search them.

target_files   TARGET arguments → files; patterns of files
executables    programs: PATH, and ``#!``
libraries      libraries: the search of the dynamic loader, and what a program loads
ldcache        /etc/ld.so.cache
"""
