"""Options of a tracing run, as the commands and the Python API fill them in.

Imports nothing of the engine: commands use it before they know that they will run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.errors import TargetError
from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.engine.compiler.record.columns import StackKind
    from usdt.engine.language.tree import Item

__all__ = (
    "DEFAULT_BUFFER",
    "LIBRARY_TIMEOUT",
    "TRACEFS",
    "AggregateOptions",
    "OutputOptions",
    "RunOptions",
    "TargetOptions",
    "TraceOptions",
    "split_command",
)

DEFAULT_BUFFER = 8 << 20  # bytes of the ring buffer
LIBRARY_TIMEOUT = 5.0  # seconds that a process has to load a library with the requested probe
TRACEFS = "tracefs"  # the attach method that needs no BPF


@frozen
class TargetOptions:
    """Which processes to trace; by default, all that run the files the probes name.

    Attributes:
        pids: process IDs.
        command: words of a command to start and trace.
        all_processes: trace every process.
        follow: also trace children of ``pids`` and ``command``.
        library_timeout: seconds to wait for a library with a probe that no mapped file has; None
            waits as long as the processes live.
    """

    pids: tuple[int, ...] = ()
    command: tuple[str, ...] | None = None
    all_processes: bool = False
    follow: bool = False
    library_timeout: float | None = LIBRARY_TIMEOUT


@frozen
class TraceOptions:
    """What to record, and how to attach.

    Attributes:
        buffer: bytes of the ring buffer.
        max_string: bytes that str() keeps of a string.
        max_struct: bytes that are kept of a structure.
        stacks: ``ustack`` and ``kstack``, recorded at every hit.
        via: an attach method; None uses the newest that the kernel has.
        keys: expressions of ``--by``, ``--key`` and ``--end-key``.
        aggregated: whether hits are aggregated in the kernel instead of being recorded.
        progress: called with (done, total) while many functions are attached.
    """

    buffer: int = DEFAULT_BUFFER
    max_string: int = 128
    max_struct: int = 4096
    stacks: tuple[StackKind, ...] = ()
    via: str | None = None
    keys: tuple[Item, ...] = ()
    aggregated: bool = False
    progress: Callable[[int, int], object] | None = None


@frozen
class RunOptions:
    """When a command stops, and what it reports.

    Attributes:
        duration: seconds.
        count: events, or results of aggregating commands.
        verbose: 1 reports attach methods, 2 also the instructions of programs.
        exit_code: whether to exit with the status of the traced command.
    """

    duration: float | None = None
    count: int | None = None
    verbose: int = 0
    exit_code: bool = False


@frozen
class OutputOptions:
    """Where results go, and in which format.

    Attributes:
        path: a file; None is standard output.
        as_json: JSON lines.
        folded: one line per stack, for flame graphs.
        lines: user stacks with source lines and inlined functions.
    """

    path: str | None = None
    as_json: bool = False
    folded: bool = False
    lines: bool = False


@frozen
class AggregateOptions:
    """How hits are grouped and shown, as the aggregating commands were told.

    Attributes:
        by: expressions that results are grouped by.
        max_keys: number of groups that are kept.
        top: how many groups are shown; None shows all.
        interval: seconds after which results are printed and reset.
        linear: ``LO:HI:STEP`` of a histogram; None is powers of two.
        key: what a start and its end have in common.
        end_key: the same at the end, if it differs there.
        unit: of times: ``ns``, ``us``, ``ms`` or ``s``.
    """

    by: str | None = None
    max_keys: int = 10240
    top: int | None = None
    interval: float | None = None
    linear: str | None = None
    key: str | None = None
    end_key: str | None = None
    unit: str = "ns"


def split_command(text: str) -> tuple[str, ...]:
    """Split a command line into words, as a shell does.

    Raises:
        TargetError: the text is empty, or a quote is not closed.
    """
    import shlex  # noqa: PLC0415 - only for -c

    try:
        words = shlex.split(text)
    except ValueError as err:
        raise TargetError(f"command {text!r}: {err}") from err
    if not words:
        raise TargetError("the command is empty")
    return tuple(words)
