"""Tests that take a minute each are for ``make test-release``, which sets USDT_RELEASE."""

from __future__ import annotations

import os

collect_ignore = [] if os.environ.get("USDT_RELEASE") else ["test_debian.py"]
