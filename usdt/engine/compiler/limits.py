"""Limits of records and of the values in them; defaults of options. This module imports nothing."""

from __future__ import annotations

__all__ = (
    "DEFAULT_BACKLOG",
    "DEFAULT_BUFFER",
    "DEFAULT_STRING",
    "DEFAULT_STRUCT",
    "FIRST_ADDRESS",
    "MAX_FRAMES",
    "MAX_OUTPUTS",
    "MAX_READ",
)

DEFAULT_BACKLOG = 64 << 20  # bytes of records that are copied from the buffer and wait
DEFAULT_BUFFER = 8 << 20  # bytes of the ring buffer
DEFAULT_STRING = 128  # bytes that str() keeps by default
DEFAULT_STRUCT = 4096  # bytes that are kept of a structure by default
FIRST_ADDRESS = 4096  # below it are NULL and offsets from NULL; the lowcore on s390x
MAX_FRAMES = 127  # of a stack: PERF_MAX_STACK_DEPTH, include/uapi/linux/perf_event.h
MAX_OUTPUTS = 64  # values of a record: bits of the bitmap of unreadable values
MAX_READ = 1 << 16  # bytes of one string, buffer or structure
