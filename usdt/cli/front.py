"""USDT probes as the commands of usdt/engine/cli see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from usdt.engine.run.started import Started

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Sequence

    from usdt.engine.compiler.codegen.model import TaskFilter
    from usdt.engine.language.tree import ProbeText
    from usdt.engine.output.stacks import UserSymbols
    from usdt.engine.runtime.session import BpfSession

__all__ = ("FRONT", "UsdtFront")


class UsdtFront:
    """USDT probes of files and processes."""

    name = "usdt"

    def parse(self, text: str) -> ProbeText:
        """A probe as the user wrote it."""
        from usdt.engine.language import parse_probe  # noqa: PLC0415 - --help does not pay for it

        return parse_probe(text)

    def symbols(self) -> Callable[[], UserSymbols]:
        """What makes the source of names for addresses of processes."""
        from usdt.symbolize import Symbolizer  # noqa: PLC0415 - only for stacks

        return lambda: Symbolizer(track_mappings=True)

    def start(
        self,
        stack: contextlib.ExitStack,
        options: dict[str, Any],
        requests: Sequence[ProbeText],
        session: Callable[[TaskFilter], BpfSession],
    ) -> Started:
        """Attach the probes to what the options name; ``stack`` undoes it."""
        from usdt.engine.language import parse_items  # noqa: PLC0415 - --help does not pay
        from usdt.targets.tracer import GRACE, Targets, Tracer  # noqa: PLC0415

        spawned = None
        if options["command"] is not None:
            from usdt.targets.spawn import StoppedCommand, split_command  # noqa: PLC0415 - only for -c

            spawned = stack.enter_context(StoppedCommand(split_command(options["command"])))
        pids, everything, follow = tuple(options["pids"]), options["everything"], options["follow"]
        targets = Targets(pids, spawned, everything, follow)
        patience = options.get("patience", None if options["duration"] else GRACE)
        words = [options.get("by"), options.get("key"), options.get("end_key")]
        keys = [item for word in words if word for item in parse_items(word)]
        tracer = Tracer(requests, targets, session, patience=patience, keys=keys)
        return Started(stack.enter_context(tracer), spawned)


FRONT = UsdtFront()
