"""Trace probes of processes, commands and files: find files, attach, and detect the end.

The targets determine which files are searched and when tracing stops:

    pids      the files that the processes have mapped, and those they map later
    command   the program and libraries of a command held at its start; then as pids
    files     the files that the probes name, in every process that runs them, now or later
    all       every file that any process has mapped; scanned again every few seconds

With ``follow``, the children of pids and command are traced as well, see
:mod:`usdt.targets.follow_forks`.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from typing import TYPE_CHECKING, Any, Self

from usdt.base.errors import ElfError, LanguageError, ProbeNotFound, TargetError, TracingError
from usdt.base.frozen import frozen
from usdt.engine.compiler.codegen.model import TaskFilter
from usdt.probes.probe import FileProbes, read_probes
from usdt.probes.sites import attachable, closest_match, declared_arguments, is_typo_of, matching
from usdt.procfs import mapped_files, namespaces, process
from usdt.targets.target_files import resolve_target
from usdt.targets.trace_requests import (
    TracedFile,
    TraceRequest,
    describe_process,
    probe_not_found,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from usdt.engine.language.tree import Item, ProbeText
    from usdt.engine.runtime.attach.attach_points import AttachPoint
    from usdt.engine.runtime.session import BpfSession, Lost
    from usdt.targets.follow_forks import ForkFollower
    from usdt.targets.spawn import StoppedCommand

__all__ = ("Targets", "Tracer")

RESCAN = 0.05  # seconds between two scans of a process's mappings
RESCAN_ALL = 2.0  # seconds between two scans of all processes of the machine
GRACE = 5.0  # seconds that a process has to load a library with the requested probe


@frozen
class Targets:
    """The targets; by default every process that runs the files that the probes name.

    Attributes:
        pids: process IDs; a thread ID selects its process.
        command: a command held at its start.
        everything: True for all processes.
        follow: True to trace all descendants of ``pids`` and ``command`` as well. No effect if all
            processes are traced anyway.
    """

    pids: tuple[int, ...] = ()
    command: StoppedCommand | None = None
    everything: bool = False
    follow: bool = False


class Tracer:
    """The probes attached in the files of targets, and their events; a context manager.

    Args:
        probes: parsed probes.
        targets: the targets.
        session: creates the session for a task filter.
        patience: seconds to wait for a library with a probe that no mapped file has; None to wait
            as long as the processes live.
        keys: items of ``--by`` and ``--key``.

    Attributes:
        notices: messages for the user; the reader removes them.
        ended: True if all targets have ended.
    """

    def __init__(
        self,
        probes: Sequence[ProbeText],
        targets: Targets,
        session: Callable[[TaskFilter], BpfSession],
        *,
        patience: float | None = GRACE,
        keys: Sequence[Item] = (),
    ) -> None:
        self.notices: list[str] = []
        self.ended = False
        self._targets = targets
        self._requests = [TraceRequest(text, keys) for text in probes]
        self._pids = self._given = self._processes()
        self._namespace = namespaces.nested_pid_namespace()
        self._probes: dict[Any, FileProbes] = {}
        self._attached_files: set[Any] = set()  # files with attached probes, by identity
        self._pidfds: dict[int, int] = {}
        self._follower: ForkFollower | None = None
        with contextlib.ExitStack() as undo:
            if targets.follow and self._pids:
                self._follower = self._start_following(undo)
                patience = None  # children may execute other programs at any time
            self._watches = {pid: mapped_files.MapsPoller(pid) for pid in self._pids}
            self._rescan = time.monotonic()
            self._patience = None if patience is None else self._rescan + patience
            located = self._locate()
            self._session = undo.enter_context(session(self._filter()))
            undo.callback(self._close_pidfds)
            for request, files in located:
                self._attach(request, files)
            self._watch_exits()
            self._resources = undo.pop_all()

    @property
    def attach_log(self) -> list[str]:
        """The attach log: attach points and attach methods."""
        looked = [note for r in self._requests if r.functions for note in r.functions.notes]
        return [*looked, *self._session.attach_log]

    @property
    def listings(self) -> list[str]:
        """The instructions of all programs."""
        return self._session.listings

    @property
    def attached(self) -> int:
        """The number of attached sites."""
        return self._sites

    def poll(self, timeout: float) -> list[Any]:
        """Return the next lines or events, none after ``timeout`` seconds; see Session.poll.

        Raises:
            ProbeNotFound: no library with a requested probe was loaded in time.
        """
        if self._pids or self._targets.everything:
            timeout = min(timeout, RESCAN if self._pids else RESCAN_ALL)
            self._rescan_files()
        batch = self._session.poll(timeout)
        if not batch and self._pids:
            self._reap_exited()
        return batch

    def drain(self) -> Iterator[list[Any]]:
        """Detach, then yield the remaining batches; adds messages about losses to ``notices``."""
        yield from self._session.drain()
        self.notices += self._session.closing_notes()
        if self._follower is not None:
            self.notices += self._follower.loss_notes()

    def lost(self) -> list[Lost]:
        """Return the hits of each probe that were not delivered."""
        return self._session.lost()

    def wake(self) -> None:
        """Let poll() return; may be called from a signal handler or another thread."""
        self._session.wake()

    def close(self) -> None:
        """Detach and release all resources; idempotent. Traced processes continue."""
        self._resources.close()

    def _close_pidfds(self) -> None:
        pidfds, self._pidfds = self._pidfds, {}
        for number in pidfds.values():
            os.close(number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # ------------------------------------------------------------ targets and files

    def _processes(self) -> tuple[int, ...]:
        if self._targets.command is not None:
            return (self._targets.command.pid,)
        groups = [process.thread_group(pid) for pid in self._targets.pids]
        self.notices += [group.note for group in groups if group.note]
        for group in groups:
            if process.is_kernel_thread(group.pid):
                raise TargetError(
                    f"{describe_process(group.pid)} is a kernel thread: it runs no program"
                )
            if not namespaces.pid_visible_to_bpf(group.pid):
                raise TargetError(
                    f"{describe_process(group.pid)} is in a child PID namespace: it can only be "
                    "traced from its own namespace or from the initial one"
                )
        return tuple(dict.fromkeys(group.pid for group in groups))

    def _start_following(self, undo: contextlib.ExitStack) -> ForkFollower:
        from usdt.targets.follow_forks import ForkFollower  # noqa: PLC0415 - only for -f

        family = undo.enter_context(ForkFollower(self._pids, self._namespace))
        self._pids = family.pids
        self.notices += family.notices
        return family

    def _filter(self) -> TaskFilter:
        if self._follower is not None:
            return TaskFilter((), self._namespace, self._follower.followed)
        return TaskFilter(self._pids, self._namespace)

    def _locate(self) -> list[tuple[TraceRequest, list[TracedFile]]]:
        located = []
        shared: list[TracedFile] | None = None
        for request in self._requests:
            if request.text.path is not None:
                files = self._named_files(request)
            else:
                if shared is None:
                    shared = list(self._mapped_files(request))
                files = shared
            self._check_found(request, files)
            located.append((request, files))
        return located

    def _named_files(self, request: TraceRequest) -> list[TracedFile]:
        found: list[TracedFile] = []
        for pid in self._pids or (0,):
            try:
                found.append(self._file_of(request, pid))
            except (ElfError, TargetError):
                if not self._is_child(pid):
                    raise
        return found

    def _file_of(self, request: TraceRequest, pid: int) -> TracedFile:
        word = request.text.path or ""
        command = self._targets.command
        target = resolve_target(word, pid=pid if pid and command is None else None)
        identity = mapped_files.file_identity(target.open_path)
        if request.functions is not None:
            # With -p, in the mount namespace of that process.
            request.functions.functions(target.path, target.open_path, pid if not command else 0)
        elif identity not in self._probes:  # not in _read(): errors of a named file are raised
            self._probes[identity] = read_probes(target.path, open_path=target.open_path)
        return TracedFile(target.path, target.open_path, identity, self._attach_pid(pid))

    def _attach_pid(self, pid: int) -> int:
        # The only process to attach in; 0 (all) if children are followed: they may map other files.
        return pid if self._follower is None else 0

    def _is_child(self, pid: int) -> bool:
        # Found by -f; errors about it are not fatal.
        return self._follower is not None and pid not in self._given

    def _mapped_files(self, request: TraceRequest) -> Iterator[TracedFile]:
        if self._targets.everything:
            yield from self._mapped_anywhere()
        elif self._targets.command is not None:
            yield from self._command_files(self._targets.command)
        elif self._pids:
            for watch in self._watches.values():
                try:
                    yield from self._poll_maps(watch)
                except TargetError:
                    if not self._is_child(watch.pid):
                        raise
        else:
            raise TargetError(
                f"{request.text.text}: no target: use -p PID, -c COMMAND, -a for all processes, or "
                f"name the file: PATH:{request.text.provider}:{request.text.name}"
            )

    def _command_files(self, command: StoppedCommand) -> Iterator[TracedFile]:
        for path in command.files():
            yield TracedFile(
                path, path, mapped_files.file_identity(path), self._attach_pid(command.pid)
            )
        # Programs that children are likely to execute.
        for path in command.guess_programs() if self._follower is not None else ():
            with contextlib.suppress(TargetError):
                yield TracedFile(path, path, mapped_files.file_identity(path))

    def _poll_maps(self, watch: mapped_files.MapsPoller) -> Iterator[TracedFile]:
        for file in watch.changed():
            if file.open_path is None:
                self.notices.append(
                    f"{file.path} of process {watch.pid} cannot be opened (deleted); this "
                    "needs CAP_SYS_ADMIN"
                )
            else:
                identity = (file.device, file.inode)
                yield TracedFile(file.path, file.open_path, identity, self._attach_pid(watch.pid))

    def _mapped_anywhere(self) -> Iterator[TracedFile]:
        seen: set[Any] = set()
        for pid in process.processes():
            with contextlib.suppress(TargetError):  # it has ended, or belongs to another user
                for file in mapped_files.mapped_files(pid):
                    identity = (file.device, file.inode)
                    if file.open_path is not None and identity not in seen:
                        seen.add(identity)
                        yield TracedFile(file.path, file.open_path, identity)

    def _read(self, file: TracedFile) -> FileProbes:
        if file.identity not in self._probes:
            try:
                found = read_probes(file.path, open_path=file.open_path)
            except (ElfError, TargetError):
                # Not requested by name: a font, a locale, a deleted library.
                found = FileProbes(file.path, (), ())
            self._probes[file.identity] = found
        return self._probes[file.identity]

    def _check_found(self, request: TraceRequest, files: list[TracedFile]) -> None:
        # Marks the request as found if a file has the probe; raises if waiting is pointless.
        if request.functions is not None or any(
            matching(request.text, self._read(file).probes) for file in files
        ):
            request.found = True
        elif not self._pids or request.text.path is not None:
            raise self._not_found(request, files)
        else:
            name = f"{request.text.provider}:{request.text.name}"
            near = closest_match(name, self._names(files))
            if near and is_typo_of(near, name):
                raise self._not_found(request, files)
            self.notices.append(
                f"no probe {name} in process {self._pids[0]} yet: waiting for a library with it"
            )

    def _names(self, files: Iterable[TracedFile]) -> Iterator[str]:
        for file in files:
            for probe in self._read(file).probes:
                yield probe.full_name

    def _not_found(self, request: TraceRequest, files: Sequence[TracedFile]) -> ProbeNotFound:
        path = files[0].path if files else ""
        return probe_not_found(request, path, self._pids, self._names(files))

    # ------------------------------------------------------------ attaching

    _sites = 0

    def _attach(self, request: TraceRequest, files: Iterable[TracedFile]) -> None:
        failures = []
        for file in files:
            if (file.identity, file.pid) in request.seen:
                continue
            request.seen.add((file.identity, file.pid))
            if request.functions is not None:
                points = request.functions.points(file.path, file.open_path, file.pid)
                points = request.functions.fitting(points, self._session)
                failures += self._attach_points(request, file, points, request.functions.declared)
                continue
            probes = matching(request.text, self._read(file).probes)
            if not probes:
                continue
            request.found = True
            items = (*request.text.items, *request.keys)
            points, refused = attachable(probes, file.path, file.open_path, file.pid, items)
            failures += refused
            if points:
                failures += self._attach_points(request, file, points, declared_arguments(probes))
        if failures and not self._sites:
            raise failures[0]
        self.notices += [f"not attached: {error}" for error in failures]

    def _attach_points(
        self, request: TraceRequest, file: TracedFile, points: list[AttachPoint], declared: int
    ) -> list[TracingError]:
        refused = self._session.attach(request.text, points, declared=declared)
        # The entry and return of a function count as one site.
        self._sites += len(points) - len({p for failure in refused for p in failure.points})
        self._attached_files.add(file.identity)
        return [failure.error for failure in refused]

    def _watch_exits(self) -> None:
        for pid in self._pids:
            try:
                self._pidfds[pid] = process.open_pidfd(pid)
                self._session.watch(self._pidfds[pid])
            except TargetError:  # it has ended: the next scan notices that
                if self._follower is not None and not process.pid_exists(pid):
                    self._follower.forget(pid)
        for number in self._follower.descriptors if self._follower is not None else ():
            self._session.watch(number)

    def _rescan_files(self) -> None:
        now = time.monotonic()
        if self._follower is not None:
            self._attach_later(self._newly_mapped(self._follower))
        if now < self._rescan:
            return
        self._rescan = now + (RESCAN if self._pids else RESCAN_ALL)
        if self._targets.everything:
            self._attach_later(list(self._mapped_anywhere()))
        elif self._follower is not None:
            self._reap_exited()  # also while events keep coming: the ID may be reused
        else:
            watches = self._watches.values()
            self._attach_later([file for watch in watches for file in self._poll_maps(watch)])
        if self._pids:
            self._check_missing(now)

    def _newly_mapped(self, family: ForkFollower) -> list[TracedFile]:
        # Files that any process has newly mapped.
        found = []
        for fresh in family.fresh():
            if fresh is None:
                found += list(self._mapped_anywhere())
            elif fresh.file.open_path is not None:
                identity = (fresh.file.device, fresh.file.inode)
                if fresh.renewed and identity not in self._attached_files:
                    self._probes.pop(identity, None)
                    for request in self._requests:
                        request.seen.discard((identity, 0))
                found.append(TracedFile(fresh.file.path, fresh.file.open_path, identity))
        return found

    def _attach_later(self, files: list[TracedFile]) -> None:
        before = self._sites
        for request in self._requests if files else ():
            if request.text.path is None:
                try:
                    self._attach(request, files)
                except LanguageError:
                    continue  # the probe of this library has other arguments
                except TracingError as err:
                    if self._follower is None:
                        raise
                    self.notices.append(f"not attached: {err}")  # perhaps not of a followed process
        if self._sites > before:
            self.notices.append(
                f"library loaded; now tracing {self._sites} site{'s' * (self._sites != 1)}"
            )

    def _reap_exited(self) -> None:
        # A pidfd is readable when the whole process has ended.
        poller = select.poll()
        for number in self._pidfds.values():
            poller.register(number, select.POLLIN)
        gone = {number for number, _ in poller.poll(0)}
        for pid, number in list(self._pidfds.items()):
            if number in gone:
                del self._pidfds[pid]
                self._session.unwatch(number)
                os.close(number)
                if self._follower is not None:
                    self._follower.forget(pid)
        self.ended = not self._pidfds and (self._follower is None or self._follower.empty())
        if self.ended:
            self._check_missing(time.monotonic())

    def _check_missing(self, now: float) -> None:
        # A request without a probe is an error, unless other probes are traced already: then it
        # is a message, so that their events are not lost.
        missing = [r for r in self._requests if not r.found and not r.reported_missing]
        late = self._patience is not None and now >= self._patience
        if not missing or not (self.ended or (late and self._targets.command is None)):
            return
        files = [TracedFile(f.path, "", key) for key, f in self._probes.items()]
        errors = [self._not_found(request, files) for request in missing]
        if not any(request.found for request in self._requests):
            raise errors[0]
        self.notices += [str(error) for error in errors]
        for request in missing:
            request.reported_missing = True
