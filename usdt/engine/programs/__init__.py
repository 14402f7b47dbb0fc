"""Programs in bpftrace's language.

syntax/    text → tree
check/     tree → typed program: names, types, formats
codegen/   typed program → instructions
included/  what a program takes from other files
output/    what a program prints, and what its events do
prepared   the text of a program → its parts; ``probes``: its attach points
session    attaches the probes of a program
typed      the typed program; ``types``: the types of values; ``events``: what it sends;
           ``walk``: all nodes of it
definitions  the types that a program defines; ``members``: what structures and arrays hold
"""
