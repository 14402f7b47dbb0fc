"""``usdt top`` and ``kprobe top``: rates, totals and latencies of probes, again and again.

screen/     the interface with keys
commands    command lines that show the same
display     the table on a terminal's alternate screen, or as lines
live        what is attached, and its readings
table       readings → rates, totals, order
text        rows as text
costs       what the traced programs pay
pairs       probes that belong together
"""
