"""The interface of ``top``, drawn by Textual (extra ``tui``): a table of probes, and keys.

app          keys, readings, what is shown
probe_list   the table, of which one probe is chosen
detail_page  one probe, in views that are attached while they are open
dialogs      pages above the others: help, command lines

What comes from traced processes is shown as it is, without markup, by the functions of
``usdt/engine/top/text.py``, which escape control characters.
"""
