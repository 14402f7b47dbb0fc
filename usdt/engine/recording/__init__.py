"""Recordings: the ring buffer's bytes in a file that describes itself; see docs/recordings.md."""
