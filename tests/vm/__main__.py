"""One cell by hand: ``python -m vm KERNEL [--cpu CPU] [PYTEST-WORD...]``, a shell without words.

``make vm KERNEL=6.1 TEST='tests/live -k semaphores'`` calls it.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from vm.apt import Unavailable
from vm.job import job
from vm.machine import interactive, need_emulator, run
from vm.matrix import CELLS, cell_named
from vm.supply import SUPPLY
from vm.verdict import features_that_differ, trouble

if TYPE_CHECKING:
    from vm.machine import Run
    from vm.matrix import Cell

__all__ = ("main",)


def main() -> int:
    """Run what the command line says; the exit code."""
    kernels = sorted({cell.kernel for cell in CELLS})
    parser = argparse.ArgumentParser(prog="vm", description=__doc__, allow_abbrev=False)
    parser.add_argument("kernel", help=f"one of {', '.join(kernels)}")
    parser.add_argument("--cpu", default="amd64", help="as Debian calls it (default: amd64)")
    options, words = parser.parse_known_args()
    try:
        cell = cell_named(options.kernel, options.cpu)
        need_emulator(cell)
        made = SUPPLY.image(cell)
        cell = made.cell
        print(
            f"vm: {cell.name}: {''.join(f'{note}; ' for note in made.notes)}Debian's {made.version}"
        )
        if not words:
            return interactive(cell, made, job(cell, made.python, (), shell=True))
        return _summary(cell, run(cell, made, job(cell, made.python, words), _show))
    except (LookupError, Unavailable) as err:
        print(f"vm: {err}", file=sys.stderr)
        return 1


def _show(line: str) -> None:
    if not line.startswith('{"kind": '):
        print(line, flush=True)


def _summary(cell: Cell, found: Run) -> int:
    if found.retried:
        print("vm: it hung at boot, this was the second try")
    for wrong in (*trouble(found), *features_that_differ(cell, found)):
        print(f"vm: {wrong}", file=sys.stderr)
    print(f"vm: {len(found.of('test'))} tests, {found.seconds:.1f} s")
    return 1 if found.problem else int(found.of("end")[0]["code"])


if __name__ == "__main__":
    sys.exit(main())
