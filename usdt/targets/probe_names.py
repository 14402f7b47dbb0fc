"""Names of probes that begin with a text, for completion in shells."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from usdt.base.errors import TracingError
from usdt.targets.listing_files import find_probes
from usdt.targets.search.target_files import resolve_targets
from usdt.uprobes.functions import FunctionFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ("probe_names",)


def probe_names(kind: str, text: str, targets: Sequence[str], pids: Sequence[int]) -> Iterator[str]:
    """Yield the names, without their kind, that may continue a text.

    Args:
        kind: ``usdt`` or ``uprobe``.
        text: the beginning, ``provider:na`` or ``TARGET:na``.
        targets: files in which probes are searched; none for those of the processes.
        pids: processes whose files are searched.

    Raises:
        TargetError: a file or process does not exist.
    """
    if kind == "uprobe":
        yield from _functions(text, pids)
        return
    if targets or pids:
        for file in find_probes(targets, pids=pids):
            yield from (probe.full_name for probe in file.probes)
    target = text.partition(":")[0]
    if target != text:
        with contextlib.suppress(TracingError):  # no target but a provider
            for file in find_probes([target], pids=pids):
                yield from (f"{target}:{probe.full_name}" for probe in file.probes)


def _functions(text: str, pids: Sequence[int]) -> Iterator[str]:
    target, colon, name = text.rpartition(":")
    if not colon:
        return
    for pid in pids or (None,):
        for file in resolve_targets(target, pid=pid):
            with FunctionFile(file.path, file.open_path) as functions:
                found = functions.find(f"{name}*")
            yield from (f"{target}:{function.name}" for function in found)
