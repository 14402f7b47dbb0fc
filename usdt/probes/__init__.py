"""USDT probes: from the notes of an ELF file to sites that a program attaches to.

notes           bytes of ``.note.stapsdt`` → notes
argspec         argument strings → operands
probe           notes → probes and their sites
sites           operands → arguments; sites → attach points
uprobe_events   probes as definitions for tracefs
"""
