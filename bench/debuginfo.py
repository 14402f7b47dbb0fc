"""Measure what debug information costs: a function and its types out of large debug files.

``debug_files()`` prints, for each of some Debian packages of debug symbols, the time and the memory
of a whole process that asks for one function's prototype and its parameters' types, and of one that
asks for a type by name: first with an empty cache, then again.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

#: Package, and a function and types of its largest debug file.
PACKAGES = (
    ("libc6-dbg", "malloc", "struct malloc_state"),
    ("python3.11-dbg", "PyObject_Call", "PyObject"),
    ("ceph-mon-dbg", "_ZN7Monitor14handle_commandE13boost13intrusive", "Monitor"),
    ("openjdk-17-dbg", "JVM_GC", "JavaThread", "GCCause::Cause"),
)

ASK = """
import resource, sys, time
began = time.perf_counter()
from usdt.dwarf.info import DebugInfo
from usdt.elf.file import ElfFile
with ElfFile(sys.argv[1]) as elf, DebugInfo.of(elf) as info:
    if sys.argv[3]:
        found = info.function(int(sys.argv[2]), sys.argv[3])
        wanted = [one.type_id for one in found.parameters]
    else:
        wanted = [info.type_id(sys.argv[2])]
    sizes = [info.btf.size_of(one) for one in wanted]
print(sizes, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, sep="\\n")
"""


def largest(folder: Path) -> Path:
    """Return the largest file below a folder."""
    return max(
        (one for one in folder.rglob("*") if one.is_file()), key=lambda one: one.stat().st_size
    )


def address_of(path: Path, name: str) -> tuple[str, int]:
    """Return the first function symbol with a prefix, else the first of all."""
    lines = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in lines.splitlines()]
    functions = [row for row in rows if len(row) == 3 and row[1] == "T"]
    row = next((row for row in functions if row[2].startswith(name)), functions[0])
    return row[2], int(row[0], 16)


def ask(path: Path, words: tuple[str, str], cache: str) -> tuple[float, float, int]:
    """Return wall clock seconds, CPU seconds and MiB of one process.

    Args:
        path: the debug file.
        words: a function's address and symbol; or a type's name, and "".
        cache: the user's directory of caches.
    """
    command = [sys.executable, "-c", ASK, str(path), *words]
    environment = {**os.environ, "XDG_CACHE_HOME": cache}
    before, began = os.times(), os.times().elapsed
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    after = os.times()
    cpu = after.children_user + after.children_system
    cpu -= before.children_user + before.children_system
    return after.elapsed - began, cpu, int(done.stdout.split()[-1]) // 1024


def debug_files(rounds: int = 3) -> None:
    """Measure, and print the results."""
    import debian  # type: ignore[import-not-found]  # noqa: PLC0415 - of the tests
    import pytest  # noqa: PLC0415

    print(f"debug information: a function's prototype, a type; later: median of {rounds}")
    for package, name, *types in PACKAGES:
        try:
            path = largest(debian.files(package) / "usr/lib/debug")
        except pytest.skip.Exception as err:
            print(f"  {package:16} not here: {err}")
            continue
        symbol, address = address_of(path, name)
        print(f"  {package}, {path.stat().st_size >> 20} MiB")
        for words in ((str(address), symbol), *((one, "") for one in types)):
            _compare(path, words, rounds)


def _compare(path: Path, words: tuple[str, str], rounds: int) -> None:
    with tempfile.TemporaryDirectory() as cache:
        first = ask(path, words, cache)
        later = [ask(path, words, cache) for _ in range(rounds)]
    wall, cpu, size = (statistics.median(column) for column in zip(*later, strict=True))
    print(
        f"    {(words[1] or words[0])[:20]:20} first {first[0]:5.2f} s"
        f" ({first[1]:.2f} s CPU, {first[2]} MiB), later {wall:.2f} s"
        f" ({cpu:.2f} s CPU, {size:.0f} MiB)"
    )


if __name__ == "__main__":
    debug_files()
