"""Formatters: records as human-readable text, JSON lines or Python events.

formatter           the protocol, and helpers that all formatters share
text, json, event   the formatters; ``structures``: values of structure types
event_records       what ``event`` makes: the events and spans of the Python API
line_template       lines of many records at once; ``array_lines``: by numpy, if they show integers
                    alone; ``block_parts``, ``time_digits``, ``value_memory``: what it needs

A formatter returns the *source* of the expression that makes the result for one record;
:mod:`usdt.engine.output.decode` compiles it. A line is one f-string around the expressions of the
values.
"""
