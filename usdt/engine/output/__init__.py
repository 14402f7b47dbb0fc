"""Records to text, JSON and Python events.

decode        the ring buffer's bytes → lines or events, in bulk
formatters/   one record → text, JSON or an event
stacks        names for stacks; ``frames``: one frame; ``kernel_symbols``: /proc/kallsyms
output_file   writes lines to a file or standard output
"""
