"""Files and probes that arguments of ``list``, ``info``, ``check`` and ``events`` select."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from usdt.base.errors import ProbeNotFound, TargetError
from usdt.base.frozen import frozen
from usdt.base.terminal import progress
from usdt.probes.matching import closest_match, matching
from usdt.targets.listing_files import find_probes, split_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from usdt.engine.language.tree import ProbeText
    from usdt.probes.probe import FileProbes, Probe
    from usdt.runtimes.quirks import Quirk

__all__ = ("ListArguments", "quirks_json", "select", "split_arguments")


@frozen
class ListArguments:
    """Arguments of the commands that read files.

    Attributes:
        targets: files, libraries and programs.
        patterns: USDT probes.
        functions: ``uprobe:[TARGET:]FUNCTION``.
    """

    targets: list[str]
    patterns: list[str]
    functions: list[str]

    @property
    def only_functions(self) -> bool:
        """Whether no USDT probes are wanted: the targets are those of functions."""
        return bool(self.functions) and not self.patterns


def split_arguments(words: Sequence[str]) -> ListArguments:
    """Split arguments into targets, USDT probes and functions."""
    functions = [word for word in words if ":" in word and _is_function(word)]
    targets, patterns = split_words([word for word in words if word not in functions])
    return ListArguments(targets, patterns, functions)


def select(
    arguments: ListArguments, pids: Sequence[int], *, all_processes: bool = False
) -> Iterator[tuple[FileProbes, list[Probe]]]:
    """Yield files with those of their probes that match the arguments.

    Raises:
        TargetError: there is no target.
        ProbeNotFound: nothing matches; the message names the most similar probe.
    """
    requests = [_parsed(pattern) for pattern in arguments.patterns]
    targets = arguments.targets + [one.path for one in requests if one.path is not None]
    if not targets and not pids and not all_processes:
        raise TargetError(
            "no target: give a file, a library or -p PID; usdt list -a searches all processes"
        )
    searched: list[FileProbes] = []
    matched = False
    for file in find_probes(list(dict.fromkeys(targets)), pids=pids, everything=all_processes):
        searched.append(file)
        if requests:
            probes = list(dict.fromkeys(p for r in requests for p in matching(r, file.probes)))
        else:
            probes = list(file.probes)
        if probes or (file.warnings and not requests):
            matched = matched or bool(probes)
            progress.clear()  # the command writes now
            yield file, probes
    if not matched:
        raise _not_found(targets, pids, searched, arguments.patterns)


def _is_function(word: str) -> bool:
    from usdt.engine.language import written_kind  # noqa: PLC0415 - files need no language

    return written_kind(word) == "uprobe"


def _parsed(pattern: str) -> ProbeText:
    from usdt.engine.language import parse_probe  # noqa: PLC0415 - as above

    return parse_probe(pattern)


def quirks_json(probe: Probe, quirks: Sequence[Quirk]) -> dict[str, Any]:
    """Return what quirks add to the JSON object of a probe."""
    found = [quirk.to_json() for quirk in quirks if probe.full_name in quirk.probes]
    return {"quirks": found} if found else {}


def _not_found(
    targets: Sequence[str],
    pids: Sequence[int],
    files: Sequence[FileProbes],
    patterns: Sequence[str],
) -> ProbeNotFound:
    where, words = "all processes", "-a"
    if targets:
        where = ", ".join(file.path for file in files)
        words = " ".join(file.path for file in files)
    elif pids:
        where = f"process {', '.join(map(str, pids))}"
        words = " ".join(f"-p {pid}" for pid in pids)
    names = [probe.full_name for file in files for probe in file.probes]
    if not names:
        wanted = "uprobe:*" if targets else "uprobe:libc:*"
        hint = f"; list functions with: usdt list {words} '{wanted}'" if targets or pids else ""
        return ProbeNotFound(f"{where}: no USDT probes{hint}")
    request = _parsed(patterns[0])
    wanted = f"{request.provider}:{request.name}"
    nearest = closest_match(wanted, names)
    hint = f"; nearest is {nearest}" if nearest else f" among {len(names)}"
    return ProbeNotFound(f"{where}: no probe {wanted}{hint} (list them with: usdt list {words})")
