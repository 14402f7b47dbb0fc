"""The rules of the grammar: tokens → nodes.

Each class of parsers builds on the one before, so that rules can use one another without circles.

cursor         where a parser is; errors; limits
types          types as programs name them
primaries      constants, names, calls, tuples, records
expressions    operators, members, casts
statements     statements and blocks
definitions    C's structures, unions, enumerations and typedefs
attach_points  where probes attach, which has tokens of its own
"""
