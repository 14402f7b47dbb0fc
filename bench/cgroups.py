"""What choosing hits by cgroup costs: a hit that counts, and one that the kernel leaves out.

The difference is some nanoseconds, so that the three fire in turn, in short parts.
"""

from __future__ import annotations

import contextlib
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loop import race

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from loop import Loop, Watch

__all__ = ("cgroups",)

_PROBE = "loop:hit"
_WITHOUT, _INSIDE, _OUTSIDE = "-p", "-p --cgroup, in it", "-p --cgroup, in another one"


def cgroups(hits: int, rounds: int, counting: Callable[..., Watch]) -> None:
    """Measure a counted hit without a cgroup, in it and in another one, and print the medians.

    Args:
        hits: of one round.
        rounds: how often all of it starts anew.
        counting: makes a tracer that counts, of words.
    """
    from usdt.base.errors import TargetError  # noqa: PLC0415 - --help does not pay for it

    try:
        with _cgroup() as chosen, _cgroup() as other:
            places = {_WITHOUT: None, _INSIDE: chosen, _OUTSIDE: other}
            watches: dict[str, Watch | None] = {}
            for name, place in places.items():
                option = () if place is None else ("--cgroup", str(chosen))
                watches[name] = _in_cgroup(place, counting("count", "--json", *option, _PROBE))
            found = race(watches, hits, rounds)
    except TargetError as err:
        print(f"hits by cgroup: not measured: {err}")
        return
    print(f"hits by cgroup: usdt count, {hits:,} hits in turn, medians of {rounds} rounds")
    for name, each in found.items():
        more = each.above(found[_WITHOUT])
        print(f"  {name:28} {each.median:9.1f} ns {each.spread:19} {more:+7.1f} ns")


def _in_cgroup(place: Path | None, watch: Watch) -> Watch:
    # Moves the program into a cgroup before it is traced.
    @contextlib.contextmanager
    def run(loop: Loop) -> Iterator[Any]:
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
