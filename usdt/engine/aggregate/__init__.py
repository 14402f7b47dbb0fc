"""Aggregations in the kernel: counts, histograms, statistics, times between two probes.

spec       what is to be computed: values, no kernel
values     the words of a map's value: written by programs, read back as :class:`Value`
keys       the bytes of a map's key: laid out, read back
keygen     code that makes a key
valuegen   code that adds to a value
body       what a program does at a hit
session    maps, attached programs, reading
results    rows → results with names, in order
    lines, jsonlines, heatmap, svg    how they are shown
"""
