"""What is left out here unless it is asked for: whatever starts a virtual machine."""

from __future__ import annotations

import os

from vm.report import pytest_sessionfinish, pytest_terminal_summary

__all__ = ("collect_ignore", "pytest_sessionfinish", "pytest_terminal_summary")

collect_ignore = [] if os.environ.get("USDT_VM") else ["test_vm.py"]
