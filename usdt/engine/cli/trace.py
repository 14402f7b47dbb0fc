"""``trace`` of every front: records become lines."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any, cast

import click

from usdt.bpf.link import UprobeMethod
from usdt.engine.cli.losses import closing_line, tell_losses
from usdt.engine.cli.options import TRACEFS, check_lines, stacks_of
from usdt.engine.cli.running import Front, run, say
from usdt.engine.output.formatters import FoldedFormatter, JsonFormatter, TextFormatter, titled
from usdt.engine.output.stacks import StackResolver, wants_user_symbols
from usdt.engine.runtime.session import RingBufferSession

if TYPE_CHECKING:
    from usdt.engine.compiler.codegen.model import TaskFilter
    from usdt.engine.output.formatters import Formatter
    from usdt.engine.output.output_file import OutputFile
    from usdt.engine.output.stacks import UserSymbols
    from usdt.engine.runtime.session import BpfSession, Lost

__all__ = ("resolver_of", "run_trace", "via_of")

_SEQUENCE = 16  # functions that -s can follow


def run_trace(front: Front, options: dict[str, Any]) -> int:
    """Print every hit; the exit code.

    Args:
        front: where the probes come from.
        options: of the decorators in :mod:`usdt.engine.cli.options`, and ``probes``.
    """
    if options["folded"] and options["as_json"]:
        raise click.UsageError("--folded and --json exclude one another")
    if options["via"] == TRACEFS and (stacks_of(options) or options["follow"]):
        raise click.UsageError("--via tracefs records no stacks, and follows no children (-f)")
    if options["sequence"]:
        _check_sequence(options)
    requests = [front.parse(text) for text in options["probes"]]
    wanted = "ustack" in stacks_of(options) or any(map(wants_user_symbols, requests))
    with resolver_of(front, lines=check_lines(options, names=wanted)) as resolver:
        resolver.wanted = wanted
        resolver.begin(())
        return run(front, options, requests, _Job(options, resolver))


def _check_sequence(options: dict[str, Any]) -> None:
    if options["via"] == TRACEFS:
        raise click.UsageError("-s needs BPF, which --via tracefs does without")
    if not 2 <= len(options["probes"]) <= _SEQUENCE:
        raise click.UsageError(
            f"-s takes 2 to {_SEQUENCE} functions, the outermost first, "
            f"not {len(options['probes'])}"
        )


def resolver_of(front: Front, *, lines: bool = False) -> StackResolver:
    """Names for stacks and addresses of the processes that a front knows; made when needed."""

    def make() -> UserSymbols | None:
        symbols = front.symbols()
        return None if symbols is None else symbols()

    return StackResolver(make, lines=lines)


def via_of(options: dict[str, Any]) -> UprobeMethod | None:
    """What ``--via`` says of probes of files; None where it says nothing of them."""
    return UprobeMethod(options["via"]) if options["via"] in frozenset(UprobeMethod) else None


class _Job:
    def __init__(self, options: dict[str, Any], resolver: StackResolver) -> None:
        self.options = options
        self.resolver = resolver
        self.pids: tuple[int, ...] = ()
        self.events = 0
        self.form = self._form()
        self.sink: OutputFile

    def session(self, accept: TaskFilter) -> BpfSession:
        options = self.options
        self.pids = accept.pids
        if options["via"] == TRACEFS:
            return self._without_bpf(accept)
        settings = {
            "accept": accept,
            "buffer": options["buffer"],
            "max_string": options["max_string"],
            "max_struct": options["max_struct"],
            "via": via_of(options),
            "stacks": stacks_of(options),
        }
        if options["sequence"]:
            from usdt.engine.output.decode import Decoder  # noqa: PLC0415 - only when asked for
            from usdt.engine.runtime.call_chain import CallChainSession  # noqa: PLC0415

            return CallChainSession(Decoder(self.form), len(options["probes"]), **settings)
        return RingBufferSession(self.form, **settings)

    def _without_bpf(self, accept: TaskFilter) -> BpfSession:
        from usdt.engine.runtime.tracefs_backend.session import TracefsSession  # noqa: PLC0415 - only when asked for

        made = TracefsSession(
            self.form,
            accept=accept,
            buffer=self.options["buffer"],
            max_string=self.options["max_string"],
        )
        return cast("BpfSession", made)  # in all that a front and run() use

    def _form(self) -> Formatter:
        options = self.options
        if options["folded"]:
            return FoldedFormatter(self.resolver)
        if options["as_json"]:
            return JsonFormatter(self.resolver)
        colour = options["output"] is None and os.isatty(1) and "NO_COLOR" not in os.environ
        return TextFormatter(colour=colour, stacks=self.resolver)

    def begin(self, sink: OutputFile) -> None:
        self.sink = sink
        self.resolver.begin(self.pids)

    def take(self, batch: list[str]) -> bool:
        most = self.options["count"] or math.inf
        if self.events + len(batch) > most:
            batch = batch[: int(most) - self.events]
        self.events += len(batch)
        if batch:
            self.sink.write(titled(self.form, batch))
        return self.events >= most

    def look(self) -> bool:
        self.resolver.observe(self.pids)
        for notice in self.resolver.take_notices():
            say(notice)
        return False

    def until_look(self) -> float:
        return math.inf

    def finish(self, lost: list[Lost]) -> str:
        for item in lost if self.options["as_json"] else ():
            self.sink.write_loss(item.probe, item.lost)
        for notice in self.resolver.take_notices():
            say(notice)
        tell_losses(lost)
        return closing_line(self.events, lost)
