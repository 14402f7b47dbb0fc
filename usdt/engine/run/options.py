"""Options of a tracing run, set by the commands and by the Python API.

This module imports only constants of the engine: commands use it before they decide to run.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from usdt.base.errors import TargetError
from usdt.base.frozen import frozen
from usdt.base.machine import KERNEL_WORD_SIZE
from usdt.engine.compiler.limits import (
    COPIES_BUFFER,
    DEFAULT_BACKLOG,
    DEFAULT_BUFFER,
    DEFAULT_STACK,
    DEFAULT_STRING,
    DEFAULT_STRUCT,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from usdt.base.errors import ProbeNotFound
    from usdt.cgroups.selection import CgroupChoice
    from usdt.engine.compiler.limits import UnwindMethod
    from usdt.engine.language.tree import Item, ProbeText, StackKind

__all__ = (
    "LIBRARY_TIMEOUT",
    "SERVERS_NEEDED",
    "TRACEFS",
    "AggregateOptions",
    "OutputOptions",
    "RunOptions",
    "SymbolOptions",
    "TargetOptions",
    "TraceOptions",
    "debuginfod_servers",
    "ring_buffer_size",
    "split_command",
)

LIBRARY_TIMEOUT = 5.0  # seconds that a process has to load a library with the requested probe
TRACEFS = "tracefs"  # the attach method that needs no BPF


@frozen
class TargetOptions:
    """The processes to trace; by default, all that run the files named by the probes.

    Attributes:
        pids: process IDs.
        command: arguments of a command to start and trace.
        all_processes: trace every process.
        follow: also trace children of ``pids`` and ``command``.
        library_timeout: seconds to wait for a library with a probe that no mapped file has; None
            waits as long as the processes live.
        user: the user that ``command`` runs as; None for that of this process.
        cgroups: trace only in these cgroups and those below them; empty: anywhere. Without
            ``pids`` they are the targets.
        before_exec: hold ``command`` before its exec, which probes of the kernel can then see, not
            at its first instruction.
    """

    pids: tuple[int, ...] = ()
    command: tuple[str, ...] | None = None
    all_processes: bool = False
    follow: bool = False
    library_timeout: float | None = LIBRARY_TIMEOUT
    user: str | None = None
    cgroups: tuple[CgroupChoice, ...] = ()
    before_exec: bool = False


@frozen
class TraceOptions:
    """The data to record, and how to attach.

    Attributes:
        buffer: bytes of the ring buffer; None: see :func:`ring_buffer_size`.
        max_string: bytes that str() keeps of a string.
        max_struct: bytes that are kept of a structure.
        stacks: stacks that are recorded at every hit.
        unwind: how user stacks are unwound.
        stack_bytes: bytes of a user stack that are copied, to unwind it by unwind tables.
        via: an attach method; None uses the newest that the kernel has.
        keys: expressions of ``--by``, ``--key`` and ``--end-key``.
        aggregated: whether hits are aggregated in the kernel instead of being recorded.
        calls: whether each hit is a whole call: items are taken at its entry and its return.
        both_ends: whether a kernel function without items is shown at its entry, with structures
            in short, and its return.
        backlog: bytes of records that are copied from the ring buffer and wait to be formatted.
        missing: takes a probe that does not exist, and the error; None: the error is raised.
    """

    buffer: int | None = None
    max_string: int = DEFAULT_STRING
    max_struct: int = DEFAULT_STRUCT
    stacks: tuple[StackKind, ...] = ()
    unwind: UnwindMethod = "auto"
    stack_bytes: int = DEFAULT_STACK
    via: str | None = None
    keys: tuple[Item, ...] = ()
    aggregated: bool = False
    calls: bool = False
    both_ends: bool = False
    backlog: int = DEFAULT_BACKLOG
    missing: Callable[[ProbeText, ProbeNotFound], object] | None = None


@frozen
class RunOptions:
    """When a command stops, and what it reports.

    Attributes:
        duration: seconds; None means no limit.
        count: number of events, or of results of aggregating commands; None means no limit.
        verbose: 1 reports attach methods, 2 also the instructions of programs.
        exit_code: whether to exit with the status of the traced command.
        drop: whether to give up capabilities once everything is attached; None: in services.
        at: nanoseconds since 1970: hits before do not count; None means no such time.
    """

    duration: float | None = None
    count: int | None = None
    verbose: int = 0
    exit_code: bool = False
    drop: bool | None = None
    at: int | None = None


@frozen
class SymbolOptions:
    """Where symbols come from, besides the files themselves and the system's debug files.

    Attributes:
        directories: directories in which files are found by build ID.
        servers: URLs of debuginfod servers.
    """

    directories: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()


SERVERS_NEEDED = (
    "servers, http:// or https://, in the environment: "
    "DEBUGINFOD_URLS=https://debuginfod.debian.net"
)


def debuginfod_servers() -> tuple[str, ...]:
    """Return the servers of the environment's ``DEBUGINFOD_URLS``."""
    # Words such as ima:enforcing between the servers are for the clients of elfutils.
    words = os.environ.get("DEBUGINFOD_URLS", "").split()
    return tuple(word for word in words if word.startswith(("http://", "https://")))


@frozen
class OutputOptions:
    """The destination and the format of results.

    Attributes:
        path: a file; None is standard output.
        as_json: write JSON lines.
        folded: write one line per stack, for flame graphs.
        lines: show user stacks with source lines and inlined functions.
        private: create the file for its owner only.
        realtime: write dates and times as ISO 8601.
        jit_map: let Java virtual machines write their perf maps, for names in user stacks.
        symbols: where symbols of user stacks come from.
        parquet: write Parquet, which is made from JSON lines unless rows are written.
        pictures: draw the stacks into these files, in place of lines.
    """

    path: str | None = None
    as_json: bool = False
    folded: bool = False
    lines: bool = False
    private: bool = False
    realtime: bool = False
    jit_map: bool = False
    symbols: SymbolOptions = SymbolOptions()
    parquet: bool = False
    pictures: Pictures | None = None


@frozen
class Pictures:
    """Files of pictures and profiles of stacks; None where there is none.

    Attributes:
        flame: a flame graph, SVG or HTML by its name.
        speedscope: JSON of speedscope.
        pprof: a profile for pprof.
    """

    flame: str | None = None
    speedscope: str | None = None
    pprof: str | None = None


@frozen
class AggregateOptions:
    """How aggregating commands group and show hits.

    Attributes:
        by: expressions that results are grouped by.
        max_keys: maximum number of groups that are kept.
        top: number of groups that are shown; None shows all.
        interval: seconds after which results are printed and reset; None prints once, at the end.
        linear: ``LO:HI:STEP`` of a histogram; None means powers of two.
        key: expressions that match a start to its end.
        end_key: the key at the end, if it differs from ``key``.
        unit: unit of times: ``ns``, ``us``, ``ms`` or ``s``.
        sort: the column by which results are sorted; None is the count.
        hist: whether to show a histogram for each group of times, not a table.
        resolution: that of percentiles, and of the buckets shown; None is the default for
            percentiles.
        at_start: whether ``by`` is evaluated at the start of a time, not at its end.
        align: whether intervals begin at multiples of ``interval`` since 1970.
    """

    by: str | None = None
    max_keys: int = 10240
    top: int | None = None
    interval: float | None = None
    linear: str | None = None
    key: str | None = None
    end_key: str | None = None
    unit: str = "ns"
    sort: str | None = None
    hist: bool = False
    resolution: int | None = None
    at_start: bool = False
    align: bool = False


def ring_buffer_size(options: TraceOptions, requests: Sequence[ProbeText]) -> int:
    """Return the bytes of the ring buffer: as asked for, or more if stacks are copied into it."""
    from usdt.engine.language.tree import StackKind  # noqa: PLC0415 - not for --help
    from usdt.engine.output.symbol_needs import shows_user_stacks  # noqa: PLC0415

    if options.buffer is not None:
        return options.buffer
    shown = StackKind.USER in options.stacks or any(map(shows_user_stacks, requests))
    copied = shown and options.unwind != "fp" and KERNEL_WORD_SIZE == 8
    return COPIES_BUFFER if copied else DEFAULT_BUFFER


_BLANKS = str.maketrans("\t\r\n", "   ")


def split_command(text: str) -> tuple[str, ...]:
    """Split a command line into arguments, as a shell does.

    Raises:
        TargetError: the text is empty, or a quote is not closed.
    """
    words = _split(text) if any(mark in text for mark in "\"'\\") else _blanks_split(text)
    if not words:
        raise TargetError("the command is empty")
    return tuple(words)


def _split(text: str) -> list[str]:
    import shlex  # noqa: PLC0415 - few commands are quoted

    try:
        return shlex.split(text)
    except ValueError as err:
        raise TargetError(f"command {text!r}: {err}") from err


def _blanks_split(text: str) -> list[str]:
    # str.split() splits at more characters than shells do.
    return [word for word in text.translate(_BLANKS).split(" ") if word]
