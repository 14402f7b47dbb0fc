"""The Python interface of usdt and kprobe.

sessions     ``Session``: several probes, callbacks and aggregates
attach       attach probes and return their events
events       ``Events``: the events of attached probes; ``stream``: what it is made of
programs     ``run``: programs in bpftrace's language, what they print and their maps
listeners    callbacks of a ``Session``: one ordered stream
aggregates   ``Aggregate``: a kernel aggregate as a mapping
"""
