"""``record``: write unformatted records to a file."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from usdt.base.frozen import replace
from usdt.base.version import VERSION
from usdt.engine.cli.click_group import plural, say
from usdt.engine.cli.options import parse_options, parse_requests
from usdt.engine.cli.running import closing_line, report_losses, run_command
from usdt.engine.cli.spans import spec_of
from usdt.engine.cli.trace import symbolizer
from usdt.engine.output.parquet import is_parquet
from usdt.engine.recording.description import Header
from usdt.engine.recording.writer import Recorder
from usdt.engine.run.attach import session_settings
from usdt.engine.runtime.session import RingBufferSession
from usdt.engine.spans.session import SpanSession

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from usdt.engine.cli.options import CommandOptions
    from usdt.engine.compiler.codegen.model import TaskFilter
    from usdt.engine.language.tree import ProbeKind, ProbeText
    from usdt.engine.output.output_file import OutputFile
    from usdt.engine.runtime.attach.attach_points import AttachPoint
    from usdt.engine.runtime.attach.requests import AttachFailure
    from usdt.engine.runtime.session import Lost
    from usdt.engine.spans.spec import SpanSpec

__all__ = ("run_record",)


def run_record(kind: ProbeKind, values: dict[str, Any], build_id: Callable[[str], str]) -> int:
    """Record every hit.

    Args:
        kind: the kind of a probe that names none.
        values: the values parsed by click; an output of "-" is standard output.
        build_id: returns the build ID of a traced file, "" if it has none.

    Returns:
        The exit code.

    Raises:
        click.UsageError: "-" is a terminal, or was given with -c.
        TracingError: as from run_command().
    """
    if is_parquet(values["output"]):
        raise click.UsageError(
            f"-o {values['output']}: a recording is no Parquet; make it with: usdt report"
        )
    if values["output"] == "-":
        if values["command"] is not None:
            raise click.UsageError("-o - excludes -c, whose output would mix with it; give a file")
        if os.isatty(1):
            raise click.UsageError("-o -: standard output is a terminal; give a file or a pipe")
        values["output"] = None
    spec = _spans(kind, values) if values.get("spans") else None
    requests = parse_requests(values["probes"], kind) if spec is None else spec.requests
    keys = () if spec is None or spec.end is None else (*spec.key.items, *spec.end_key.items)
    calls = spec is not None and spec.end is None
    options = parse_options(requests, values, keys=keys, calls=calls)
    # A recording holds the strings of traced processes.
    options = replace(options, output=replace(options.output, private=True))
    with contextlib.closing(Recorder(symbolizer(options))) as recorder:
        return run_command(options, RecordJob(options, recorder, build_id, spec))


def _spans(kind: ProbeKind, values: dict[str, Any]) -> SpanSpec:
    probes = values["probes"]
    if len(probes) > 2:
        raise click.UsageError(f"--spans takes START [END], not {len(probes)} probes")
    return spec_of(kind, probes[0], probes[1] if len(probes) > 1 else None, values)


class _FileRecording(RingBufferSession):
    """A session that also records the files it attaches to."""

    def __init__(self, recorder: Recorder, build_id: Callable[[str], str], **more: Any) -> None:
        super().__init__(form=recorder, **more)
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


class _SpanRecording(_FileRecording, SpanSession):
    """The same for spans."""


class RecordJob:
    """A run of ``record``: writes unformatted records to a recording."""

    def __init__(
        self,
        options: CommandOptions,
        recorder: Recorder,
        build_id: Callable[[str], str],
        spec: SpanSpec | None = None,
    ) -> None:
        self._spec = spec
        self._options = options
        self._recorder = recorder
        self._build_id = build_id
        self._pids: tuple[int, ...] = ()
        self._header: Header

    def session(self, tasks: TaskFilter) -> RingBufferSession:
        """Make the session, and the header of the recording."""
        trace = self._options.trace
        self._pids = tasks.pids
        tool = f"usdt-toolkit {VERSION}"
        words = [os.path.basename(sys.argv[0]), *sys.argv[1:]]  # noqa: PTH119 - a Path is not needed
        probes = [request.text for request in self._options.requests]
        self._header = Header.here(tool, words, probes)  # its time must precede the first record
        settings = session_settings(trace, self._options.requests, tasks)
        if self._spec is not None:
            return _SpanRecording(self._recorder, self._build_id, spec=self._spec, **settings)
        return _FileRecording(self._recorder, self._build_id, **settings)

    def begin(self, output: OutputFile) -> None:
        """Write the header."""
        self._recorder.begin(self._header, output)
        self._recorder.look(pids=self._pids)

    def take(self, batch: list[bytes]) -> bool:
        """Write records; return True once -n is reached."""
        limit = self._options.run.count
        for data in batch:
            self._recorder.write(data, None if limit is None else limit - self._recorder.records)
        return limit is not None and self._recorder.records >= limit

    def tick(self) -> bool:
        """Write blocks that are due, and record the mappings of processes."""
        self._recorder.look(pids=self._pids)
        self._recorder.tick()
        self._report_notices()
        return False

    def until_tick(self) -> float:
        """Return the seconds until a block is due."""
        return self._recorder.left()

    def hits(self) -> int:
        """Return the number of records so far."""
        return self._recorder.records

    def finish(self, lost: list[Lost]) -> str:
        """Write the closing block; return the closing line."""
        self._recorder.end(lost)
        self._report_notices()
        if self._options.run.verbose:
            say(f"{plural(self._recorder.size, 'byte')} written")
        report_losses(lost)
        return closing_line(self._recorder.records, lost)

    def _report_notices(self) -> None:
        for notice in self._recorder.snapshots.take_notices() if self._recorder.snapshots else ():
            say(notice)
