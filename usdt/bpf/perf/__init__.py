"""Perf events: :mod:`.counters` and :mod:`.breakpoints` run programs, :mod:`.sideband` reports."""
