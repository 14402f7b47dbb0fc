"""The commands that usdt and kprobe share.

click_group                          groups that import commands on demand; errors, exit codes
options, target_options, aggregate_options
                                     options as decorators; the records they are parsed into
commands                             definitions of trace, count, hist, stats, latency and heatmap
running                              one run of a command: attach, loop, closing line
trace, spans, record, report         implementations of these commands
top                                  options of top
aggregates                           those that aggregate in the kernel
completion                           what shells complete
help                                 topics of ``help``; what ``--version`` prints
"""
