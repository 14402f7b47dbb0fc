"""Stacks as pictures and profiles: flame graphs, pprof, speedscope. Pages that need no network.

profile     stacks with their weights, from any source
tree        stacks as one tree; colours; the difference of two
flame       a flame graph as a part of a page
page        self-contained HTML pages from parts; escaping
vendored    the JavaScript libraries of ``vendor/``, with versions, licences and hashes

It knows nothing of probes, and imports only ``usdt.base``.
"""
