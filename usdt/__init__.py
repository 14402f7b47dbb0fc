"""USDT probes and uprobes."""
