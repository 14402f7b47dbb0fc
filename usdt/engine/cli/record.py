"""``record`` of every front: records go to a file as they are."""

from __future__ import annotations

import contextlib
import os
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import click

from usdt.base.frozen import frozen
from usdt.engine.cli.losses import closing_line, tell_losses
from usdt.engine.cli.options import stacks_of
from usdt.engine.cli.running import Front, run, say
from usdt.engine.cli.trace import via_of
from usdt.engine.recording.description import Header
from usdt.engine.recording.writer import Recorder
from usdt.engine.runtime.session import RingBufferSession

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from usdt.engine.compiler.codegen.model import TaskFilter
    from usdt.engine.language.tree import ProbeText
    from usdt.engine.output.output_file import OutputFile
    from usdt.engine.recording.processes import Snapshots
    from usdt.engine.runtime.attach.attach_points import AttachPoint
    from usdt.engine.runtime.attach.requests import AttachFailure
    from usdt.engine.runtime.session import Lost

__all__ = ("Binaries", "run_record")


@frozen
class Binaries:
    """What a front knows of files and processes, for the names in reports.

    Attributes:
        build_id: of a traced file, "" where it has none.
        symbols: makes what knows processes.
    """

    build_id: Callable[[str], str]
    symbols: Callable[[], Snapshots]


def run_record(front: Front, options: dict[str, Any], binaries: Binaries) -> int:
    """Record every hit; the exit code.

    Args:
        front: where the probes come from.
        options: of the decorators in :mod:`usdt.engine.cli.options`, and ``probes``; an output of
        "-"
            is standard output.
        binaries: what the front knows of them.
    """
    if options["output"] == "-":
        if options["command"] is not None:
            raise click.UsageError("-o - and -c: the command may write there, too; give a file")
        if os.isatty(1):
            raise click.UsageError("-o -: a recording is not for a terminal; give a file or a pipe")
        options["output"] = None
    requests = [front.parse(text) for text in options["probes"]]
    with contextlib.closing(Recorder(binaries.symbols)) as recorder:
        return run(front, options, requests, _Job(options, recorder, binaries.build_id))


class _Recording(RingBufferSession):
    """A session that also notes which files it attaches to."""

    def __init__(self, recorder: Recorder, build_id: Callable[[str], str], **more: Any) -> None:
        super().__init__(recorder, **more)
        self._recorder = recorder
        self._build_id = build_id
        self._seen: set[str] = set()

    def attach(
        self, request: ProbeText, points: Sequence[AttachPoint], *, declared: int | None = None
    ) -> list[AttachFailure]:
        failures = super().attach(request, points, declared=declared)
        for point in points:
            if point.open_path not in self._seen:
                self._seen.add(point.open_path)
                self._recorder.file(point.path, self._build_id(point.open_path))
        return failures


class _Job:
    def __init__(
        self, options: dict[str, Any], recorder: Recorder, build_id: Callable[[str], str]
    ) -> None:
        self.options = options
        self.recorder = recorder
        self.build_id = build_id
        self.tool = f"usdt-toolkit {version('usdt-toolkit')}"
        self.pids: tuple[int, ...] = ()
        self.header: Header

    def session(self, accept: TaskFilter) -> RingBufferSession:
        options = self.options
        self.pids = accept.pids
        words = [os.path.basename(sys.argv[0]), *sys.argv[1:]]  # noqa: PTH119 - no Path for a name
        self.header = Header.here(self.tool, words, options["probes"])  # before the first record
        return _Recording(
            self.recorder,
            self.build_id,
            accept=accept,
            buffer=options["buffer"],
            max_string=options["max_string"],
            max_struct=options["max_struct"],
            via=via_of(options),
            stacks=stacks_of(options),
        )

    def begin(self, sink: OutputFile) -> None:
        self.recorder.begin(self.header, sink)
        self.recorder.look(pids=self.pids)

    def take(self, batch: list[bytes]) -> bool:
        most = self.options["count"]
        for data in batch:
            self.recorder.write(data, None if most is None else most - self.recorder.records)
        return most is not None and self.recorder.records >= most

    def look(self) -> bool:
        self.recorder.look(pids=self.pids)
        self.recorder.tick()
        self._notices()
        return False

    def until_look(self) -> float:
        return self.recorder.left()

    def finish(self, lost: list[Lost]) -> str:
        self.recorder.end(lost)
        self._notices()
        if self.options["verbose"]:
            say(f"{self.recorder.size} bytes written")
        tell_losses(lost)
        return closing_line(self.recorder.records, lost)

    def _notices(self) -> None:
        for notice in self.recorder.notes.take_notices() if self.recorder.notes else ():
            say(notice)
