"""numpy, an extra: imported once there are records enough to be worth it.

Its import takes as long as some hundred thousand records without it, so it waits for these.
"""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module
from typing import Any

__all__ = ("import_numpy", "numpy_after")

_MANY = 200_000  # records; numpy saves as much on some more as its import takes
_THREADS = "OPENBLAS_NUM_THREADS"


class _State:
    # numpy, once it was imported, and the records until then; it is None if it is not installed.
    def __init__(self) -> None:
        self.left = _MANY
        self.module: Any = None


_STATE = _State()


def import_numpy() -> Any:
    """Import numpy now, without threads for linear algebra; return None if it is not installed."""
    if _STATE.left > 0 or _STATE.module is None:
        _STATE.left = 0
        before = os.environ.get(_THREADS)
        os.environ[_THREADS] = "1"
        with suppress(ImportError):
            _STATE.module = import_module("numpy")
        del os.environ[_THREADS]
        if before is not None:
            os.environ[_THREADS] = before
    return _STATE.module


def numpy_after(records: int) -> Any:
    """Count records that went without numpy. Return it once it is worth its import, or None."""
    if _STATE.left <= 0:
        return _STATE.module
    _STATE.left -= records
    return None if _STATE.left > 0 else import_numpy()
