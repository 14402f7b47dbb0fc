"""Measure what debug information costs: a function and its types out of large debug files.

``debug_files()`` prints, for each of some Debian packages of debug symbols, the time and the memory
of a whole process that asks for one function's prototype and its parameters' types, of one that
also asks for a variable at this function, which may not exist, and of one that asks for a type by
name: first with an empty cache, then again.
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

#: Names of variables at the function; most files have none of the last two.
VARIABLES = ("environ", "_cause", "size")

ASK = """
import sys
from pathlib import Path
from usdt.dwarf.info import DebugInfo
from usdt.elf.file import ElfFile
with ElfFile(sys.argv[1]) as elf, DebugInfo.of(elf) as info:
    if sys.argv[3]:
        found = info.function(int(sys.argv[2]), sys.argv[3])
        wanted = [one.type_id for one in found.parameters]
        for name in sys.argv[4:]:
            info.variable(name, int(sys.argv[2]))
    else:
        wanted = [info.type_id(sys.argv[2])]
    sizes = [info.btf.size_of(one) for one in wanted]
status = Path("/proc/self/status").read_text()
# Not ru_maxrss, which begins with that of the process that started this one.
print(sizes, status.partition("VmHWM:")[2].split()[0])
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


def ask(path: Path, words: tuple[str, ...], cache: str) -> tuple[float, float, int]:
    """Return wall clock seconds, CPU seconds and MiB of one process.

    Args:
        path: the debug file.
        words: a function's address, its symbol and variables; or a type's name, and "".
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
        function = (str(address), symbol)
        variables = [(*function, one) for one in VARIABLES]
        for words in (function, *variables, *((one, "") for one in types)):
            _compare(path, words, rounds)


def _compare(path: Path, words: tuple[str, ...], rounds: int) -> None:
    with tempfile.TemporaryDirectory() as cache:
        first = ask(path, words, cache)
        later = [ask(path, words, cache) for _ in range(rounds)]
    wall, cpu, size = (statistics.median(column) for column in zip(*later, strict=True))
    shown = words[1][:20] + "".join(f"({one})" for one in words[2:]) or words[0]
    print(
        f"    {shown:28} first {first[0]:5.2f} s"
        f" ({first[1]:.2f} s CPU, {first[2]} MiB), later {wall:.2f} s"
        f" ({cpu:.2f} s CPU, {size:.0f} MiB)"
    )


if __name__ == "__main__":
    debug_files()
