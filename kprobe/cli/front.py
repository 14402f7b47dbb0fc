"""Probes of the kernel as the commands of usdt/engine/cli see them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from usdt.engine.run.registry import start_mixed

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Sequence

    from kprobe.provider import AttachResult
    from usdt.engine.cli.running import Started
    from usdt.engine.compiler.codegen.model import TaskFilter
    from usdt.engine.language.tree import ProbeText
    from usdt.engine.output.stacks import UserSymbols
    from usdt.engine.runtime.session import BpfSession

__all__ = ("FRONT", "KernelFront")


class KernelFront:
    """Functions, tracepoints, raw tracepoints, system calls."""

    name = "kprobe"

    def parse(self, text: str) -> ProbeText:
        """A probe as the user wrote it.

        Raises:
            LanguageError: it cannot be understood.
        """
        from usdt.engine.language import parse_probe  # noqa: PLC0415 - --help does not pay for it

        return parse_probe(text, default="kprobe")

    def symbols(self) -> Callable[[], UserSymbols] | None:
        """What makes the source of names for addresses of processes."""
        from usdt.engine.run.registry import front_of  # noqa: PLC0415

        symbols: Callable[[], UserSymbols] | None = front_of("usdt").symbols()
        return symbols

    def start(
        self,
        stack: contextlib.ExitStack,
        options: dict[str, Any],
        requests: Sequence[ProbeText],
        session: Callable[[TaskFilter], BpfSession],
    ) -> Started:
        """Attach the probes to what the options name; ``stack`` undoes it."""
        return start_mixed(stack, options, requests, session)

    def attach(
        self, session: BpfSession, requests: Sequence[ProbeText], options: dict[str, Any]
    ) -> AttachResult:
        """Attach probes of the kernel's kinds to a session."""
        from kprobe.provider import attach  # noqa: PLC0415 - --help does not pay
        from usdt.engine.language import parse_items  # noqa: PLC0415

        words = [options.get("by"), options.get("key"), options.get("end_key")]
        keys = [item for word in words if word for item in parse_items(word)]
        counts = "interval" in options  # of the commands that aggregate
        if sys.stderr.isatty():
            session.show_progress(_show_progress)
        return attach(session, requests, keys, counts=counts, via=options.get("via"))


def _show_progress(done: int, total: int) -> None:
    # One line that is written over, and wiped at the end.
    if done == total or done % 64 == 0:
        end = "\r\x1b[K" if done == total else ""
        sys.stderr.write(f"\rattaching: {done} of {total}{end}")
        sys.stderr.flush()


FRONT = KernelFront()
