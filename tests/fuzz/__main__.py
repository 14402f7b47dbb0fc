"""Fuzz the parsers of everything that comes from outside: ``python -m fuzz [TARGET…]``.

Mutants come from a seeded generator, so a run is repeated by its seed. What breaks a promise is
written to tests/corpus/, where a test runs it from then on.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from harness import Capture, limit_memory, watch
from mutate import mutate
from targets import TARGETS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness import Finding
    from targets import Target

CORPUS = Path(__file__).resolve().parents[1] / "corpus"
_REPAIRED = 0.7  # of the mutants of a format with checksums


class Campaign:
    """The mutants of one target.

    Args:
        name: the target.
        seed: of the generator.
    """

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.target: Target = TARGETS[name]
        self.mutants = 0
        self.findings: dict[str, tuple[Finding, bytes]] = {}
        self._rng = random.Random(f"{name} {seed}")
        self._seeds = [*self.target.seeds()]

    def run(self, capture: Capture, seconds: float, most: int | None) -> None:
        """Run mutants until the time is over, but at least one, or this many of them."""
        end = time.monotonic() + seconds
        run = partial(self.target.run, capture)
        for seed in self._seeds:
            self._check(run, seed)
        while (not self.mutants or time.monotonic() < end) and (
            most is None or self.mutants < most
        ):
            self.mutants += 1
            self._check(run, self._mutant())

    def _check(self, run: partial[None], data: bytes) -> None:
        found = watch(run, data)
        if found is not None:
            self.findings.setdefault(_signature(found), (found, data))

    def _mutant(self) -> bytes:
        seed = self._rng.choice(self._seeds)
        if self.target.ranges is not None:
            start, end = self._rng.choice(self.target.ranges(seed))
            part = mutate(self._rng, seed[start:end], self._seeds)
            part = part[: end - start].ljust(end - start, b"\0")
            return seed[:start] + part + seed[end:]
        mutant = mutate(self._rng, seed, self._seeds)
        if self.target.repair is not None and self._rng.random() < _REPAIRED:
            return self.target.repair(mutant)
        return mutant


def _signature(finding: Finding) -> str:
    # Findings of one kind that come from one place are one finding.
    lines = [line.strip() for line in finding.detail.splitlines() if 'File "' in line]
    return f"{finding.kind} {lines[-1] if lines else finding.detail[:80]}"


def keep(name: str, data: bytes) -> Path:
    """Write an input to the corpus; return its path."""
    folder = CORPUS / name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / hashlib.sha256(data).hexdigest()[:16]
    path.write_bytes(data)
    return path


def _replay() -> int:
    # Runs each input of the corpus; returns 1 if one still breaks a promise.
    failed, number = False, 0
    with Capture() as capture:
        for path in sorted(CORPUS.glob("*/*")):
            number += 1
            found = watch(partial(TARGETS[path.parent.name].run, capture), path.read_bytes())
            if found is not None:
                failed = True
                print(f"{path}: {found.kind}\n{found.detail}", file=sys.stderr)
    print(f"{number} inputs")
    return int(failed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaigns; return 1 if there are findings."""
    parser = argparse.ArgumentParser(prog="fuzz", description="Fuzz what reads bytes from outside.")
    parser.add_argument("targets", nargs="*", choices=[[], *TARGETS], metavar="TARGET")
    parser.add_argument("--seconds", type=float, default=60, help="time for all targets together")
    parser.add_argument("--mutants", type=int, help="stop each target after this many mutants")
    parser.add_argument("--seed", type=int, default=0, help="seed of the mutations")
    parser.add_argument("--corpus", action="store_true", help="run tests/corpus/ and no mutants")
    options = parser.parse_args(arguments)
    os.environ["XDG_CACHE_HOME"] = "/dev/null/none"  # no cache: each mutant is read anew
    limit_memory()
    if options.corpus:
        return _replay()
    names = options.targets or [*TARGETS]
    failed = False
    for name in names:
        campaign = Campaign(name, options.seed)
        began = time.monotonic()
        with Capture() as capture:
            campaign.run(capture, options.seconds / len(names), options.mutants)
        spent = time.monotonic() - began
        number = len(campaign.findings)
        print(f"{name}: {campaign.mutants} mutants in {spent:.1f} s, {number} findings", flush=True)
        for finding, data in campaign.findings.values():
            failed = True
            print(f"  {finding.kind}: {keep(name, data)}\n{finding.detail}", file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
