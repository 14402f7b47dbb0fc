"""The provider of USDT probes and uprobes, which the engine's registry loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.errors import TargetError
from usdt.targets.tracer import Tracer

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Sequence

    from usdt.engine.compiler.codegen.model import TaskFilter
    from usdt.engine.language.tree import ProbeText
    from usdt.engine.run.options import SymbolOptions, TargetOptions, TraceOptions
    from usdt.engine.runtime.session import BpfSession
    from usdt.symbolize import Symbolizer
    from usdt.targets.spawn import StoppedCommand

__all__ = ("PROVIDER", "FileProbeProvider")


class FileProbeProvider:
    """USDT probes and functions of programs and libraries, and the processes that run them."""

    def trace(
        self,
        stack: contextlib.ExitStack,
        targets: TargetOptions,
        requests: Sequence[ProbeText],
        session: Callable[[TaskFilter], BpfSession],
        options: TraceOptions,
    ) -> tuple[Tracer, StoppedCommand | None]:
        """Attach the probes of files; see :class:`usdt.engine.run.protocols.TargetProvider`.

        Raises:
            TargetError: a process or a command does not exist.
            ProbeNotFound: there is no such probe; the message names the most similar one.
            SyscallError: a system call failed.
        """
        command = None
        if targets.command is not None:
            from usdt.targets.spawn import StoppedCommand  # noqa: PLC0415 - only for a command

            if not targets.command:
                raise TargetError("the command is empty")
            command = stack.enter_context(
                StoppedCommand(
                    targets.command, user=targets.user, use_ptrace=not targets.before_exec
                )
            )
        tracer = Tracer(requests, targets, command, session, options)
        return stack.enter_context(tracer), command

    def symbolizer(
        self, options: SymbolOptions | None = None, *, jit_map: bool = False
    ) -> Symbolizer:
        """Return a symbolizer for addresses of running processes.

        Args:
            options: where symbols come from.
            jit_map: let Java virtual machines write their perf maps.
        """
        from usdt.symbolize import Symbolizer  # noqa: PLC0415 - only for stacks
        from usdt.symbolize.sources.build_id_files import BuildIdFiles  # noqa: PLC0415

        sources = None if options is None else BuildIdFiles.of(options)
        return Symbolizer(track_mappings=True, jit_map=jit_map, sources=sources)


PROVIDER = FileProbeProvider()
