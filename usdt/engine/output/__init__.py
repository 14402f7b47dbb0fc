"""Records to text, JSON and Python events.

decode        the ring buffer's bytes → lines or events, in bulk
formatters/   what one record becomes
stacks        frames and their names; ``kernel_symbols``: /proc/kallsyms
output_file   where lines go
"""
