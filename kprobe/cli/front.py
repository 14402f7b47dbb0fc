"""Probes of the kernel as the commands of tracing/cli see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracing.cli.mixing import start_mixed

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Sequence

    from kprobe.tracepoints.source import Attached
    from tracing.cli.running import Started
    from tracing.codegen import Filter
    from tracing.language.tree import ProbeText
    from tracing.session import AnySession
    from tracing.stacks import UserSymbols

__all__ = ("FRONT", "KernelFront")


class KernelFront:
    """Tracepoints, raw tracepoints, system calls."""

    name = "kprobe"

    def parse(self, text: str) -> ProbeText:
        """A probe as the user wrote it.

        Raises:
            NotSupported: a kernel function, which this version does not trace.
        """
        from tracing.language import parse_probe  # noqa: PLC0415 - --help does not pay for it

        request = parse_probe(text, default="kprobe")
        if request.kind in ("kprobe", "fentry"):
            raise _no_functions(request)
        return request

    def symbols(self) -> Callable[[], UserSymbols] | None:
        """What makes the source of names for addresses of processes."""
        from tracing.cli.mixing import front_of  # noqa: PLC0415

        symbols: Callable[[], UserSymbols] | None = front_of("usdt").symbols()
        return symbols

    def start(
        self,
        stack: contextlib.ExitStack,
        options: dict[str, Any],
        requests: Sequence[ProbeText],
        session: Callable[[Filter], AnySession],
    ) -> Started:
        """Attach the probes to what the options name; ``stack`` undoes it."""
        return start_mixed(stack, options, requests, session)

    def attach(
        self, session: AnySession, requests: Sequence[ProbeText], options: dict[str, Any]
    ) -> Attached:
        """Attach probes of the kernel's kinds to a session."""
        from kprobe.tracepoints.source import attach  # noqa: PLC0415 - --help does not pay
        from tracing.language import parse_items  # noqa: PLC0415

        for request in requests:
            if request.kind in ("kprobe", "fentry"):
                raise _no_functions(request)
        words = [options.get("by"), options.get("key"), options.get("end_key")]
        keys = [item for word in words if word for item in parse_items(word)]
        counts = "interval" in options  # of the commands that aggregate
        return attach(session, requests, keys, counts=counts)


def _no_functions(request: ProbeText) -> Exception:
    # One line: what was asked for, what was tried, what works.
    from bpf.errors import TracingError  # noqa: PLC0415 - only for this message
    from kprobe.symbols import have_kprobes  # noqa: PLC0415
    from kprobe.tracepoints.catalog import events  # noqa: PLC0415

    wanted = f"{request.provider}:{request.name}" if request.provider else request.name
    hint = "tracepoint:, rawtp: and syscall: need no functions"
    try:
        named = {event.full_name for event in events()} | {event.name for event in events()}
        if wanted in named or request.name in named:
            hint = f"there is tracepoint:{wanted if ':' in wanted else '*:' + request.name}"
    except TracingError:
        pass
    kernel = "kprobes are there" if have_kprobes() else "no kprobes (CONFIG_KPROBES)"
    return TracingError(
        f"{request.name}: functions of the kernel are not traced by this version, which needs "
        f"kprobes or fentry for it (this kernel: {kernel}); {hint}"
    )


FRONT = KernelFront()
