"""Parameters and local variables at places inside functions.

probe_function    a function, or a place inside one
place_functions   source lines and inlined functions → places
place_variables   what is in scope at a place → arguments
dwarf_locations   DWARF expressions → locations, or expressions that programs compute
"""
