"""Where files come from that the machine does not have at their paths.

build_id_files  files by build ID, in directories, then by debuginfod
debuginfod      its cache and its servers
download        over HTTP, within bounds of size and time
"""
