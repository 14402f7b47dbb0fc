"""``python -m usdt``: the ``usdt`` command."""

from __future__ import annotations

from usdt.cli import script

if __name__ == "__main__":
    script()
