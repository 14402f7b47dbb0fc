"""What choosing hits by cgroup costs: a hit that counts, and one that the kernel leaves out.

The difference is some nanoseconds, so that runs are short and many: few of them are interrupted.
"""

from __future__ import annotations

import contextlib
import statistics
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    Watch = Callable[[Any], AbstractContextManager[Any]]

__all__ = ("cgroups",)

_PROBE = "loop:hit"
_WITHOUT, _INSIDE, _OUTSIDE = "-p", "-p --cgroup, in it", "-p --cgroup, in another one"


def cgroups(
    hits: int,
    rounds: int,
    one_run: Callable[[Watch, int], tuple[float, Any]],
    counting: Callable[..., Watch],
) -> None:
    """Measure a counted hit without a cgroup, in it and in another one, and print the medians.

    Args:
        hits: of one run.
        rounds: runs of each.
        one_run: runs a fresh program with one tracer; returns nanoseconds per hit.
        counting: makes a tracer that counts, of words.
    """
    from usdt.base.errors import TargetError  # noqa: PLC0415 - --help does not pay for it

    try:
        with _cgroup() as chosen, _cgroup() as other:
            places = {_WITHOUT: None, _INSIDE: chosen, _OUTSIDE: other}
            found: dict[str, list[float]] = {name: [] for name in places}
            for _ in range(rounds):
                for name, place in places.items():
                    option = () if place is None else ("--cgroup", str(chosen))
                    watch = _in_cgroup(place, counting("count", "--json", *option, _PROBE))
                    found[name].append(one_run(watch, hits)[0])
    except TargetError as err:
        print(f"hits by cgroup: not measured: {err}")
        return
    print(f"hits by cgroup: usdt count, {hits:,} hits, median (range) of {rounds} rounds")
    floor = statistics.median(found[_WITHOUT])
    for name, each in found.items():
        median = statistics.median(each)
        spread = f"({min(each):.1f}–{max(each):.1f})"
        print(f"  {name:28} {median:9.1f} ns {spread:19} {median - floor:+7.1f} ns")


def _in_cgroup(place: Path | None, watch: Watch) -> Watch:
    # Moves the program into a cgroup before it is traced.
    @contextlib.contextmanager
    def run(loop: Any) -> Iterator[Any]:
        if place is not None:
            (place / "cgroup.procs").write_text(str(loop.process.pid))
        with watch(loop) as outcome:
            yield outcome

    return run


@contextlib.contextmanager
def _cgroup() -> Iterator[Path]:
    # A new cgroup; the programs in it have ended before it is removed.
    from usdt.cgroups.hierarchy import mounted_hierarchy  # noqa: PLC0415 - --help does not pay

    place = Path(mounted_hierarchy().mount) / f"usdt-bench-{uuid.uuid4().hex[:8]}"
    place.mkdir()
    try:
        yield place
    finally:
        place.rmdir()
