"""Parameters and local variables at places inside functions.

place_variables   what is in scope at a place → arguments
dwarf_locations   DWARF expressions → locations, or expressions that programs compute
"""
