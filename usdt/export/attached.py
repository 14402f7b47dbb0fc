"""Attached probes in the processes that targets select: now, and as these start and end."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from usdt.base.errors import TargetError, TracingError
from usdt.base.text import plural
from usdt.cgroups.hierarchy import mounted_hierarchy
from usdt.cgroups.selection import CgroupSelection
from usdt.engine.run.attach import attach_probes
from usdt.engine.run.options import TargetOptions
from usdt.procfs.process import command_name
from usdt.targets.search.target_files import is_file_pattern, resolve_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from usdt.engine.compiler.codegen.model import TaskFilter
    from usdt.engine.language.tree import ProbeText
    from usdt.engine.run.options import TraceOptions
    from usdt.engine.runtime.session import BpfSession
    from usdt.export.config import Targets
    from usdt.export.programs import Programs

__all__ = ("Attachment", "Part", "Standing", "lost_of")

_RETRY, _LONGEST_RETRY = 5.0, 300.0  # seconds between two attempts to attach


class Attachment:
    """Probes attached in some processes, until these end.

    Args:
        targets: the processes.
        pids: those of ``targets`` that exist now; empty for all that it selects.
        requests: the probes, in the order of attaching.
        session: makes the session.
        options: how to attach.
    """

    def __init__(
        self,
        targets: Targets,
        pids: Sequence[int],
        requests: Sequence[ProbeText],
        session: Callable[[TaskFilter], BpfSession],
        options: TraceOptions,
    ) -> None:
        self.pids = frozenset(pids)
        chosen = TargetOptions(
            pids=tuple(pids),
            all_processes=targets.every,
            library_timeout=None,
            cgroups=targets.cgroups,
        )
        with contextlib.ExitStack() as stack:
            self.targets = attach_probes(stack, chosen, requests, session, options).targets
            self._resources = stack.pop_all()
        # Where processes are given, a path is one of theirs, and the tracer looks for it.
        anywhere = not (pids or targets.cgroups)
        named = [probe for probe in requests if anywhere and _named_file(probe)]
        self._files = {probe: _identity(probe) for probe in named}

    def update(self) -> Iterator[str]:
        """Attach in files that were replaced; yield messages."""
        for probe, known in self._files.items():
            now = _identity(probe)
            if now not in (known, None):  # what runs the old file stays attached
                self._files[probe] = now
                self.targets.add([probe])
                yield f"{probe.path}: updated; now tracing {plural(self.targets.attached, 'site')}"
        yield from self.targets.notices
        self.targets.notices.clear()

    @property
    def ended(self) -> bool:
        """Whether all processes have ended; never without given ones."""
        return bool(self.pids) and self.targets.ended

    def close(self) -> None:
        """Detach and release everything."""
        self._resources.close()


def lost_of(attachment: Attachment) -> Iterator[tuple[tuple[str, str], int]]:
    """Yield (probe, reason) and the hits that were lost."""
    for lost in attachment.targets.lost():
        yield (lost.probe, "space"), lost.lost
        yield (lost.probe, "unreadable"), lost.unread


def _named_file(probe: ProbeText) -> bool:
    return probe.path is not None and not is_file_pattern(probe.path)


def _identity(probe: ProbeText) -> tuple[int, int] | None:
    # Device and inode of a probe's file; None while it is being replaced.
    try:
        found = os.stat(resolve_target(probe.path or "").open_path)  # noqa: PTH116 - no Path needed
    except (OSError, TracingError):
        return None
    return found.st_dev, found.st_ino


class Part(Protocol):
    """A session, and where its probes are attached."""

    attachment: Attachment

    def look(self) -> None:
        """Take what has arrived."""


P = TypeVar("P", bound=Part)


class Standing(Generic[P]):
    """Probes that stay attached where their targets are; a part is the processes found at once.

    Args:
        name: of what is measured, for messages.
        targets: the processes.
        programs: the processes by their programs' names.
        make: attaches in some processes.
        retire: keeps the results of a part whose probes are detached.

    Attributes:
        parts: what is attached.
        error: why nothing is attached; "" if something is.
        absent: whether the error is that the targets do not exist now.
        messages: what the user must know; the reader removes them.
    """

    def __init__(
        self,
        name: str,
        targets: Targets,
        programs: Programs,
        make: Callable[[Sequence[int]], P],
        retire: Callable[[P], Any],
    ) -> None:
        self.parts: list[P] = []
        self.error = ""
        self.absent = False
        self.messages: list[str] = []
        self._name = name
        self._selected = targets
        self._programs = programs
        self._make, self._retired = make, retire
        self._next, self._pause = 0.0, _RETRY
        self._tried: list[int] = []
        self._lost: Counter[tuple[str, str]] = Counter()

    def look(self) -> None:
        """Attach in new processes and files; let go of those that have ended."""
        for part in list(self.parts):
            try:
                part.look()
                self.messages += part.attachment.update()
            except TracingError as err:
                if not part.attachment.ended:
                    self.messages.append(f"{self._name}: {err}")
            if part.attachment.ended:
                self._retire(part)
        due = time.monotonic() >= self._next
        if due or self._selected.program:
            self._attach_new(due=due)

    def _attach_new(self, *, due: bool) -> None:
        self.absent = True
        try:
            fresh = self._new_processes()
            self.absent = False
            if fresh is None or not (due or fresh != self._tried):
                return
            self._tried = fresh
            self.parts.append(self._make(fresh))
        except TracingError as err:
            self._fail(str(err))
        else:
            self.error, self._pause = "", _RETRY

    def _fail(self, error: str) -> None:
        if error != self.error:
            self.error = error
            self.messages.append(f"{self._name}: not attached, tried again later: {error}")
        self._next = time.monotonic() + self._pause
        if not (self._selected.every or self._selected.cgroups):  # in which a program may start
            self._pause = min(_LONGEST_RETRY, 2 * self._pause)

    def _new_processes(self) -> list[int] | None:
        # The processes to attach in now, none for every process; None if nothing is new.
        chosen = self._selected
        if not chosen.program:
            if self.parts:
                return None
            for pid in chosen.pids:
                command_name(pid)  # raises if the process has ended
            if chosen.cgroups:
                CgroupSelection(chosen.cgroups, mounted_hierarchy()).first()
            return list(chosen.pids)
        known = {pid for part in self.parts for pid in part.attachment.pids}
        try:
            found = self._programs.named(chosen.program)
        except TargetError:
            if known:
                return None
            raise
        return [pid for pid in found if pid not in known] or None

    def _retire(self, part: P) -> None:
        # Results stay when a process has ended.
        try:
            self._retired(part)
            self._lost.update(dict(lost_of(part.attachment)))
        finally:
            part.attachment.close()
            self.parts.remove(part)

    @property
    def processes(self) -> int | None:
        """The number of processes in which probes are attached; None if any may run them."""
        if not (self._selected.program or self._selected.pids):
            return None
        return sum(len(part.attachment.pids) for part in self.parts)

    def lost(self) -> Counter[tuple[str, str]]:
        """Return the hits that were lost, by probe and reason."""
        found = Counter(self._lost)
        for part in self.parts:
            found.update(dict(lost_of(part.attachment)))
        return found

    def close(self) -> None:
        """Detach; idempotent."""
        for part in list(self.parts):
            self._retire(part)
