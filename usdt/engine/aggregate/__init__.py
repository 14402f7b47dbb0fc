"""Aggregation in the kernel: counts, histograms, statistics, times between two probes.

spec       the aggregation to compute; does not use the kernel
values     layout of a map's value; ``keys``: layout of its key
planning   probes and options → plans and actions of variants
largest    the groups with the most hits, before all are decoded
rows       results before they have names; plain keys stay bytes until somebody looks at them
pairs      when starts and ends are paired; what was no pair
codegen/   the code that adds a hit to a map
session    maps, attached programs, reading; ``results``: rows → named results, in order
output/    tables, histograms, heatmaps, JSON
"""
