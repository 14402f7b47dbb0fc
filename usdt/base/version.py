"""The version of this distribution, which pyproject.toml reads from here."""

from __future__ import annotations

__all__ = ("VERSION",)

VERSION = "0.1.0"
