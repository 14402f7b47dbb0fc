"""Stacks as pictures and profiles: flame graphs, pprof, speedscope. Pages that need no network.

profile     stacks with their weights, from any source
frames      frames of JSON streams
folded      folded stacks, as text of other tools
tree        stacks as one tree; colours; the difference of two
flame       a flame graph as a part of a page
svg         a flame graph as one SVG file
speedscope  a profile as JSON of speedscope
pprof       a profile as pprof's protobuf
page        self-contained HTML pages from parts; escaping
vendored    the JavaScript libraries of ``vendor/``, with versions, licences and hashes

It knows nothing of probes, and imports only ``usdt.base``.
"""
