"""What is offered for processes and probes; an error offers nothing, as a shell cannot show it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import click
    from click.shell_completion import CompletionItem

__all__ = ("complete_probes", "complete_processes")


def complete_processes(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer process IDs with their names, or the names if a letter is there."""
    from click.shell_completion import CompletionItem  # noqa: PLC0415 - commands import this module

    from usdt.base.errors import TargetError  # noqa: PLC0415 - as above
    from usdt.procfs.process import command_name, is_kernel_thread, processes  # noqa: PLC0415

    found: dict[str, str] = {}
    for pid in processes():
        with contextlib.suppress(TargetError):  # ended
            if not is_kernel_thread(pid):
                name = command_name(pid)
                by_name = incomplete and not incomplete.isdecimal()
                found[name if by_name else str(pid)] = "" if by_name else name
    return [
        CompletionItem(value, help=text or None)
        for value, text in found.items()
        if value.startswith(incomplete) and value.isprintable() and text.isprintable()
    ]


def complete_probes(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer probes of the processes and files that the words before name, or of the kernel."""
    from click.shell_completion import CompletionItem  # noqa: PLC0415 - as above

    from usdt.base.errors import TracingError  # noqa: PLC0415 - as above

    names: list[str] = []
    with contextlib.suppress(TracingError, OSError):
        names = [*_names(context, incomplete)]
    return [CompletionItem(name) for name in dict.fromkeys(names) if name.isprintable()]


def _names(context: click.Context, incomplete: str) -> Iterator[str]:
    from usdt.engine.run.registry import PROBE_KINDS, probe_names  # noqa: PLC0415 - as above

    default = "kprobe" if context.find_root().info_name == "kprobe" else "usdt"
    written, colon, rest = incomplete.partition(":")
    known = bool(colon) and written in PROBE_KINDS
    start = f"{written}:" if known else ""
    text = rest if known else incomplete
    words = context.params.get("words") or ()
    names = probe_names(
        PROBE_KINDS[written if known else default],
        text,
        [word for word in words if ":" not in word],
        context.params.get("pids") or (),
    )
    yield from (f"{start}{name}" for name in names if name.startswith(text))
