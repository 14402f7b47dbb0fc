"""Commands that read files and trace nothing: list, info, check, decode and events.

listing, info, check, decode, events   a command each
selection                              the files and USDT probes that arguments select
functions                              the same commands for ``uprobe:`` arguments
"""
