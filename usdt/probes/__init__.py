"""USDT probes: from the notes of an ELF file to the sites that a program attaches to.

notes           bytes of ``.note.stapsdt`` → notes
argspec         argument specs → operands
probe           notes → probes and their sites
matching        patterns → probes; the nearest name of a mistake
nops            what lies at a site that has not been hit
sites           operands → arguments; sites → attach points
program_names   types and variables of the program, for items
uprobe_events   probes and functions as definitions for tracefs
"""
