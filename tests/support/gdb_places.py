"""Where gdb sets breakpoints on source lines, and what it knows there; for tests of places."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

from skips import need_program

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ("breakpoints", "function_breakpoints", "values")

_SCRIPT = r"""
import json
found = {}
gdb.execute("set breakpoint pending off")
for line in range(1, LINES + 1):
    try:
        point = gdb.Breakpoint("%s:%d" % (SOURCE, line))
    except gdb.error:
        continue
    here = [one.address for one in point.locations]
    lines = {gdb.find_pc_line(one).line for one in here}
    found[line] = [sorted(here), sorted(lines)]
    point.delete()
print("RESULT" + json.dumps(found))
"""

_VALUES = r"""
import json
found = []
for line, _ in MARKS:
    gdb.Breakpoint("%s:%d" % (SOURCE, line))
items = dict(MARKS)
gdb.execute("run > /dev/null")
for _ in range(1000):
    if not gdb.selected_inferior().pid:
        break
    pc = gdb.selected_frame().pc()
    line = gdb.find_pc_line(pc).line
    values = {}
    for item in items.get(line, ()):
        try:
            values[item] = int(gdb.parse_and_eval(item))
        except (gdb.error, ValueError):
            pass
    found.append([line, values])
    gdb.execute("continue")
print("RESULT" + json.dumps(found))
"""


def values(
    program: Path, source: str, marks: Sequence[tuple[int, list[str]]]
) -> list[tuple[int, dict[str, int]]]:
    """The line of each stop, and those of its items that are numbers which gdb can read."""
    text = _VALUES.replace("MARKS", repr([(line, items) for line, items in marks]))
    return [(line, read) for line, read in _run(program, text.replace("SOURCE", repr(source)))]


def breakpoints(program: Path, source: str, lines: int) -> dict[int, tuple[list[int], list[int]]]:
    """The addresses of a breakpoint on each line, and the lines to which these belong."""
    text = _SCRIPT.replace("LINES", str(lines)).replace("SOURCE", repr(source))
    return {int(number): (places, at) for number, (places, at) in _run(program, text).items()}


_FUNCTIONS = r"""
import json
found = {}
for name in NAMES:
    point = gdb.Breakpoint(name)
    found[name] = sorted(one.address for one in point.locations)
print("RESULT" + json.dumps(found))
"""


def function_breakpoints(program: Path, names: Sequence[str]) -> dict[str, list[int]]:
    """The addresses of a breakpoint on each function, inlined copies included."""
    found: dict[str, list[int]] = _run(program, _FUNCTIONS.replace("NAMES", repr(list(names))))
    return found


def _run(program: Path, text: str) -> Any:
    gdb = need_program("gdb")
    script = program.with_name("script.py")
    script.write_text(text)
    words = ["-batch", "-nx", "-iex", "set debuginfod enabled off", "-x", str(script)]
    done = subprocess.run(
        [gdb, *words, str(program)], capture_output=True, text=True, check=True, timeout=300
    )
    lines = [one for one in done.stdout.splitlines() if one.startswith("RESULT")]
    assert lines, done.stdout + done.stderr
    return json.loads(lines[0].removeprefix("RESULT"))
