"""Perf events: :mod:`.counters` run programs, :mod:`.sideband` reports what processes do."""
