"""The commands that usdt and kprobe share.

click_group     groups that import commands on demand; errors, exit codes, messages options
options as decorators, and the records they are parsed into commands        definitions of trace,
count, hist, stats, latency and heatmap for both groups running         one run of a command:
attach, loop, closing line trace, aggregating, record, report   implementations of these commands
"""
