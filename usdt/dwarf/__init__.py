"""Debug information: functions, parameters, types and source lines of programs, DWARF 2 to 5.

info    DebugInfo: functions, types and variables of one program; ``variables``: by name
        function_search, variable_search: without the index; variable_types: types of a kernel's
        variables, for the engine's registry
lines   addresses → source lines and inlined functions
types   entries → BTF types, prototypes
index   functions by address and types by name, cached
units   sections, units, entries and attributes

Units are read on demand: only those with functions and types that are used.
"""
