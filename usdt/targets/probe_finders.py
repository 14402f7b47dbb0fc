"""Finders of requested probes in files: one for USDT probes, one for functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.errors import ProbeNotFound
from usdt.base.frozen import frozen
from usdt.base.text import closest
from usdt.probes.sites import (
    attachable,
    closest_match,
    declared_arguments,
    is_typo_of,
    matching,
    missing_probe,
)
from usdt.procfs.process import describe_process

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.base.errors import TracingError
    from usdt.engine.language.tree import Item, ProbeText
    from usdt.engine.runtime.attach.attach_points import AttachPoint
    from usdt.engine.runtime.session import BpfSession
    from usdt.targets.traced_files import KnownFiles, TracedFile

__all__ = ("FoundPoints", "FunctionFinder", "ProbeFinder", "UsdtFinder", "finder_of")


@frozen
class FoundPoints:
    """What a finder has found in a file.

    ``refused`` are the errors of sites that cannot be traced; ``declared`` is the maximum number of
    numbered arguments at any site.
    """

    points: Sequence[AttachPoint] = ()
    refused: Sequence[TracingError] = ()
    declared: int = 0


class UsdtFinder:
    """The finder of a USDT probe, or of several that a pattern matches.

    Attributes:
        text: the parsed probe.
        found: True once a file has the probe.
        notes: messages for ``-v``.
    """

    notes = ()

    def __init__(self, text: ProbeText, keys: Sequence[Item], files: KnownFiles) -> None:
        self.text = text
        self.found = False
        self._items = (*text.items, *keys)
        self._files = files
        self._name = f"{text.provider}:{text.name}"

    def read(self, file: TracedFile) -> None:
        """Read the probes of a file that the probe names.

        Raises:
            ElfError: the file is not an ELF file.
            TargetError: the file cannot be read.
        """
        self._files.probes(file, named=True)

    def expect(self, files: Sequence[TracedFile], pids: Sequence[int], *, more: bool) -> str:
        """Set ``found`` if a file has the probe; else return a message that it may come later.

        Args:
            files: the files known so far.
            pids: the traced processes; empty for all.
            more: True if processes may map more files. A misspelt name is not waited for.

        Raises:
            ProbeNotFound: no file has the probe, and none that may have it will come.
        """
        if any(matching(self.text, self._files.probes(file)) for file in files):
            self.found = True
            return ""
        names = list(
            dict.fromkeys(probe.full_name for file in files for probe in self._files.probes(file))
        )
        near = closest_match(self._name, names) if more else None
        if more and not (near and is_typo_of(near, self._name)):
            waiting = (
                f"no probe {self._name} in process {pids[0]} yet: waiting for a library with it"
            )
            near = closest(self._name, names)
            return f"{waiting}; did you mean {near}?" if near else waiting
        if files and self.text.path is not None:
            where = what = files[0].path
        elif pids:
            where, what = describe_process(pids[0]), f"-p {pids[0]}"
        else:
            where, what = "all processes", "-a"
        hint = f" (list them with: usdt list {what})" if names else ""
        raise ProbeNotFound(missing_probe(where, self._name, names) + hint)

    def find(self, file: TracedFile, session: BpfSession) -> FoundPoints:  # noqa: ARG002
        """Return the attach points in a file; none if it does not have the probe."""
        probes = matching(self.text, self._files.probes(file))
        if not probes:
            return FoundPoints()
        self.found = True
        points, refused = attachable(probes, file.path, file.open_path, file.pid, self._items)
        return FoundPoints(points, refused, declared_arguments(probes) if points else 0)


class FunctionFinder:
    """The finder of functions, with the methods of :class:`UsdtFinder`."""

    found = True

    def __init__(self, text: ProbeText, keys: Sequence[Item]) -> None:
        from usdt.uprobes.provider import FunctionRequest  # noqa: PLC0415 - not for USDT alone

        self.text = text
        self._request = FunctionRequest(text, keys=keys)
        self.notes = self._request.notes

    def read(self, file: TracedFile) -> None:
        """Find the functions of the file; raises ProbeNotFound if there is none."""
        self._request.functions(file.path, file.open_path, file.root_pid)

    def expect(self, files: Sequence[TracedFile], pids: Sequence[int], *, more: bool) -> str:  # noqa: ARG002
        """Return "": functions are found when their file is read."""
        return ""

    def find(self, file: TracedFile, session: BpfSession) -> FoundPoints:
        """Return the attach points of the functions that have what the keys name."""
        points = self._request.points(file.path, file.open_path, file.pid)
        return FoundPoints(self._request.fitting(points, session), (), self._request.declared)


ProbeFinder = UsdtFinder | FunctionFinder


def finder_of(text: ProbeText, keys: Sequence[Item], files: KnownFiles) -> ProbeFinder:
    """Return the finder of a probe; ``keys`` are the items of ``--by`` and ``--key``.

    Raises:
        LanguageError: a probe on functions names no file.
    """
    if text.kind == "uprobe":
        return FunctionFinder(text, keys)
    return UsdtFinder(text, keys, files)
