"""Kernel probes."""
