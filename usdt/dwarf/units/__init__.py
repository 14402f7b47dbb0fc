"""Units of debug information: sections, headers, entries and their attributes.

sections, cache     debug sections, plain or compressed; what is kept of them
forms, constants    encodings and numbers of the DWARF standard
units, type_units   headers and entries; units that others share
split_dwarf         ``.dwo``, ``.dwp`` and dwz files
dies, scopes        entries as types and functions need them; qualified names
ranges              range lists, and which range contains an address
"""
