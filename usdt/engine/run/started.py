"""What a front has attached, as commands and the Python interface see it."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any, Protocol

from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.engine.runtime.session import Lost

__all__ = ("Command", "Started", "Tracing")


class Tracing(Protocol):
    """What a front attaches; :class:`usdt.targets.tracer.Tracer` is one."""

    notices: list[str]
    ended: bool

    @property
    def attach_log(self) -> list[str]:
        """What was attached, by which kernel path."""

    @property
    def listings(self) -> list[str]:
        """The instructions of every program."""

    @property
    def attached(self) -> int:
        """How many sites are attached."""

    def poll(self, timeout: float) -> list[Any]:
        """What came; nothing after ``timeout`` seconds."""

    def drain(self) -> Iterator[list[Any]]:
        """Detach, then yield what is still there."""

    def lost(self) -> list[Lost]:
        """What each probe did not deliver."""

    def wake(self) -> None:
        """Let poll() return."""


class Command(Protocol):
    """What ``-c`` started, held at its start: :class:`usdt.targets.spawn.StoppedCommand`."""

    def release(self) -> None:
        """Let it run."""

    def poll(self) -> int | None:
        """Its exit code once it has ended."""

    def wait(self, timeout: float | None = None) -> int | None:
        """Its exit code, or None after ``timeout`` seconds."""

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send it a signal."""


@frozen
class Started:
    """What a front has attached, and what ``-c`` started."""

    tracing: Tracing
    command: Command | None = None
