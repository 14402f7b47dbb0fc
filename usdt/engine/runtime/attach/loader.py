"""The loader of a session: loads programs, and keeps them, links and maps until the end."""

from __future__ import annotations

import contextlib
import struct
import time
from typing import TYPE_CHECKING

from usdt.base.frozen import replace
from usdt.base.text import plural
from usdt.bpf._uapi import BPF_F_SLEEPABLE, AttachType, MapType, ProgType
from usdt.bpf.link import close_links
from usdt.bpf.maps import MapSpec
from usdt.bpf.program import ProgramSpec
from usdt.engine.compiler.codegen.model import SITE_ROWS, TaskFilter
from usdt.engine.compiler.codegen.program import generate, generate_indexed
from usdt.engine.compiler.codegen.record import RECORD_ACTION
from usdt.engine.compiler.site_numbers import SharedCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from usdt.bpf.asm.assembler import Assembler, Code
    from usdt.bpf.link import Link
    from usdt.bpf.maps import Map
    from usdt.bpf.perf.counters import CommonStart
    from usdt.bpf.program import Program
    from usdt.engine.compiler.codegen.model import (
        ActionEmitter,
        ProgramVariant,
        VariantDispatch,
    )
    from usdt.engine.compiler.site_numbers import SiteTable

__all__ = ("ProgramLoader",)

_MANY = 256  # number of attach points from which the time of detaching is reported


class ProgramLoader:
    """The programs, links and maps of one session.

    Args:
        maps: maps that programs refer to, by name.
        accept: the traced processes.
        action: emits the action at a hit.

    Attributes:
        attach_log: messages on what was attached by which attach method, for ``-v``.
        detach_seconds: seconds that detaching took, if there were many attach points; else 0.
        missed: hits for which the kernel ran no program, as far as the kernel counts them.
        most_missed: (function, number) of the functions with the most missed hits.
        common_start: begins counters that are attached now; None: each begins by itself.
    """

    common_start: CommonStart | None = None
    detach_seconds = 0.0
    missed = 0

    def __init__(
        self, maps: dict[str, Map], accept: TaskFilter, action: ActionEmitter = RECORD_ACTION
    ) -> None:
        self._maps = maps | accept.maps
        self._accept = self._in_kernel = accept
        self._action = action
        self._code: list[Code] = []
        self._links: list[Link] = []
        self._programs: list[Program] = []  # of uprobes
        self._loaded: list[Program] = []  # of targets in the kernel
        self._owned: list[Map] = []
        self.most_missed: list[tuple[str, int]] = []
        self.attach_log: list[str] = []

    @contextlib.contextmanager
    def counters_together(self) -> Iterator[None]:
        """Let the counters that are attached in a ``with`` block begin at its end."""
        from usdt.bpf.perf.counters import CommonStart  # noqa: PLC0415 - few sessions count

        try:
            with CommonStart() as self.common_start:
                yield
        finally:
            self.common_start = None

    def load_for_uprobes(
        self,
        variants: Sequence[ProgramVariant],
        attach_type: AttachType,
        *,
        sleepable: bool,
        note: str = "",
        table: SiteTable | None = None,
        filtered: bool = False,
        select: VariantDispatch | None = None,
    ) -> Program:
        """Load a program for uprobes.

        Args:
            variants: the variants that it serves.
            attach_type: see :class:`usdt.bpf.program.ProgramSpec`.
            sleepable: whether it may take page faults.
            note: text before the word "program" in ``attach_log``.
            table: what their code has in common, if anything.
            filtered: whether its links run it in the traced processes only.
            select: how it finds the variant that was hit, or the row of the table; None uses the
                attach cookie.

        Raises:
            CodeTooLarge: too many variants for one program.
            SyscallError: the kernel rejects the program.
        """
        code = generate(
            variants if table is None else table.bodies,
            replace(self._accept, pids=()) if filtered else self._accept,
            sleepable=sleepable,
            action=self._action,
            dispatch=select,
            uprobe=True,
            first_row=None if table is None else table.first,
        )
        flags = BPF_F_SLEEPABLE if sleepable else 0
        spec = ProgramSpec(code, attach_type=attach_type, flags=flags, name="usdt")
        program = spec.load(self._maps | self._site_rows(table))
        self._programs.append(program)
        self._code.append(code)
        self.attach_log.append(
            f"{note}program of {len(code)} instructions for {plural(len(variants), 'variant')}"
        )
        return program

    def _site_rows(self, table: SiteTable | None) -> dict[str, Map]:
        if table is None:
            return {}
        size = len(next(iter(table.rows.values())))
        made = MapSpec(MapType.ARRAY, 4, size, max(table.rows) + 1, SITE_ROWS).create()
        self.own_map(made)
        made.set_many((struct.pack("=I", index), row) for index, row in table.rows.items())
        return {SITE_ROWS: made}

    def shared_code(self, variants: Sequence[ProgramVariant]) -> SharedCode:
        """Return what the code of variants has in common."""
        return SharedCode(variants if self._action.shares_code else ())

    def load(
        self,
        variants: Sequence[ProgramVariant],
        kind: ProgType,
        select: VariantDispatch | None = None,
        *,
        excluded: int = 0,
        attach_type: AttachType = AttachType.NONE,
        function: int = 0,
        module: int = 0,
        any_task: bool | None = None,
    ) -> Program:
        """Load a program that never sleeps, for a target in the kernel.

        Args:
            variants: the variants that it serves.
            kind: the program type.
            select: how it finds the variant that was hit; None uses the attach cookie.
            excluded: a process that is not traced if all others are; 0 for none.
            attach_type: see :class:`usdt.bpf.program.ProgramSpec`.
            function: see :class:`usdt.bpf.program.ProgramSpec`.
            module: see :class:`usdt.bpf.program.ProgramSpec`.
            any_task: whether it serves all tasks, whichever are traced; None: as
                :meth:`serve_all_tasks` has it.

        Raises:
            CodeTooLarge: too many variants for one program.
            SyscallError: the kernel rejects the program.
        """
        accepts = {None: self._in_kernel, False: self._accept, True: self._any_task()}
        accept = replace(accepts[any_task], excluded=excluded)
        # If a program returns 0, the kernel hides the event from all other perf events, too.
        result = int(kind is ProgType.TRACEPOINT)
        # At an entry, a return value of 1 disables the probe at the return.
        skipped = 1 if attach_type is AttachType.TRACE_KPROBE_SESSION else None
        code = generate(
            variants,
            accept,
            sleepable=False,
            action=self._action,
            dispatch=select,
            result=result,
            reject_result=skipped,
        )
        spec = ProgramSpec(
            code,
            type=kind,
            attach_type=attach_type,
            name="usdt",
            function=function,
            module=module,
        )
        return self._load(code, spec, variants)

    def load_to_run(self, variant: ProgramVariant, *, iterator: int = 0) -> Program:
        """Load a program that :meth:`usdt.bpf.program.Program.run` runs; the caller closes it.

        Args:
            variant: what it does.
            iterator: the BTF ID of the function of an iterator that runs it instead.

        Raises:
            SyscallError: the kernel rejects the program.
        """
        accept = replace(self._any_task(), since=0)
        code = generate([variant], accept, sleepable=False, action=self._action)
        self._code.append(code)
        spec = ProgramSpec(code, type=ProgType.RAW_TRACEPOINT, name="usdt")
        if iterator:
            kind = AttachType.TRACE_ITER
            spec = replace(spec, type=ProgType.TRACING, attach_type=kind, function=iterator)
        return spec.load(self._maps)

    def load_indexed(
        self,
        variants: Sequence[ProgramVariant],
        select: Callable[[Assembler], object] | None = None,
        *,
        excluded: int = 0,
        attach_type: AttachType = AttachType.NONE,
    ) -> Program | None:
        """Load a program on kprobes for any number of variants that differ only in their number.

        The parameters are those of :meth:`load`. Returns None if the variants differ in more.
        """
        write = self._action.indexed(variants)
        if write is None:
            return None
        accept = replace(self._in_kernel, excluded=excluded)
        code = generate_indexed(
            accept, count=write, find_variant=select, probe_index=variants[-1].probe_index
        )
        return self._load(code, ProgramSpec(code, attach_type=attach_type, name="usdt"), variants)

    def can_index(self, variants: Sequence[ProgramVariant]) -> bool:
        """Return whether :meth:`load_indexed` has a program for these variants."""
        return self._action.indexed(variants) is not None

    def _load(self, code: Code, spec: ProgramSpec, variants: Sequence[ProgramVariant]) -> Program:
        program = spec.load(self._maps)
        self._loaded.append(program)
        self._code.append(code)
        self.attach_log.append(
            f"program of {len(code)} instructions for {plural(len(variants), 'variant')}"
        )
        return program

    @property
    def pids(self) -> tuple[int, ...]:
        """The only processes that are traced; empty for all processes, or for a followed set."""
        return () if self._accept.followed is not None else self._accept.pids

    def serve_all_tasks(self) -> None:
        """Let programs of targets in the kernel serve all tasks, whichever are traced."""
        self._in_kernel = self._any_task()

    def _any_task(self) -> TaskFilter:
        accept = self._accept
        return TaskFilter(namespace=accept.namespace, since=accept.since, outsiders=True)

    def add_link(self, link: Link) -> None:
        """Add a link; close() closes it."""
        self._links.append(link)

    def own_map(self, made: Map) -> None:
        """Add a map; close() closes it after the programs."""
        self._owned.append(made)

    def add_maps(self, maps: dict[str, Map]) -> None:
        """Add maps, by name, for programs that are loaded later; the caller closes them."""
        self._maps |= maps

    def listings(self) -> list[str]:
        """Return the instructions of the loaded programs, one per line."""
        from usdt.bpf.asm.disasm import listing  # noqa: PLC0415 - only for -v -v

        lines = []
        for number, code in enumerate(self._code, 1):
            lines += [f"program {number}:", *listing(code)]
        return lines

    def close(self) -> None:
        """Detach everything; links are closed in parallel, as each close waits for the kernel."""
        links, self._links = self._links, []
        if self._loaded:  # otherwise there are no kprobes
            self.missed += sum(link.missed() for link in links)
            self.most_missed += [where for link in links for where in link.most_missed]
        steps = sum(link.detach_steps for link in links)
        began = time.monotonic()
        close_links(links)
        if steps >= _MANY:
            self.detach_seconds = time.monotonic() - began
        self.missed += sum(program.missed() for program in self._loaded)
        for made in (*self._programs, *self._loaded, *self._owned):
            made.close()
        self._owned.clear()
        self._loaded.clear()
        self._programs.clear()
