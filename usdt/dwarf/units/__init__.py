"""Units of debug information: sections, headers, entries and their attributes.

sections, cache     debug sections, plain or compressed; the cache of decompressed ones
forms, constants    encodings and numbers of the DWARF standard
units, type_units   headers and entries; type units, which others share
split_dwarf         ``.dwo``, ``.dwp`` and dwz files
dies, scopes        entries with references resolved; qualified names
ranges              range lists; a map from addresses to ranges; ``errors``: damaged data
"""
