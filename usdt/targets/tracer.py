"""Attach probes in the files of targets, now and when processes map more files."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, TypeVar

from usdt.base.closeable import Closeable
from usdt.base.durations import FOREVER
from usdt.base.errors import LanguageError, ProbeNotFound, TargetError, TracingError
from usdt.base.frozen import frozen
from usdt.base.text import plural
from usdt.targets.probe_finders import finder_of
from usdt.targets.quirk_notices import QuirkNotices
from usdt.targets.target_set import TargetSet
from usdt.targets.traced_files import KnownFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from usdt.engine.compiler.codegen.model import TaskFilter
    from usdt.engine.language.tree import ProbeText
    from usdt.engine.run.options import TargetOptions, TraceOptions
    from usdt.engine.runtime.session import BpfSession, Lost
    from usdt.targets.probe_finders import ProbeFinder
    from usdt.targets.spawn import StoppedCommand
    from usdt.targets.traced_files import TracedFile

__all__ = ("Tracer",)

T = TypeVar("T")


class Tracer(Closeable):
    """The probes attached in the files of targets, and their events; a context manager.

    Closing it detaches the probes. Traced processes continue.

    Args:
        probes: parsed probes.
        targets: the processes to trace.
        command: the command of the targets, held at its start.
        session: creates the session for a task filter.
        options: how to attach; ``keys`` and ``missing`` count here.

    Attributes:
        notices: messages for the user; the reader removes them.
        attached: the number of attached sites.
    """

    def __init__(
        self,
        probes: Sequence[ProbeText],
        targets: TargetOptions,
        command: StoppedCommand | None,
        session: Callable[[TaskFilter], BpfSession],
        options: TraceOptions,
    ) -> None:
        self.notices: list[str] = []
        self.attached = 0
        self._keys = options.keys
        self._missing_probe = options.missing
        self._library_timeout = targets.library_timeout
        self._files = KnownFiles()
        self._quirks = QuirkNotices()
        self._finders: list[ProbeFinder] = []
        self._missing: list[_Missing] = []
        made = [finder_of(text, options.keys, self._files) for text in probes]
        with contextlib.ExitStack() as undo:
            self._targets = undo.enter_context(TargetSet(targets, command, self.notices))
            # A command is stopped; other programs may start in cgroups and as children at any time.
            if command or self._targets.following or self._targets.cgroups:
                self._library_timeout = None
            searched = self._search(made, self._targets.files)
            self._session = undo.enter_context(session(self._targets.task_filter))
            self._attach_first(searched)
            self._targets.watch(self._session)
            self._session.begin()
            self._resources = undo.pop_all()

    @property
    def ended(self) -> bool:
        """True if all targets have ended."""
        return self._targets.ended

    @property
    def searching(self) -> bool:
        """Whether poll() looks for further files of processes."""
        # Without probes of files, files need not be searched; cgroups and children are looked for.
        targets = self._targets
        wanted = bool(self._finders or targets.following or targets.cgroups)
        return wanted and targets.scan_interval is not None

    @property
    def attach_log(self) -> list[str]:
        """The attach log: attach points and attach methods."""
        notes = [note for finder in self._finders for note in finder.notes]
        return [*notes, *self._session.attach_log]

    @property
    def listings(self) -> list[str]:
        """The instructions of all programs."""
        return self._session.listings

    def add(self, probes: Sequence[ProbeText]) -> None:
        """Attach further probes.

        Raises:
            TracingError: a probe cannot be attached. Those attached before stay.
        """
        made = [finder_of(text, self._keys, self._files) for text in probes]
        mapped: list[TracedFile] = []

        def files() -> list[TracedFile]:
            mapped.extend(self._targets.files_again())
            return mapped

        searched = self._search(made, files)
        self._attach_new(mapped)  # among them may be files that the other probes do not know
        self._attach_first(searched)

    def poll(self, timeout: float) -> list[Any]:
        """Return the next lines or events, none after ``timeout`` seconds; see Session.poll.

        Raises:
            ProbeNotFound: no library with a requested probe was loaded in time.
        """
        interval = self._targets.scan_interval
        if interval is not None and self.searching:
            timeout = min(timeout, interval)
            self._attach_new(self._targets.new_files())
            self._check_missing()
            self.notices += self._quirks.take()
        batch = self._session.poll(timeout)
        if not batch and self._targets.pids:
            self._targets.reap()
            self._check_missing()
        return batch

    def drain(self) -> Iterator[list[Any]]:
        """Detach, then yield the remaining batches; adds messages about losses to ``notices``."""
        yield from self._session.drain()
        self.notices += self._session.closing_notes()
        if self._session.unmatched_ends():
            self.notices += [f"ends without a start: {one.text}" for one in self._quirks.found]
        self.notices += self._targets.loss_notes()

    def lost(self) -> list[Lost]:
        """Return the hits of each probe that were not delivered."""
        return self._session.lost()

    def sites_of(self, probe: ProbeText) -> int:
        """Return the number of attached sites of a requested probe."""
        return sum(finder.sites for finder in self._finders if finder.text is probe)

    def children_note(self) -> str:
        """Return a message if children of the processes are not traced, else ""."""
        return self._targets.children_note()

    def wake(self) -> None:
        """Let poll() return; may be called from a signal handler or another thread."""
        self._session.wake()

    def close(self) -> None:
        """Detach and release all resources; idempotent."""
        self._resources.close()

    # ------------------------------------------------------------ at the start

    def _search(
        self, finders: Sequence[ProbeFinder], mapped_files: Callable[[], Iterable[TracedFile]]
    ) -> list[tuple[ProbeFinder, list[TracedFile]]]:
        # The files of each finder whose probe exists.
        found = []
        mapped: list[TracedFile] = []

        def mapped_once() -> list[TracedFile]:  # they are the same for all
            if not mapped:
                mapped.extend(mapped_files())
            return mapped

        for finder in finders:
            try:
                found.append((finder, self._files_of(finder, mapped_once)))
            except ProbeNotFound as err:
                if self._missing_probe is None:
                    raise
                self._missing_probe(finder.text, err)
        return found

    def _files_of(
        self, finder: ProbeFinder, mapped_files: Callable[[], list[TracedFile]]
    ) -> list[TracedFile]:
        path = finder.text.path
        if path is not None and not finder.any_file:
            files = self._targets.named_files(path, finder.read)
            if not files:  # no process of the cgroups has it yet, which a notice says
                finder.found = False
                return files
        elif path is not None and self._targets.scan_interval is None:
            files = self._targets.files_by_pattern(path)
        else:
            self._check_target(finder.text)
            files = [file for file in mapped_files() if finder.wants(file)]
        more = self._targets.selected and finder.any_file
        notice = finder.expect(files, self._targets.searched, more=more)
        self.notices += [notice] if notice else []
        return files

    def _check_target(self, text: ProbeText) -> None:
        if self._targets.scan_interval is None:
            from usdt.targets.function_hint import function_hint  # noqa: PLC0415 - for errors

            raise TargetError(
                f"{text.text}: no target: use -p PID, -c COMMAND, -a for all processes, or "
                f"name the file: PATH:{text.provider}:{text.name}{function_hint(text, ())}"
            )

    def _attach_first(self, searched: Sequence[tuple[ProbeFinder, list[TracedFile]]]) -> None:
        # Attaches finders at the files in which they were searched. They are kept only if all of
        # them can be attached.
        before = self.attached
        for finder, files in _in_attach_order(searched):
            self._attach(finder, files, before)
        finders = [finder for finder, _ in searched]
        self._finders += finders
        limit = self._library_timeout
        deadline = FOREVER if limit is None else time.monotonic() + limit
        self._missing.append(_Missing(finders, deadline))
        self.notices += self._quirks.take()

    # ------------------------------------------------------------ attaching

    def _attach(self, finder: ProbeFinder, files: Iterable[TracedFile], before: int = 0) -> None:
        # A failure is an error if no more sites than ``before`` are attached; else a message.
        failures: list[TracingError] = []
        for file in files:
            known = self._files[file]
            if (finder, file.pid) in known.searched or not finder.wants(file):
                continue
            known.searched.add((finder, file.pid))
            found = finder.find(file, self._session)
            failures += found.refused
            self.notices += found.notices
            if found.points:
                refused = self._session.attach(finder.text, found.points, declared=found.declared)
                # The entry and return of a function count as one site.
                failed = {point for failure in refused for point in failure.points}
                added = len(found.points) - len(failed)
                self.attached += added
                finder.sites += added
                known.attached = True
                self._quirks.attached(file, {point.probe for point in found.points})
                if not (refused and finder.passes_over(file)):
                    failures += [failure.error for failure in refused]
        if failures and self.attached == before:
            raise failures[0]
        self.notices += [f"not attached: {error}" for error in failures]

    def _attach_new(self, files: list[TracedFile]) -> None:
        before = self.attached
        for file in files:
            self._files.renew(file)
        for finder in _in_attach_order(self._finders if files else ()):
            try:
                if finder.any_file:
                    self._attach(finder, files)
                else:
                    self._attach_named(finder, files)
            except TracingError as err:
                if isinstance(err, LanguageError) and finder.any_file:
                    continue  # the probe of this library has other arguments
                if not (self._targets.following or self._targets.cgroups):
                    raise
                self.notices.append(f"not attached: {err}")  # others may come that have the probe
        if self.attached > before:
            self.notices.append(f"library loaded; now tracing {plural(self.attached, 'site')}")

    def _attach_named(self, finder: ProbeFinder, files: list[TracedFile]) -> None:
        # In cgroups, a process has started or executes another program: in its mount namespace the
        # probe's path may be that of another file.
        named = self._targets.named_again(finder.text.path or "", files)
        for file in named:
            self._files.renew(file)
        fresh = [one for one in named if (finder, one.pid) not in self._files[one].searched]
        if fresh:
            self._attach(finder, fresh)
            finder.expect(fresh, self._targets.searched, more=False)

    def _check_missing(self) -> None:
        # A probe that was not found in time is an error, unless other probes are traced already:
        # then it is a message, so that their events are not lost.
        for missing in list(self._missing):
            finders = [finder for finder in missing.finders if not finder.found]
            if not finders:
                self._missing.remove(missing)
            elif self.ended or time.monotonic() >= missing.deadline:
                alone = len(finders) == len(missing.finders)
                for finder in finders:
                    self._report_missing(finder, alone=alone)
                self._missing.remove(missing)

    def _report_missing(self, finder: ProbeFinder, *, alone: bool) -> None:
        files = [known.file for known in self._files if finder.wants(known.file)]
        try:
            finder.expect(files, self._targets.searched, more=False)
        except ProbeNotFound as err:
            if alone:
                raise
            self.notices.append(str(err))


@frozen
class _Missing:
    # Probes that were requested together, until the files with them are mapped.
    finders: Sequence[ProbeFinder]
    deadline: float


def _in_attach_order(probes: Sequence[T]) -> Iterator[T]:
    # The uprobe that is registered last runs first: consumer_add() in kernel/events/uprobes.c puts
    # it at the head of the list. So the last probe is attached first, and hits at one place come
    # in the order in which the user gave the probes.
    return reversed(probes)
