"""Units of debug information: sections, headers, entries and their attributes.

sections            debug sections, plain or compressed
inflating, cache    decompressing as far as needed; the cache of decompressed sections
answers             what earlier runs were told about a file, in the cache
forms, constants    encodings and numbers of the DWARF standard
units, type_units   headers and entries; type units, which others share
split_dwarf         ``.dwo``, ``.dwp`` and dwz files
dies, scopes        entries with references resolved; qualified names
ranges              range lists; a map from addresses to ranges; ``errors``: damaged data
"""
