"""Code generation: the typed program of one probe → instructions.

action       the program at a hit: takes scratch memory, runs the statements
statements   statements and loops; ``aggregates``: what adds to a map's value
values       values in memory, and the steps of numbers; ``numbers``: expressions;
             ``computed``: numbers from maps and from values in memory; ``strings``
frame        where variables and temporary values are
kernels      what programs need of the kernel; ``names``: those of their maps
"""
