"""Report pages: events and results of any length → bounded summaries → one HTML page.

summary    events → all that follows, in one pass
timebins   counts by time, in bins whose width grows with the length of the recording
latencies  durations of spans: by time and size, and their percentiles
timeline   the longest spans, by thread, and some of the hits
stacks     stacks of events and results → a flame graph
results    merged results → tables, histograms, rates, heatmaps
texts      texts of traced processes, bounded
page       summaries → the data of the page, and the page
"""
