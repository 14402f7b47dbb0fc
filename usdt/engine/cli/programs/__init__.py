"""Commands that run programs in bpftrace's language: :mod:`.run`."""
