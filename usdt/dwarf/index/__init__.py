"""An index of functions by address, types and variables by name, built once and cached.

files             the files that contain the debug information of one ELF file
abbrev_skim       abbreviation tables prepared for skipping entries quickly
indexer           one pass over a unit
index             the result, cached
unit_functions    functions by address without the index: only their unit is read
type_search       types by name without the index: their bytes are searched
name_bytes        the bytes of names in strings and entries, for such a search
similar_types     the type that a misspelled name probably means, without the index
class_units       C++ classes by their symbols, which lead to the unit
name_tables       units by name in gdb_index and debug_names, which linkers and debuggers write
nested_functions  functions inside functions, which the index omits
"""
