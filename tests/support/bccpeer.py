"""Debian's bcc, which lives with Debian's Python: how a Python of ours finds it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from house import ROOT

from usdt import bcc
from usdt.base.errors import TracingError

__all__ = ("DEBIAN", "environment")

DEBIAN = Path("/usr/lib/python3/dist-packages")


def environment() -> dict[str, str]:
    """What a Python of ours needs to find Debian's bcc; a skip where that is not."""
    found = subprocess.run([sys.executable, "-c", "import bcc"], capture_output=True, check=False)
    path = str(ROOT)
    if found.returncode:
        if not (DEBIAN / "bcc").is_dir():
            pytest.skip("needs the Python module bcc: apt-get install python3-bpfcc")
        path += f":{DEBIAN}"
    try:
        bcc.kernel_headers()
    except TracingError:
        pytest.skip("needs kernel headers: apt-get install linux-headers-amd64")
    return {**os.environ, "PYTHONPATH": path}
