"""Finders of requested probes in files: one for USDT probes, one for functions."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from usdt.base.errors import ElfError, ProbeNotFound, TargetError, TracingError
from usdt.base.frozen import frozen
from usdt.base.terminal import progress
from usdt.base.text import closest
from usdt.probes.matching import closest_match, is_typo_of, matching, missing_probe
from usdt.probes.sites import attachable, declared_arguments
from usdt.procfs.process import describe_process

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.engine.language.tree import Item, ProbeText
    from usdt.engine.runtime.attach.attach_points import AttachPoint
    from usdt.engine.runtime.session import BpfSession
    from usdt.targets.traced_files import KnownFiles, TracedFile

__all__ = ("FoundPoints", "FunctionFinder", "ProbeFinder", "Searched", "UsdtFinder", "finder_of")


@frozen
class Searched:
    """The processes whose files are searched, for messages.

    Attributes:
        name: such as ``process 12``.
        full: the same with the process's name.
        option: that of ``usdt list`` which searches them.
    """

    name: str
    full: str
    option: str

    @classmethod
    def of(cls, pids: Sequence[int], cgroups: str) -> Searched:
        """Return it for processes, else for cgroups as written, else for all processes."""
        if pids:
            return cls(f"process {pids[0]}", describe_process(pids[0]), f"-p {pids[0]}")
        return cls(cgroups or "the files searched", cgroups or "all processes", "-a")


@frozen
class FoundPoints:
    """What a finder has found in a file.

    ``refused`` are the errors of sites that cannot be traced; ``declared`` is the maximum number of
    numbered arguments at any site; ``notices`` are messages for the user.
    """

    points: Sequence[AttachPoint] = ()
    refused: Sequence[TracingError] = ()
    declared: int = 0
    notices: Sequence[str] = ()


class _Finder:
    """What both finders have.

    Attributes:
        text: the parsed probe.
        found: True once a file has the probe.
        sites: the number of attached sites.
        any_file: True if the probe names no file, or files by a pattern.
    """

    def __init__(self, text: ProbeText) -> None:
        self.text = text
        self.found = False
        self.sites = 0
        self.any_file = text.path is None or _is_file_pattern(text.path)

    def wants(self, file: TracedFile) -> bool:
        """Return whether the probe may be in a file, by the file's name."""
        path = self.text.path
        if path is None or not self.any_file:
            return True
        from usdt.targets.search.target_files import matches_file  # noqa: PLC0415 - for patterns

        return matches_file(path, file.path)

    def passes_over(self, file: TracedFile) -> bool:
        """Return whether a file is gone that nobody named: the process that led to it has ended."""
        return self.any_file and not os.path.exists(file.open_path)  # noqa: PTH110 - no import


def _is_file_pattern(path: str) -> bool:
    from usdt.targets.search.target_files import is_file_pattern  # noqa: PLC0415 - not for -p alone

    return is_file_pattern(path)


class UsdtFinder(_Finder):
    """The finder of a USDT probe, or of several that a pattern matches.

    Attributes:
        notes: messages for ``-v``.
    """

    notes = ()

    def __init__(self, text: ProbeText, keys: Sequence[Item], files: KnownFiles) -> None:
        super().__init__(text)
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

    def expect(self, files: Sequence[TracedFile], searched: Searched, *, more: bool) -> str:
        """Set ``found`` if a file has the probe; else return a message that it may come later.

        Args:
            files: the files known so far.
            searched: the traced processes.
            more: True if processes may map more files. A misspelt name is not waited for.

        Raises:
            ProbeNotFound: no file has the probe, and none that may have it will come.
        """
        searched_files = progress.through(files, "reading files", len(files))
        if any(matching(self.text, self._files.probes(file)) for file in searched_files):
            self.found = True
            return ""
        from usdt.targets.function_hint import function_hint  # noqa: PLC0415 - for errors

        names = list(
            dict.fromkeys(probe.full_name for file in files for probe in self._files.probes(file))
        )
        function = function_hint(self.text, ((file.path, file.open_path) for file in files))
        near = closest_match(self._name, names) if more else None
        if more and not (near and is_typo_of(near, self._name)):
            name = self._name.removeprefix("*:")
            waiting = f"no probe {name} in {searched.name} yet: waiting for a library with it"
            near = closest(self._name, names)
            return waiting + (function or (f"; did you mean {near}?" if near else ""))
        if self.text.path is not None:
            where = what = files[0].path if files and not self.any_file else self.text.path
        else:
            where, what = searched.full, searched.option
        hint = f" (list them with: usdt list {what})" if names else ""
        raise ProbeNotFound(missing_probe(where, self._name, names) + hint + function)

    def find(self, file: TracedFile, session: BpfSession) -> FoundPoints:  # noqa: ARG002
        """Return the attach points in a file; none if it does not have the probe."""
        probes = matching(self.text, self._files.probes(file))
        if not probes:
            return FoundPoints()
        try:
            points, refused = attachable(probes, file.path, file.open_path, file.pid, self._items)
        except TargetError:
            if not self.passes_over(file):
                raise
            return FoundPoints()
        self.found = True
        return FoundPoints(points, refused, declared_arguments(probes) if points else 0)


class FunctionFinder(_Finder):
    """The finder of functions, with the methods of :class:`UsdtFinder`."""

    def __init__(self, text: ProbeText, keys: Sequence[Item]) -> None:
        from usdt.uprobes.provider import FunctionRequest  # noqa: PLC0415 - not for USDT alone

        super().__init__(text)
        self.found = not self.any_file  # functions of a named file are found when it is read
        self._without: set[str] = set()  # paths of files that have none of the functions
        self._request = FunctionRequest(text, keys=keys)
        self.notes = self._request.notes

    def read(self, file: TracedFile) -> None:
        """Find the functions of the file; raises ProbeNotFound if there is none."""
        self._request.functions(file.path, file.open_path, file.root_pid)

    def expect(self, files: Sequence[TracedFile], searched: Searched, *, more: bool) -> str:
        """Set ``found`` if a file has a function; else return a message that one may come later.

        Raises:
            ProbeNotFound: no file has the function, and none that may have it will come.
        """
        self.found = self.found or any(list(map(self._has, files)))
        if self.found:
            return ""
        wanted = f"no function {self.text.name} in files {self.text.path} of {searched.name}"
        if more:
            return f"{wanted} yet: waiting for a library with it"
        raise ProbeNotFound(f"{wanted} ({len(files)} searched)")

    def _has(self, file: TracedFile) -> bool:
        # A pattern also selects files that have no such function, or are no programs.
        if file.open_path in self._without:
            return False
        try:
            self._request.functions(file.path, file.open_path, file.root_pid or file.pid)
        except (ElfError, ProbeNotFound, TargetError):
            self._without.add(file.open_path)
            return False
        return True

    def find(self, file: TracedFile, session: BpfSession) -> FoundPoints:
        """Return the attach points of the functions that have what the keys name."""
        if not self.any_file:
            points = self._points(file, session)
            self.found = True
            return points
        if not self._has(file):
            return FoundPoints()
        self.found = True
        try:
            return self._points(file, session)
        except TracingError as err:  # other files may have what the items need
            return FoundPoints() if self.passes_over(file) else FoundPoints((), [err])

    def _points(self, file: TracedFile, session: BpfSession) -> FoundPoints:
        points = self._request.points(file.path, file.open_path, file.pid)
        notices, self._request.notices = self._request.notices, []
        fitting = self._request.fitting(points, session)
        return FoundPoints(fitting, (), self._request.declared, notices)


ProbeFinder = UsdtFinder | FunctionFinder


def finder_of(text: ProbeText, keys: Sequence[Item], files: KnownFiles) -> ProbeFinder:
    """Return the finder of a probe; ``keys`` are the items of ``--by`` and ``--key``.

    Raises:
        LanguageError: a probe on functions names no file.
    """
    if text.kind == "uprobe":
        return FunctionFinder(text, keys)
    return UsdtFinder(text, keys, files)
