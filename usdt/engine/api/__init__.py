"""The Python interface of usdt and kprobe.

sessions     ``Session``: several probes, callbacks and aggregates
attach       attach probes and return their events
events       ``Events``: the events of attached probes
aggregates   ``Aggregate``: a kernel aggregate as a mapping
"""
