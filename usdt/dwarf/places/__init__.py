"""Places inside functions: source lines, inlined copies of functions, and the variables there.

scopes          address → the functions and blocks that contain it, as a CodePlace
prologues       the instructions at a function's start that store its parameters
source_places   source line → places
inlined         function → the places of its inlined copies
locals          the local variables and parameters of a place, and where each is
location_lists  locations that differ from address to address
"""
