"""Sites as definitions of a session of tracefs: names, paths, and the events that sites share."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from usdt.base.errors import TracingError
from usdt.tracefs.owner import own_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.engine.runtime.attach.attach_points import AttachPoint
    from usdt.engine.runtime.tracefs_backend.event_plan import EventDecoder, EventPlan

__all__ = (
    "PLAIN_PATH",
    "SharedEvent",
    "Variant",
    "attach_point_text",
    "check_strings",
    "definition_path",
    "event_label",
)

# A path that a definition can contain unchanged
PLAIN_PATH = re.compile(r"/[A-Za-z0-9_./+,=~:@-]*")
_LONGEST = 48  # maximum characters of a probe's name in an event name, which can have 63
_PANICS = Path("/proc/sys/kernel/panic_on_warn")


def event_label(probe: str) -> str:
    """Return a probe's name with only the characters that an event name may have."""
    return "_" * probe[:1].isdigit() + re.sub(r"\W", "_", probe, flags=re.ASCII)[:_LONGEST]


def attach_point_text(path: str, offset: int, ref_ctr_offset: int) -> str:
    """Return a site in the syntax of definitions."""
    counter = f"({ref_ctr_offset:#x})" if ref_ctr_offset else ""
    return f"{path}:{offset:#x}{counter}"


class SharedEvent:
    """An event that sites with equal field types and filters share.

    The kernel is slow to remove events. The first field of a record is a constant of the site, its
    variant number. It determines the meaning of the other fields.
    """

    def __init__(self, number: int, condition: str) -> None:
        self.label = f"{own_name()}_{number}"  # unique in uprobe_profile, which has no groups
        self.name = f"{own_name()}/{self.label}"
        self.recorded = 0
        self.condition = condition
        self.sites: list[tuple[AttachPoint, str]] = []
        self.variants: list[Variant] = []


class Variant:
    """A plan of a session, with the number that stands for it in rows."""

    def __init__(self, number: int, probe: str, plan: EventPlan) -> None:
        self.number = number
        self.probe = probe
        self.plan = plan
        self.rows: EventDecoder


def check_strings(plan: EventPlan) -> None:
    """Raise TracingError if strings of an event may make this kernel stop."""
    # WARN_ON_ONCE() of prepare_uprobe_buffer(), kernel/trace/trace_uprobe.c: the strings of one hit
    # are longer than a page in total.
    if plan.texts and _PANICS.exists() and _PANICS.read_text().strip() not in ("", "0"):
        raise TracingError(
            "strings longer than a page make the kernel's event tracer warn, and this kernel stops "
            "at a warning (kernel.panic_on_warn): leave str() out"
        )


@contextlib.contextmanager
def definition_path(path: str) -> Iterator[str]:
    """Yield a path of a file that a definition may contain."""
    # The kernel splits definitions at blanks and ends them at "#": other paths are given by
    # descriptor.
    if PLAIN_PATH.fullmatch(path):
        yield path
        return
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{number}"
    finally:
        os.close(number)
