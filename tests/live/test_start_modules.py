"""What a short trace loads: a start costs mostly imports."""

from __future__ import annotations

import subprocess
import sys

from fixtures import build

PROGRAM = """
import contextlib, io, sys
from usdt.cli import main
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    sys.argv = ["usdt", "trace", "-c", sys.argv[1] + " -n 1", "loop:hit(arg0, arg1 > -1)"]
    main()
print(*sorted(sys.modules))
"""
UNUSED = (
    "dataclasses",
    "elftools",
    "usdt.btf.reader",
    "usdt.cpython.layouts",
    "usdt.dwarf.info",
    "usdt.engine.aggregate",
    "usdt.engine.output.formatters.event",
    "usdt.engine.output.formatters.json",
    "usdt.elf.symbol_tables",
    "usdt.symbolize.symbolizer",
    "usdt.unwind.unwinder",
    "kprobe",
)


def test_a_trace_of_integers_loads_only_what_it_needs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, build("default", "loop")],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "1 event, 0 lost" in done.stderr
    loaded = done.stdout.split()
    assert "usdt.engine.runtime.session" in loaded
    assert [name for name in UNUSED if name in loaded] == []
