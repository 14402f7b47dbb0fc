"""The commands that usdt and kprobe share.

click_group     groups that import commands when they run; errors, exit codes, messages
options         options as decorators, and the records they parse to
commands        trace, count, hist, stats, latency and heatmap, for both groups
running         one run: attach, loop, closing line
trace, aggregating, record, report   what these commands do
"""
