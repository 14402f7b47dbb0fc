"""The targets: their processes and when they end, the files they map now and later.

    pids      the files that the processes have mapped, and those they map later
    command   the program and libraries of a command held at its start; then as pids
    cgroups   the files that the processes in them have mapped, and those they map later
    files     the files that the probes name, in every process that runs them, now or later
    all       every file that any process has mapped; the processes that have mapped more since,
              as the kernel reports, are scanned every few seconds

With ``follow``, the children of pids and command are targets as well, see
:mod:`usdt.targets.follow_forks`.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from typing import TYPE_CHECKING

from usdt.base.closeable import Closeable
from usdt.base.errors import ElfError, ProbeNotFound, SyscallError, TargetError, TargetNotFound
from usdt.engine.compiler.codegen.model import TaskFilter
from usdt.procfs import namespaces, process
from usdt.procfs.mapped_files import MapsPoller, file_identity, files_of_processes
from usdt.targets.probe_finders import Searched
from usdt.targets.traced_files import TracedFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from usdt.base.errors import TracingError
    from usdt.bpf.perf.sideband import PerfSideband
    from usdt.engine.run.options import TargetOptions
    from usdt.engine.runtime.session import BpfSession
    from usdt.procfs.mapped_files import FileId
    from usdt.targets.cgroup_targets import CgroupTargets
    from usdt.targets.follow_forks import ForkFollower
    from usdt.targets.spawn import StoppedCommand

__all__ = ("TargetSet",)

RESCAN = 0.05  # seconds between two scans of a process's mappings
RESCAN_CGROUPS = 0.25  # seconds between two scans of the processes in some cgroups
RESCAN_ALL = 2.0  # seconds between two scans for files that any process has mapped
RESCAN_UNCHANGED = 60.0  # of processes that report no mappings: CPUs that come online do not
RESCAN_LOST = 4  # seconds until the next scan for what reports were lost of, for each of one
RESCAN_SHARE = 100  # seconds until the next scan of all processes, for each of CPU time of one


class TargetSet(Closeable):
    """The processes of targets, and their files.

    Args:
        options: the processes to trace; a thread ID selects its process.
        command: the command, held at its start.
        notices: receives messages for the user.

    Attributes:
        pids: the processes; empty if probes fire in every process.
        following: True if their children are followed.
        cgroups: the cgroups in which processes are traced; None: any.
        ended: True if all have ended, as of the last :meth:`reap`.

    Raises:
        TargetError: a process does not exist or cannot be traced.
    """

    _session: BpfSession  # as of watch()

    def __init__(
        self, options: TargetOptions, command: StoppedCommand | None, notices: list[str]
    ) -> None:
        self.ended = False
        self._options = options
        self._command = command
        self._notices = notices
        self._given = self.pids = self._processes()
        self.cgroups = self._cgroups()
        self._namespace = namespaces.nested_pid_namespace()
        self._follower = self._start_following() if options.follow and self.pids else None
        self.following = self._follower is not None
        self._mappings = self._report_mappings() if options.all_processes else None
        self._next_full_scan = 0.0
        self._reports_lost = False  # since the last scan of all processes
        self._maps = [MapsPoller(pid) for pid in self.pids]
        self._next_scan = time.monotonic()
        self._pidfds: dict[int, int] = {}

    def _processes(self) -> tuple[int, ...]:
        if self._command is not None:
            return (self._command.pid,)
        groups = [process.thread_group(pid) for pid in self._options.pids]
        self._notices += [group.note for group in groups if group.note]
        for group in groups:
            if process.is_kernel_thread(group.pid):
                name = process.describe_process(group.pid)
                raise TargetError(f"{name} is a kernel thread: it runs no program")
            if not namespaces.pid_visible_to_bpf(group.pid):
                name = process.describe_process(group.pid)
                raise TargetError(
                    f"{name} is in a child PID namespace: it can only be traced from its own "
                    "namespace or from the initial one"
                )
        return tuple(dict.fromkeys(group.pid for group in groups))

    def _cgroups(self) -> CgroupTargets | None:
        if not self._options.cgroups:
            return None
        from usdt.targets.cgroup_targets import CgroupTargets  # noqa: PLC0415 - few runs need it

        return CgroupTargets(self._options.cgroups)

    def _start_following(self) -> ForkFollower:
        from usdt.targets.follow_forks import ForkFollower  # noqa: PLC0415 - only for -f

        follower = ForkFollower(self.pids, self._namespace)
        self.pids = follower.pids
        self._notices += follower.notices
        return follower

    def _report_mappings(self) -> PerfSideband | None:
        from usdt.bpf.perf.sideband import PerfSideband  # noqa: PLC0415 - only for -a

        with contextlib.suppress(SyscallError):  # not permitted: all processes are scanned
            return PerfSideband()
        return None

    @property
    def task_filter(self) -> TaskFilter:
        """The filter by which programs recognize the processes."""
        cgroups = None if self.cgroups is None else self.cgroups.followed
        if self._follower is not None:
            return TaskFilter((), self._namespace, self._follower.followed, cgroups=cgroups)
        return TaskFilter(self.pids, self._namespace, cgroups=cgroups)

    @property
    def selected(self) -> bool:
        """Whether only some processes are traced: given ones, or those in cgroups."""
        return bool(self.pids) or self.cgroups is not None

    @property
    def searched(self) -> Searched:
        """The processes, for messages about what they lack."""
        return Searched.of(self.pids, "" if self.cgroups is None else self.cgroups.written)

    @property
    def scan_interval(self) -> float | None:
        """Seconds between two scans for new files; None if there is nothing to scan."""
        if self.pids:
            return RESCAN
        if self.cgroups is not None:
            return RESCAN_CGROUPS
        return RESCAN_ALL if self._options.all_processes else None

    def close(self) -> None:
        """Release all resources; idempotent."""
        pidfds, self._pidfds = self._pidfds, {}
        for number in pidfds.values():
            os.close(number)
        for one in (self._follower, self._mappings, self.cgroups):
            if one is not None:
                one.close()

    # ------------------------------------------------------------ files

    def files_by_pattern(self, pattern: str) -> list[TracedFile]:
        """Return the files that a pattern selects, for every process that runs them.

        Raises:
            TargetError: there is no such file.
        """
        from usdt.targets.search.target_files import resolve_targets  # noqa: PLC0415 - not for -p alone

        return [
            TracedFile(target.path, target.open_path, file_identity(target.open_path))
            for target in resolve_targets(pattern)
        ]

    def named_files(self, name: str, read: Callable[[TracedFile], None]) -> list[TracedFile]:
        """Return the files of a TARGET argument, one for each process.

        Args:
            name: the argument; with processes, resolved in their mount namespaces.
            read: reads a file; its errors are raised, except about children found by ``follow``.

        Returns:
            With cgroups, nothing if no process in them has the file yet: see :meth:`named_again`.

        Raises:
            TargetError: there is no such file, or it cannot be read.
        """
        if self._in_cgroups is not None:
            return self._named_in_cgroups(name, self._in_cgroups, read)
        found = []
        for pid in self.pids or (0,):
            try:
                file = self._named_file(name, pid)
                read(file)
            except (ElfError, TargetError):
                if not self._is_child(pid):
                    raise
            else:
                found.append(file)
        return found

    def _named_in_cgroups(
        self, name: str, cgroups: CgroupTargets, read: Callable[[TracedFile], None]
    ) -> list[TracedFile]:
        # A process that has the file may start later; what is wrong with a file is an error.
        found: dict[FileId, TracedFile] = {}
        failures: list[TracingError] = []
        note = f"{cgroups.written}: no process is in it yet: waiting for one that has {name}"
        for pid in cgroups.processes():
            try:
                file = self._named_file(_path_inside(name), pid)
                read(file)
                found.setdefault(file.identity, file)
            except TargetNotFound as err:
                note = f"{err}: waiting for a process in {cgroups.written} that has it"
            except (ElfError, ProbeNotFound, TargetError) as err:
                failures.append(err)
        if failures and not found:
            raise failures[0]
        if not found and note not in self._notices:
            self._notices.append(note)
        return list(found.values())

    def named_again(self, name: str, files: Iterable[TracedFile]) -> list[TracedFile]:
        """Return the files of a TARGET argument in the processes in cgroups that mapped ``files``.

        Processes that have no such file, or have ended, are passed over.
        """
        found: dict[FileId, TracedFile] = {}
        roots = {file.root_pid for file in files} if self._in_cgroups is not None else set()
        for pid in sorted(roots):
            with contextlib.suppress(TargetError):
                file = self._named_file(_path_inside(name), pid)
                found.setdefault(file.identity, file)
        return list(found.values())

    def _named_file(self, name: str, pid: int) -> TracedFile:
        # A command has not run yet: names mean what they mean here.
        from usdt.targets.search.target_files import resolve_target  # noqa: PLC0415 - not for -p alone

        root_pid = 0 if self._command is not None else pid
        target = resolve_target(name, pid=root_pid or None)
        identity = file_identity(target.open_path)
        return TracedFile(target.path, target.open_path, identity, self._attach_pid(pid), root_pid)

    def _attach_pid(self, pid: int) -> int:
        # The only process to attach in; 0 (all) if children are followed: they may map other files.
        # The kernel looks for the memory of the first thread, which may have ended before others.
        if self.following or not self.pids:
            return 0
        with contextlib.suppress(TargetError):  # it has ended
            return pid if process.has_memory(pid) else 0
        return pid

    def _is_child(self, pid: int) -> bool:
        # Found by -f; errors about it are not fatal.
        return self.following and pid not in self._given

    def files(self) -> Iterator[TracedFile]:
        """Yield the files that the processes have mapped, or that the command will map.

        Raises:
            TargetError: a process cannot be inspected.
        """
        if self._in_cgroups is not None:
            yield from self._newly_in_cgroups(self._in_cgroups)
        elif self._options.all_processes:
            yield from self._newly_mapped_anywhere()
        elif self._command is not None:
            yield from self._command_files(self._command)
        else:
            for maps in self._maps:
                try:
                    yield from self._newly_mapped(maps)
                except TargetError:
                    if not self._is_child(maps.pid):
                        raise

    def files_again(self) -> Iterator[TracedFile]:
        """Yield the files that the processes have mapped by now, also those reported before.

        Raises:
            TargetError: a process cannot be inspected.
        """
        if self._in_cgroups is not None:
            self._in_cgroups.forget_files()
            yield from self._newly_in_cgroups(self._in_cgroups)
            return
        if self._options.all_processes or self.following:  # a child may have mapped any file
            yield from _mapped_anywhere()
            return
        self._maps = [MapsPoller(pid) for pid in self.pids]
        for maps in self._maps:
            yield from self._newly_mapped(maps)

    def _command_files(self, command: StoppedCommand) -> Iterator[TracedFile]:
        for path in command.files():
            yield TracedFile(path, path, file_identity(path), self._attach_pid(command.pid))
        # Programs that children are likely to execute.
        for path in command.guess_programs() if self.following else ():
            with contextlib.suppress(TargetError):
                yield TracedFile(path, path, file_identity(path))

    @property
    def _in_cgroups(self) -> CgroupTargets | None:
        # The cgroups whose processes are the targets.
        return None if self.pids else self.cgroups

    def _newly_in_cgroups(self, cgroups: CgroupTargets) -> Iterator[TracedFile]:
        for pid, file in cgroups.new_files():
            if file.open_path is not None:
                yield TracedFile(file.path, file.open_path, file.identity, root_pid=pid)
        self._notices += cgroups.notices
        cgroups.notices.clear()

    def _newly_mapped_anywhere(self) -> Iterator[TracedFile]:
        now = time.monotonic()
        pids = self._mappings.take_pids() if self._mappings is not None else None
        if pids is None or now >= self._next_full_scan:
            self._next_full_scan = now + RESCAN_UNCHANGED
            pids = {*process.processes()}
        yield from _mapped_in(sorted(pids))

    def _newly_mapped(self, maps: MapsPoller) -> Iterator[TracedFile]:
        files = maps.changed()
        pid = self._attach_pid(maps.pid) if files else 0
        for file in files:
            if file.open_path is None:
                self._notices.append(
                    f"{file.path} of process {maps.pid} cannot be opened (deleted); this "
                    "needs CAP_SYS_ADMIN"
                )
            else:
                yield TracedFile(file.path, file.open_path, file.identity, pid)

    def new_files(self) -> list[TracedFile]:
        """Return files that may have been mapped since the last call.

        Scans are ``scan_interval`` apart; what the kernel reports is returned at every call.

        Raises:
            TargetError: a process cannot be inspected.
        """
        found: list[TracedFile] = []
        for file in self._follower.fresh() if self._follower is not None else ():
            if file is None:
                self._reports_lost = True
            else:
                found.append(file)
        if self.cgroups is not None:
            self.cgroups.update()
        now = time.monotonic()
        if self._reports_lost and now >= self._next_full_scan:
            # Reports are lost on busy machines, where a scan takes long: events come between two.
            self._reports_lost = False
            found += _mapped_anywhere()
            ended = time.monotonic()
            self._next_full_scan = ended + RESCAN_LOST * (ended - now)
        if now < self._next_scan:
            return found
        self._next_scan = now + (self.scan_interval or 0)
        if self._in_cgroups is not None:
            found += self._newly_in_cgroups(self._in_cgroups)
        elif self._options.all_processes:
            began = time.thread_time()
            found += self._newly_mapped_anywhere()
            self._next_scan = now + max(RESCAN_ALL, RESCAN_SHARE * (time.thread_time() - began))
        elif self.following:
            self.reap()  # also while events keep coming: the ID may be reused
        else:
            for maps in self._maps:
                found += self._newly_mapped(maps)
        return found

    # ------------------------------------------------------------ ends of processes

    def watch(self, session: BpfSession) -> None:
        """Let the session's poll() return when a process ends, or the kernel reports a new file."""
        self._session = session
        for pid in self.pids:
            try:
                self._pidfds[pid] = process.open_pidfd(pid)
                session.watch(self._pidfds[pid])
            except TargetError:  # it has ended: the next scan notices that
                if self._follower is not None and not process.pid_exists(pid):
                    self._follower.forget(pid)
        for source in (self._follower, self.cgroups):
            for number in source.descriptors if source is not None else ():
                session.watch(number)

    def reap(self) -> None:
        """Notice which processes have ended, after :meth:`watch`."""
        poller = select.poll()  # a pidfd is readable when the whole process has ended
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

    def children_note(self) -> str:
        """Return a message if the processes have children, which are not traced; else ""."""
        if self.following or not self.pids:
            return ""
        from usdt.targets.follow_forks import descendants  # noqa: PLC0415 - only for this message

        if not any(True for _ in descendants(self.pids)):
            return ""
        if len(self.pids) > 1:
            return "no hits so far: the children of these processes are not traced; add -f"
        who = process.describe_process(self.pids[0])
        return f"{who}: no hits so far, and its children are not traced; add -f"

    def loss_notes(self) -> list[str]:
        """Return messages about children that could not be followed."""
        return [] if self._follower is None else list(self._follower.loss_notes())


def _path_inside(name: str) -> str:
    # A path is one of the container's, with or without its first slash.
    return f"/{name}" if "/" in name and name[0] not in "/~" else name


def _mapped_anywhere() -> Iterator[TracedFile]:
    return _mapped_in(process.processes())


def _mapped_in(pids: Iterable[int]) -> Iterator[TracedFile]:
    for path, open_path, identity in files_of_processes(pids, skip_errors=True):
        yield TracedFile(path, open_path, identity)
