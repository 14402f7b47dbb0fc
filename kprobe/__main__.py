"""``python -m kprobe``: the ``kprobe`` command."""

from __future__ import annotations

from kprobe.cli import script

if __name__ == "__main__":
    script()
