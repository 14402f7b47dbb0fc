"""``usdt top`` and ``kprobe top``: rates, totals and latencies of probes, again and again.

screen/     the interface with keys
commands    command lines that show the same
display     the table on a terminal's alternate screen, or as lines
live        what is attached, and its readings
detail      one probe: what its views attach
sampling    which arguments a probe has
blocks      aggregates as lines
table       readings → rates, totals, order
text        rows as text
costs       what the traced programs pay
pairs       probes that belong together
"""
