"""Answers of several machines or runs as one: merged exactly, as if one machine had seen it all.

merge      the incremental merge: lines of streams → results and losses
source     where lines come from: name, line, host, clock, problems
numbers    the numbers of a result: JSON → sums → a value
keys       the keys of results: JSON → identity → text
output     merged results → text and JSON, by the formatters of live commands
inputs     files of any kind → results in a merge, and events
streams    files and pipes → bounded lines
events     events of several streams, in the order of CLOCK_REALTIME; event_text: as text
"""
