"""The Python interface of usdt and kprobe: events, sessions, aggregates as mappings."""
