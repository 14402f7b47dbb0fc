"""The output of programs, as bpftrace's.

results      what a run does with events: prints, clears maps, ends
writer       text and JSON; ``printf``: formats; ``histograms``: buckets and pictures
objects      what is printed as Python objects, for ``usdt.run``
maps         the contents of maps
packets      files of packets, for skboutput()
values       values from bytes and as text; ``symbols``: names that are looked up
"""
