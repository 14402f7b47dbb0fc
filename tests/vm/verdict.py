"""What a run in a guest means: troubles of the harness, features, failures. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from vm.matrix import FEATURES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vm.machine import Run
    from vm.matrix import Cell

__all__ = ("failures", "features_that_differ", "summary", "trouble")

_SHOWN = 40  # failures in full; all are named


def summary(found: Run) -> str:
    """One line about a run, and one for each reason to skip."""
    counts = Counter(result["outcome"] for result in found.of("test"))
    release = [result["release"] for result in found.of("start")]
    again = "; hung at boot, second try" if found.retried else ""
    what = ", ".join(f"{number} {outcome}" for outcome, number in sorted(counts.items()))
    skips = Counter(r["why"] for r in found.of("test") if r["outcome"] == "skipped")
    lines = [f"    {number} skipped: {why}" for why, number in skips.most_common()]
    first = f"{' '.join(release) or 'no kernel'}: {what or 'no tests'} in {found.seconds:.0f} s"
    return "\n".join([first + again, *lines])


def trouble(found: Run) -> list[str]:
    """What went wrong beside the tests."""
    wrong = [f"{found.problem}; the end of the console:", *found.console[-15:]]
    wrong = wrong if found.problem else []
    wrong += [
        f"the kernel says: {end['complaints']}" for end in found.of("end") if end["complaints"]
    ]
    if not wrong and not [r for r in found.of("test") if r["outcome"] == "passed"]:
        wrong.append("no test passed in the guest")
    return wrong


def features_that_differ(cell: Cell, found: Run) -> list[str]:
    """Where the toolkit's feature probes and the matrix do not agree."""
    return [
        f"feature {name}: the matrix says {name in cell.offers}, the toolkit {answer}"
        for start in found.of("start")
        for name, answer in start["features"].items()
        if answer is not (name in cell.offers)
    ]


def failures(cell: Cell, found: Run) -> list[str]:
    """Tests that failed, or skipped for want of a feature that the kernel has: all names first."""
    wrong = [
        (result["test"], result["why"] if result["outcome"] == "failed" else f"skipped: {lacking}")
        for result in found.of("test")
        if (lacking := _contradicted(cell, result)) or result["outcome"] == "failed"
    ]
    names = [f"FAILED {cell.name} {test}" for test, _ in wrong]
    return names + [f"\n--- {test}\n{why}" for test, why in wrong[:_SHOWN]]


def _contradicted(cell: Cell, result: Mapping[str, str]) -> str:
    """The reason of a skip that names a feature which the matrix says the kernel has, or ""."""
    if result["outcome"] != "skipped":
        return ""
    words = (word for name in cell.offers for word in FEATURES[name])
    return result["why"] if any(word in result["why"] for word in words) else ""
