"""Programs attached, records taken.

attach/            programs loaded and linked, newest kernel interface first
session            attaches, polls, counts what is lost
ringbuf_reader     a thread that empties the ring buffer; ``poller``: what waits
follow             the set of followed tasks
call_chain         functions called within one another, in order
tracefs_backend/   the same sessions without BPF
"""
