"""Tracing USDT probes of files and processes: what is attached, when, and until when.

Whom a tracer follows decides how files are found and how long it runs:

    pids      files the processes have mapped now, and those they map later
    command   the program and libraries of a command that is stopped at its start, then as pids
    files     the files the probes name; every process that runs them, now or later
    all       every file that any process has mapped; looked for again now and then

With ``follow``, pids and command have their children traced as well: see
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from usdt.engine.language.tree import Item, ProbeText
    from usdt.engine.runtime.attach.attach_points import AttachPoint
    from usdt.engine.runtime.session import BpfSession, Lost
    from usdt.targets.follow_forks import ForkFollower
    from usdt.targets.spawn import StoppedCommand
    from usdt.uprobes.provider import FunctionRequest

__all__ = ("Targets", "Tracer")

RESCAN = 0.05  # seconds between two looks at what a process has mapped
RESCAN_ALL = 2.0  # the same for every process of the machine
GRACE = 5.0  # seconds that a process has to load a library with the probe that was asked for


@frozen
class Targets:
    """Whom to trace; nothing given: every process that runs the files the probes name.

    Attributes:
        pids: processes; a thread's ID stands for its process.
        command: a command stopped at its start.
        everything: all processes.
        follow: those that ``pids`` and ``command`` have forked and will fork as well, and theirs.
            Says nothing where all processes are traced anyway.
    """

    pids: tuple[int, ...] = ()
    command: StoppedCommand | None = None
    everything: bool = False
    follow: bool = False


@frozen
class _File:
    path: str
    open_path: str
    identity: tuple[tuple[int, int], int]
    pid: int = 0


class _Request:
    def __init__(self, text: ProbeText, keys: Sequence[Item]) -> None:
        self.text = text
        self.keys = keys
        self.functions: FunctionRequest | None = None
        if text.kind == "uprobe":
            from usdt.uprobes.provider import FunctionRequest  # noqa: PLC0415 - not for USDT alone

            self.functions = FunctionRequest(text, keys=keys)
        self.found = False
        self.told = False  # that it is nowhere
        self.seen: set[tuple[Any, int]] = set()  # files looked at, by identity and pid


class Tracer:
    """A session with targets; a context manager.

    Args:
        probes: parsed probes.
        targets: whom to trace.
        session: makes the session, of the processes that count.
        patience: seconds to wait for a library with a probe that no mapped file has; None
            waits as long as the processes live.
        keys: items of ``--by`` and ``--key``.

    Attributes:
        notices: lines for people that have come up since they were last taken.
        ended: whether everything that was traced has ended.
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
        self._requests = [_Request(text, keys) for text in probes]
        self._pids = self._given = self._processes()
        self._namespace = namespaces.nested_pid_namespace()
        self._probes: dict[Any, FileProbes] = {}
        self._held: set[Any] = set()  # files with something attached, by identity
        self._pidfds: dict[int, int] = {}
        self._family: ForkFollower | None = None
        with contextlib.ExitStack() as undo:
            if targets.follow and self._pids:
                self._family = self._following(undo)
                patience = None  # children may become other programs at any time
            self._watches = {pid: mapped_files.MapsPoller(pid) for pid in self._pids}
            self._rescan = time.monotonic()
            self._patience = None if patience is None else self._rescan + patience
            located = self._locate()
            self._session = undo.enter_context(session(self._filter()))
            undo.callback(self._close_pidfds)
            for request, files in located:
                self._attach(request, files)
            self._watch_ends()
            self._resources = undo.pop_all()

    @property
    def attach_log(self) -> list[str]:
        """What was attached, by which kernel path."""
        looked = [note for r in self._requests if r.functions for note in r.functions.notes]
        return [*looked, *self._session.attach_log]

    @property
    def listings(self) -> list[str]:
        """The instructions of every program."""
        return self._session.listings

    @property
    def attached(self) -> int:
        """How many sites are attached."""
        return self._sites

    def poll(self, timeout: float) -> list[Any]:
        """The next lines or events, or none after ``timeout`` seconds; see Session.poll.

        Raises:
            ProbeNotFound: no library with a wanted probe was loaded in time.
        """
        if self._pids or self._targets.everything:
            timeout = min(timeout, RESCAN if self._pids else RESCAN_ALL)
            self._look_again()
        batch = self._session.poll(timeout)
        if not batch and self._pids:
            self._note_ends()
        return batch

    def drain(self) -> Iterator[list[Any]]:
        """Detach, then yield what is still there; what could not be followed is in ``notices``."""
        yield from self._session.drain()
        self.notices += self._session.closing_notes()
        if self._family is not None:
            self.notices += self._family.loss_notes()

    def lost(self) -> list[Lost]:
        """What each probe did not deliver."""
        return self._session.lost()

    def wake(self) -> None:
        """Let poll() return; may be called from a signal handler or another thread."""
        self._session.wake()

    def close(self) -> None:
        """Detach and free everything; again is fine. Traced processes go on."""
        self._resources.close()

    def _close_pidfds(self) -> None:
        pidfds, self._pidfds = self._pidfds, {}
        for number in pidfds.values():
            os.close(number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # ------------------------------------------------------------ whom and what

    def _processes(self) -> tuple[int, ...]:
        if self._targets.command is not None:
            return (self._targets.command.pid,)
        groups = [process.thread_group(pid) for pid in self._targets.pids]
        self.notices += [group.note for group in groups if group.note]
        for group in groups:
            if process.is_kernel_thread(group.pid):
                raise TargetError(f"{_described(group.pid)} is a kernel thread: it runs no program")
            if not namespaces.pid_visible_to_bpf(group.pid):
                raise TargetError(
                    f"{_described(group.pid)} is in a PID namespace below this one: it can only be "
                    "traced from its own namespace, or from the initial one"
                )
        return tuple(dict.fromkeys(group.pid for group in groups))

    def _following(self, undo: contextlib.ExitStack) -> ForkFollower:
        from usdt.targets.follow_forks import ForkFollower  # noqa: PLC0415 - only for -f

        family = undo.enter_context(ForkFollower(self._pids, self._namespace))
        self._pids = family.pids
        self.notices += family.notices
        return family

    def _filter(self) -> TaskFilter:
        if self._family is not None:
            return TaskFilter((), self._namespace, self._family.followed)
        return TaskFilter(self._pids, self._namespace)

    def _locate(self) -> list[tuple[_Request, list[_File]]]:
        located = []
        shared: list[_File] | None = None
        for request in self._requests:
            if request.text.path is not None:
                files = self._named(request)
            else:
                if shared is None:
                    shared = list(self._mapped(request))
                files = shared
            self._find(request, files)
            located.append((request, files))
        return located

    def _named(self, request: _Request) -> list[_File]:
        found: list[_File] = []
        for pid in self._pids or (0,):
            try:
                found.append(self._file_of(request, pid))
            except (ElfError, TargetError):
                if not self._is_child(pid):
                    raise
        return found

    def _file_of(self, request: _Request, pid: int) -> _File:
        word = request.text.path or ""
        command = self._targets.command
        target = resolve_target(word, pid=pid if pid and command is None else None)
        identity = mapped_files.file_identity(target.open_path)
        if request.functions is not None:
            # In no process of -c yet; with -p, in that one's mount namespace.
            request.functions.functions(target.path, target.open_path, pid if not command else 0)
        elif identity not in self._probes:  # here, not in _read(): what is named must be readable
            self._probes[identity] = read_probes(target.path, open_path=target.open_path)
        return _File(target.path, target.open_path, identity, self._only(pid))

    def _only(self, pid: int) -> int:
        # The one process to attach in. Children may map what their parent does not: all, then.
        return pid if self._family is None else 0

    def _is_child(self, pid: int) -> bool:
        # Found by -f; it may end, change or hide without spoiling the rest.
        return self._family is not None and pid not in self._given

    def _mapped(self, request: _Request) -> Iterator[_File]:
        if self._targets.everything:
            yield from self._mapped_anywhere()
        elif self._targets.command is not None:
            yield from self._of_command(self._targets.command)
        elif self._pids:
            for watch in self._watches.values():
                try:
                    yield from self._changed(watch)
                except TargetError:
                    if not self._is_child(watch.pid):
                        raise
        else:
            raise TargetError(
                f"{request.text.text}: whom to trace? Give -p PID, -c COMMAND, -a for every "
                f"process, or the file: PATH:{request.text.provider}:{request.text.name}"
            )

    def _of_command(self, command: StoppedCommand) -> Iterator[_File]:
        for path in command.files():
            yield _File(path, path, mapped_files.file_identity(path), self._only(command.pid))
        # What children are likely to execute, before they do.
        for path in command.guess_programs() if self._family is not None else ():
            with contextlib.suppress(TargetError):
                yield _File(path, path, mapped_files.file_identity(path))

    def _changed(self, watch: mapped_files.MapsPoller) -> Iterator[_File]:
        for file in watch.changed():
            if file.open_path is None:
                self.notices.append(
                    f"{file.path} of process {watch.pid} cannot be reached (deleted); "
                    "needs CAP_SYS_ADMIN"
                )
            else:
                identity = (file.device, file.inode)
                yield _File(file.path, file.open_path, identity, self._only(watch.pid))

    def _mapped_anywhere(self) -> Iterator[_File]:
        seen: set[Any] = set()
        for pid in process.processes():
            with contextlib.suppress(TargetError):  # ended meanwhile, or somebody else's
                for file in mapped_files.mapped_files(pid):
                    identity = (file.device, file.inode)
                    if file.open_path is not None and identity not in seen:
                        seen.add(identity)
                        yield _File(file.path, file.open_path, identity)

    def _read(self, file: _File) -> FileProbes:
        if file.identity not in self._probes:
            try:
                found = read_probes(file.path, open_path=file.open_path)
            except (ElfError, TargetError):
                # Fonts, locales, a library that went away: nobody asked for them.
                found = FileProbes(file.path, (), ())
            self._probes[file.identity] = found
        return self._probes[file.identity]

    def _find(self, request: _Request, files: list[_File]) -> None:
        # Whether any file has the probe; an error now, if it is not worth waiting for.
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

    def _names(self, files: Iterable[_File]) -> Iterator[str]:
        for file in files:
            for probe in self._read(file).probes:
                yield probe.full_name

    def _not_found(self, request: _Request, files: Sequence[_File]) -> ProbeNotFound:
        wanted = f"{request.text.provider}:{request.text.name}"
        if request.text.path is not None and files:
            where, what = files[0].path, files[0].path
        elif self._pids:
            where, what = _described(self._pids[0]), f"-p {self._pids[0]}"
        else:
            where, what = "all processes", "-a"
        names = dict.fromkeys(self._names(files))
        if not names:
            return ProbeNotFound(f"{where}: no USDT probes at all; {wanted} was asked for")
        near = closest_match(wanted, names)
        hint = f"nearest is {near}" if near else f"{len(names)} others"
        return ProbeNotFound(
            f"{where}: no probe {wanted}; {hint} (list them with: usdt list {what})"
        )

    # ------------------------------------------------------------ attaching

    _sites = 0

    def _attach(self, request: _Request, files: Iterable[_File]) -> None:
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
        self, request: _Request, file: _File, points: list[AttachPoint], declared: int
    ) -> list[TracingError]:
        refused = self._session.attach(request.text, points, declared=declared)
        # A function's entry and return are one site.
        self._sites += len(points) - len({p for failure in refused for p in failure.points})
        self._held.add(file.identity)
        return [failure.error for failure in refused]

    def _watch_ends(self) -> None:
        for pid in self._pids:
            try:
                self._pidfds[pid] = process.open_pidfd(pid)
                self._session.watch(self._pidfds[pid])
            except TargetError:  # ended meanwhile: the next look sees it
                if self._family is not None and not process.pid_exists(pid):
                    self._family.forget(pid)
        for number in self._family.descriptors if self._family is not None else ():
            self._session.watch(number)

    def _look_again(self) -> None:
        now = time.monotonic()
        if self._family is not None:
            self._attach_later(self._fresh(self._family))
        if now < self._rescan:
            return
        self._rescan = now + (RESCAN if self._pids else RESCAN_ALL)
        if self._targets.everything:
            self._attach_later(list(self._mapped_anywhere()))
        elif self._family is not None:
            self._note_ends()  # also while events come thick and fast: an ID may be used again
        else:
            watches = self._watches.values()
            self._attach_later([file for watch in watches for file in self._changed(watch)])
        if self._pids:
            self._check_missing(now)

    def _fresh(self, family: ForkFollower) -> list[_File]:
        # What anybody has begun to map.
        found = []
        for fresh in family.fresh():
            if fresh is None:
                found += list(self._mapped_anywhere())
            elif fresh.file.open_path is not None:
                identity = (fresh.file.device, fresh.file.inode)
                if fresh.renewed and identity not in self._held:
                    self._probes.pop(identity, None)
                    for request in self._requests:
                        request.seen.discard((identity, 0))
                found.append(_File(fresh.file.path, fresh.file.open_path, identity))
        return found

    def _attach_later(self, files: list[_File]) -> None:
        before = self._sites
        for request in self._requests if files else ():
            if request.text.path is None:
                try:
                    self._attach(request, files)
                except LanguageError:
                    continue  # a later library's probe, of another shape
                except TracingError as err:
                    if self._family is None:
                        raise
                    self.notices.append(f"not attached: {err}")  # perhaps nobody's we follow
        if self._sites > before:
            self.notices.append(f"tracing {self._sites} sites now: something was loaded")

    def _note_ends(self) -> None:
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
                if self._family is not None:
                    self._family.forget(pid)
        self.ended = not self._pidfds and (self._family is None or self._family.empty())
        if self.ended:
            self._check_missing(time.monotonic())

    def _check_missing(self, now: float) -> None:
        # What was asked for and never came is an error, unless other probes are traced already:
        # their events are worth more than the complaint.
        missing = [r for r in self._requests if not r.found and not r.told]
        late = self._patience is not None and now >= self._patience
        if not missing or not (self.ended or (late and self._targets.command is None)):
            return
        files = [_File(f.path, "", key) for key, f in self._probes.items()]
        errors = [self._not_found(request, files) for request in missing]
        if not any(request.found for request in self._requests):
            raise errors[0]
        self.notices += [str(error) for error in errors]
        for request in missing:
            request.told = True


def _described(pid: int) -> str:
    # A process by its number and, as long as it lives, its name.
    try:
        return f"process {pid} ({process.command_name(pid)})"
    except TargetError:
        return f"process {pid}"
