"""Addresses of processes → demangled names, by symbol tables, debug files, JIT maps and the vDSO.

symbolizer      addresses of processes → frames; snapshots for recordings
process_maps    one process: its mappings, the mapped files, its JIT map
maps_history    the current and earlier mappings of one process
mmap_tracker    the mappings of all processes, as the kernel reports them
file_cache      every mapped file, opened once
sources         files by build ID, from other directories and from servers
file_symbols    symbols and source lines of one file
perfmap         the perf maps that JIT compilers write to /tmp/perf-PID.map
python_stacks   Python processes and the names of their frames; ``python_process``: one of them;
                ``python_snapshots``: code objects in recordings
"""

from __future__ import annotations

from usdt.demangle.demangle import demangle
from usdt.symbolize.file_symbols import FileSymbols
from usdt.symbolize.symbolizer import Symbolizer

__all__ = ("FileSymbols", "Symbolizer", "demangle")
