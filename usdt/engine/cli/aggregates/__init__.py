"""The commands that aggregate in the kernel: count, hist, stats, latency and heatmap.

commands       a command line → an aggregation
jobs           a run: read the results, print them
schedule       when they are read
live_display   results that are drawn again and again on a terminal
"""
