"""Calls of functions and pairs of probes as events with a duration.

spec       the spans that a command line asks for
planning   plans and roles of both ends, without the kernel
pairs      the code that pairs a start with its end by a key
session    attached programs, and the spans that have not ended
"""
