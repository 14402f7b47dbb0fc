"""What is left out here unless it is asked for: whatever starts a virtual machine."""

from __future__ import annotations

import os

collect_ignore = [] if os.environ.get("USDT_VM") else ["test_vm.py"]
