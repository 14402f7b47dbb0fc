"""How long tests wait for what must come; ``USDT_PATIENCE`` times that where a CPU is emulated."""

from __future__ import annotations

import os

__all__ = ("patient",)

_FACTOR = float(os.environ.get("USDT_PATIENCE", "1"))


def patient(seconds: float) -> float:
    """So many seconds on a usual machine."""
    return seconds * _FACTOR
