"""One run of a tracing command, from its options to its closing line.

:func:`usdt.engine.run.loop.run_loop` is the loop. This module reports what is attached, messages,
losses and the closing line.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from usdt.base.durations import FOREVER, duration_text
from usdt.base.errors import TracingError, VerifierError
from usdt.base.frozen import replace
from usdt.base.interrupts import signals
from usdt.bpf.capabilities import missing_capabilities, privilege_hint
from usdt.engine.cli.click_group import plural, say, warn
from usdt.engine.output.output_file import OutputFile
from usdt.engine.output.wall_clock import WallClock
from usdt.engine.run.attach import attach_probes
from usdt.engine.run.loop import StopSignals, run_loop
from usdt.engine.run.options import TRACEFS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from usdt.engine.cli.options import CommandOptions
    from usdt.engine.compiler.codegen.model import TaskFilter
    from usdt.engine.language.tree import ProbeText
    from usdt.engine.run.attach import AttachedProbes
    from usdt.engine.run.loop import ResultOutput
    from usdt.engine.run.options import RunOptions
    from usdt.engine.run.protocols import SpawnedCommand, TracedTargets
    from usdt.engine.runtime.session import BpfSession, Lost

__all__ = ("closing_line", "report_losses", "run_command", "warn_by_probe")

_MOST_PROBES = 8  # that a warning names: a pattern may have found thousands

_SERVICE = "SYSTEMD_EXEC_PID"  # systemd names the process that it has started (systemd 248)
_SECOND = 1_000_000_000  # nanoseconds
_QUIET_SECONDS = 2.0  # time without a hit after which a run says that children are not traced


def run_command(
    options: CommandOptions, results: ResultOutput, requests: Sequence[ProbeText] | None = None
) -> int:
    """Run a tracing command.

    Args:
        options: options of the command.
        results: takes the records.
        requests: the probes in the order of attaching; by default those of the options.

    Returns:
        The exit code.

    Raises:
        TracingError: tracing is not permitted, or a probe cannot be attached.
    """
    try:
        return _run(options, results, options.requests if requests is None else requests)
    except VerifierError as err:
        if options.run.verbose:
            for line in err.log.splitlines():
                say(line)
        raise


def _run(options: CommandOptions, results: ResultOutput, requests: Sequence[ProbeText]) -> int:
    if options.trace.via != TRACEFS and missing_capabilities():
        raise TracingError(f"tracing is not permitted: {privilege_hint()}{_without_bpf()}")
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(_output_file(options))
        since = _on_monotonic(options.run.at)

        def session(tasks: TaskFilter) -> BpfSession:
            return results.session(replace(tasks, since=since))

        attached = attach_probes(stack, options.targets, requests, session, options.trace)
        targets = attached.targets
        stop = stack.enter_context(StopSignals(targets.wake))
        if options.output.as_json:
            _write_header(options, output)
        results.begin(output)
        # Only now: whoever waits for this message may let the process end.
        _report_attached(attached, options.run)
        attached.release()
        _drop(options, requests, attached)
        hint = _ChildrenHint(targets, results, since / _SECOND)

        def on_idle() -> None:
            output.check_reader()
            hint.look()

        closing = run_loop(
            targets,
            results,
            stop,
            duration=options.run.duration,
            since=since / _SECOND,
            on_poll=lambda: _report_notices(targets),
            on_idle=on_idle,
        )
        hint.look(ended=True)
        say(closing)
        if attached.command is not None:
            code = _end(attached.command)
            return code if options.run.exit_code else 0
    return 0


def _write_header(options: CommandOptions, output: OutputFile) -> None:
    from usdt.engine.output.streams.header import StreamHeader  # noqa: PLC0415 - for JSON alone
    from usdt.engine.output.streams.json_stream import JsonStream  # noqa: PLC0415 - the same

    if isinstance(output, JsonStream):
        probes = [request.text for request in options.requests]
        output.write_header(StreamHeader.here(options.command, probes, options.by))


def _output_file(options: CommandOptions) -> OutputFile:
    if options.output.pictures is not None:
        from usdt.engine.cli.pictures.output import PictureOutput  # noqa: PLC0415 - few runs

        title = " → ".join(request.text for request in options.requests)
        return PictureOutput(options.output.pictures, title)
    made = OutputFile
    if options.output.as_json:
        from usdt.engine.output.streams.json_stream import JsonStream  # noqa: PLC0415 - few runs

        made = JsonStream
    if options.output.parquet:
        from usdt.engine.output.parquet.stream import LiveParquetStream  # noqa: PLC0415 - few runs

        made = LiveParquetStream
    return made(options.output.path, private=options.output.private)


def _drop(options: CommandOptions, requests: Sequence[ProbeText], attached: AttachedProbes) -> None:
    wanted = options.run.drop
    if wanted is None:
        wanted = os.environ.get(_SERVICE) == str(os.getpid())
    if not wanted:
        return
    from usdt.engine.run.dropping import keep_needed, needed_later  # noqa: PLC0415 - few runs

    searching = attached.targets.searching
    later = needed_later(
        options.targets, options.trace, options.output, requests, searching=searching
    )
    said = keep_needed(later)
    if options.run.verbose:
        for line in said:
            say(line)


class _ChildrenHint:
    # Says once that children are not traced, if the processes have some and no probe was hit: the
    # main process of a service often only starts others.
    def __init__(self, targets: TracedTargets, results: ResultOutput, since: float) -> None:
        self._targets = targets
        self._results = results
        self._due = max(since, time.monotonic()) + _QUIET_SECONDS

    def look(self, *, ended: bool = False) -> None:
        if not ended and time.monotonic() < self._due:
            return
        if self._due == FOREVER:
            return
        self._due = FOREVER
        note = "" if self._results.hits() else self._targets.children_note()
        if note:
            say(note)


def _on_monotonic(moment: int | None) -> int:
    # The nanoseconds of CLOCK_MONOTONIC at a moment since 1970, after that of the boot.
    if moment is None:
        return 0
    from usdt.engine.output.streams.header import Clock  # noqa: PLC0415 - few runs

    clock = Clock.now()
    return max(1, moment - clock.realtime + clock.monotonic)


def _report_attached(attached: AttachedProbes, run: RunOptions) -> None:
    if run.verbose:
        for line in attached.targets.attach_log:
            say(line)
    if run.verbose > 1:
        for line in attached.targets.listings:
            say(line)
    _report_notices(attached.targets)
    if run.at is not None:
        late = time.time_ns() - run.at
        if late > 0:
            say(f"attached {duration_text(late)} after --at: hits before are missed")
        else:
            say(f"hits before {WallClock(0).iso(run.at)} do not count")
    say(f"tracing {plural(attached.sites, 'site')}; end with ^C")


def _report_notices(targets: TracedTargets) -> None:
    for notice in targets.notices:
        say(notice)
    targets.notices.clear()


def _without_bpf() -> str:
    # The alternative for a user without BPF privileges who may write tracefs.
    from usdt.tracefs.mount import find_tracefs  # noqa: PLC0415 - only for a message

    root = find_tracefs()
    if root is None or not os.access(root / "uprobe_events", os.W_OK):
        return ""
    return "; tracefs is writable: usdt trace --via tracefs needs no BPF"


def _end(command: SpawnedCommand) -> int:
    # Ends the command with the trace, as perf and bpftrace do. Returns the exit code.
    code = command.end()
    if code is None:
        say(f"the command (process {command.pid}) has not ended after SIGTERM and goes on")
        return 128 + signals.SIGTERM
    return code


def report_losses(lost: Sequence[Lost]) -> None:
    """Report the losses by probe."""
    warn_by_probe(
        [(item.probe, item.unread) for item in lost],
        lambda count: f"skipped {plural(count, 'hit')} with an unreadable predicate",
    )
    warn_by_probe(
        [(item.probe, item.lost) for item in lost],
        lambda count: f"{plural(count, 'event')} lost; a larger --buffer or --backlog may help",
    )


def warn_by_probe(counts: Sequence[tuple[str, int]], text: Callable[[int], str]) -> None:
    """Warn of what probes have counted: a line for each, of those with the most if there are many.

    Args:
        counts: pairs of a probe and its number; there is no warning of 0.
        text: returns what a number of them means, for one probe or for several.
    """
    found = [(probe, count) for probe, count in counts if count]
    most = found
    if len(found) > _MOST_PROBES:
        found.sort(key=lambda pair: -pair[1])
        most = found[:_MOST_PROBES]
    for probe, count in most:
        warn(f"{probe}: {text(count)}")
    others = [count for _, count in found[len(most) :]]
    if others:
        warn(f"{plural(len(others), 'other probe')}: {text(sum(others))}")


def closing_line(events: int, lost: Sequence[Lost]) -> str:
    """Return the last line of a run: ``N events, M lost``."""
    return f"{plural(events, 'event')}, {sum(item.lost for item in lost)} lost"
