"""Debian's bcc, which lives with Debian's Python: how a Python of ours finds it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import debian
import pytest
from house import ROOT
from tracing_tools import Tool, until

from usdt import bcc
from usdt.base.errors import TracingError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("DEBIAN", "environment", "running_tool")

# Runs a tool of bcc's with flags that find kernel headers which are not those of this kernel.
_RUN = """
import os, runpy, sys, bcc
from usdt.bcc import kernel_headers
source, flags = kernel_headers()
if source:
    os.environ["BCC_KERNEL_SOURCE"] = source
made = bcc.BPF.__init__
bcc.BPF.__init__ = lambda self, *words, cflags=(), **more: made(
    self, *words, cflags=[*cflags, *flags], **more
)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""

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


@contextlib.contextmanager
def running_tool(name: str, ready: str, *words: object) -> Iterator[Tool]:
    """A tool of Debian's package bpfcc-tools, once it has written a line that begins with ready.

    Clang compiles its program, which takes seconds.
    """
    path = f"PYTHONPATH={environment()['PYTHONPATH']}"
    folder = debian.files("bpfcc-tools") / "usr/sbin"
    python = (sys.executable, "-u", "-W", "ignore", "-c", _RUN)
    with Tool(folder / name, *words, before=("env", path, *python[:-1]), command=_RUN) as tool:
        until(lambda: any(line.startswith(ready) for line in tool.lines) or tool.code, f"{name}")
        assert tool.code is None, tool.errors[-3:]
        yield tool
