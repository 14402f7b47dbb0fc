"""Conversion of records to text, JSON and Python events.

decode        the bytes of a ring buffer → lines or events, in bulk
formatters/   one record → text, JSON or an event
parquet/      rows or a JSON stream → a Parquet file
stacks        symbols for stacks; ``frames``: one frame; ``kernel_symbols``: /proc/kallsyms
profiles/     events with stacks → profiles, for pictures
symbol_needs  whether symbols of processes are needed
cgroup_names  the names of a cgroup as text, JSON and Python values
output_file   writes lines to a file or standard output; ``streams/``: JSON lines behind a header
"""
