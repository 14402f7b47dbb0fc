"""Names of the kernel's probes that begin with a text, for completion in shells."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ("probe_names",)


def probe_names(
    kind: str, text: str, _targets: Sequence[str], _pids: Sequence[int]
) -> Iterable[str]:
    """Return the names, without their kind, that may continue a text.

    Raises:
        ProbeNotFound: there is none.
        NotSupported: the kernel has no BTF, or no tracefs.
    """
    # Each is imported for its kind: whoever presses a key does not wait for the others.
    if kind == "syscall":
        from kprobe.tracepoints import syscalls  # noqa: PLC0415

        return [call.name for call in syscalls.matching(f"{text}*")]
    if kind == "rawtp":
        from kprobe.tracepoints import raw  # noqa: PLC0415

        return raw.matching(f"{text}*")
    if kind == "tracepoint":
        from kprobe.tracepoints import catalog  # noqa: PLC0415

        category, colon, event = text.partition(":")
        found = catalog.matching(category if colon else f"{category}*", f"{event}*")
        return [one.full_name for one in found]
    if kind in ("interval", "profile", "software", "hardware", "watchpoint"):
        from kprobe.counters import COUNTERS, SHORT  # noqa: PLC0415

        names = (*COUNTERS.get(kind, ()), *SHORT.get(kind, ()))
        return [name for name in names if name.startswith(text)]
    from kprobe.functions.prototypes import Functions  # noqa: PLC0415

    return sorted({function.name for function in Functions().matching(f"{text}*")})
