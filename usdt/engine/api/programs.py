"""``usdt.run`` and ``kprobe.run``: programs in bpftrace's language, for Python callers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from usdt.engine.api.attach import target_options
from usdt.engine.api.events import Events
from usdt.engine.compiler.limits import DEFAULT_BUFFER
from usdt.engine.programs.output.objects import ObjectWriter, ProgramEvent, map_values
from usdt.engine.programs.prepared import prepare_program
from usdt.engine.programs.syntax.source import Source
from usdt.engine.run.options import LIBRARY_TIMEOUT
from usdt.engine.run.programs import AttachedProgram

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from usdt.engine.programs.output.results import ProgramResults

__all__ = ("ProgramMaps", "RunningProgram", "run")


class ProgramMaps(Mapping[str, Any]):
    """The maps of a program by name: ``maps["@x"]``; read from the kernel at each access.

    A map with keys is a dictionary, in bpftrace's order: by value, then by key. A map without keys
    is its value, or None if nothing was assigned. A key of several values is a tuple. The value of
    avg() is a float, of stats() a dictionary with ``count``, ``average`` and ``total``, of hist()
    and lhist() a list of (lowest value, upper bound, hits); a bound is None where there is none.

    The maps keep their last values after close() of the program.

    Raises:
        KeyError: at an access: the program has no map of that name.

    Examples:
        >>> with usdt.run("usdt:./server:app:request { @[str(arg0)] = count(); }") as program:
        ...     program.poll(5)
        >>> program.maps["@"]
        {'GET /': 42}
    """

    def __init__(self, read: Callable[[], dict[str, Any]]) -> None:
        self._read = read

    def __getitem__(self, name: str) -> Any:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def __repr__(self) -> str:
        return f"<maps {self._read()}>"


class RunningProgram(Events[ProgramEvent]):
    """A program that runs: an iterator of what it prints; see :func:`run`.

    Attributes:
        maps: its maps.

    Raises:
        ProbeNotFound: while events are taken: no library with a requested probe was loaded in time.

    Examples:
        >>> probe = "tracepoint:syscalls:sys_enter_openat /pid == cpid/"
        >>> text = probe + ' { printf("%s", str(args.filename)); }'
        >>> with usdt.run(text, command="cat /etc/hostname") as program:
        ...     files = [event.text for event in program]
    """

    def __init__(
        self, program: AttachedProgram, writer: ObjectWriter, release: Callable[[], None]
    ) -> None:
        self._program = program
        self._writer = writer
        self._exiting = False
        self._kept: dict[str, Any] | None = None
        self._results: ProgramResults | None = None
        self._free = release
        targets = program.attached.targets
        super().__init__(targets, self._keep_and_release, observe=program.observe)
        self.maps = ProgramMaps(self._read_maps)

    def start(self) -> None:
        """Attach the probes; called by :func:`run`."""
        self._results = self._program.start(self._writer, say=self._writer.message, stop=self._exit)

    @property
    def code(self) -> int:
        """The number that the program passed to exit(); 0 before."""
        return 0 if self._results is None else self._results.code

    def _exit(self) -> None:
        self._exiting = True

    def _batch(self, timeout: float) -> list[ProgramEvent]:
        # Records become what the program prints. The program detaches after exit().
        if self._exiting and self._remaining is None and not self._closed:
            self._remaining = self._targets.drain()
        batch: Any = super()._batch(timeout)
        if self._results is not None:
            self._results.take(batch)
        return self._writer.take()

    def _read_maps(self) -> dict[str, Any]:
        with self._lock:
            if self._kept is not None:
                return self._kept
            return map_values(self._program.session, self._program.symbols)

    def _keep_and_release(self) -> None:
        try:
            if self._results is not None:
                self._kept = self._read_maps()
        finally:
            self._free()


def run(
    text: str,
    *,
    args: Sequence[str | int] = (),
    pid: int | Iterable[int] | None = None,
    command: str | Sequence[str] | None = None,
    user: str | None = None,
    unsafe: bool = False,
    buffer: int = DEFAULT_BUFFER,
) -> RunningProgram:
    """Run a program in bpftrace's language.

    The result is a context manager and an iterator of :class:`ProgramEvent`, which ends when the
    program calls exit(), when all traced processes have ended, or after close().

    Args:
        text: the program.
        args: the arguments of the program: ``$1`` and the following.
        pid: trace one process or several. Probes of the kernel fire for all processes.
        command: a command to start and trace: its words, or a string that is split as by a shell.
            It runs when run() returns, and is ended by SIGTERM when the program is closed.
        user: the user that ``command`` runs as, by name or number.
        unsafe: allow system(), signal() and the like.
        buffer: bytes of the ring buffer.

    Raises:
        LanguageError: the program is not valid; the error names the place.
        ProbeNotFound: there is no such probe; the message names the closest.
        TargetError: there is no such process or file.
        SyscallError: the kernel refuses; EPERM without CAP_BPF and CAP_PERFMON.
        TypeError: an argument has a wrong type.

    Examples:
        >>> with usdt.run("uprobe:libc:malloc { @[comm] = sum(arg0); }", pid=1234) as program:
        ...     program.poll(5)
        ...     print(program.maps["@"])
    """
    if not isinstance(text, str):
        raise TypeError(f"program {text!r}: expected a string")
    if isinstance(args, str) or not all(isinstance(one, str | int) for one in args):
        raise TypeError(f"args {args!r}: expected a list of strings and integers")
    targets = target_options(pid=pid, command=command, user=user, library_timeout=LIBRARY_TIMEOUT)
    prepared = prepare_program(Source(text, "program"), [*map(str, args)], unsafe=unsafe)
    with contextlib.ExitStack() as stack:
        program = AttachedProgram(stack, prepared, targets, buffer=buffer)
        if (child := program.attached.command) is not None:
            stack.callback(child.end)
        made = RunningProgram(program, ObjectWriter(program.symbols), stack.pop_all().close)
    try:
        made.start()
    except BaseException:
        made.close()
        raise
    return made
