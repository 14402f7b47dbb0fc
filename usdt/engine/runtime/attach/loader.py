"""Programs, links and maps of one session: loaded, kept, and freed at the end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from usdt.bpf._uapi import BPF_F_SLEEPABLE, AttachType, ProgType
from usdt.bpf.link import close_links
from usdt.bpf.program import ProgramSpec
from usdt.engine.compiler.codegen.model import TaskFilter
from usdt.engine.compiler.codegen.program import generate, generate_indexed
from usdt.engine.compiler.codegen.record import RECORD_ACTION

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from usdt.bpf.asm.assembler import Assembler, Code
    from usdt.bpf.link import Link
    from usdt.bpf.maps import Map
    from usdt.bpf.program import Program
    from usdt.engine.compiler.codegen.model import ActionEmitter, ProgramVariant, VariantDispatch

__all__ = ("ProgramLoader",)

_MANY = 256  # links whose end takes so long that people want to know


class ProgramLoader:
    """Loads programs and keeps the links of one session.

    Args:
        maps: maps that programs refer to, by name.
        accept: which processes are traced.
        action: emits what is done at a hit.

    Attributes:
        attach_log: notes on what was attached by which kernel path, for ``-v``.
        progress: called now and then while many functions are attached, with how many are done
            and how many there are.
        detach_seconds: seconds that detaching took, where it was worth telling.
        missed: hits of which the kernel told no program, as far as it says.
        most_missed: functions at which most of them were, and how many, as far as it says.
    """

    progress: Callable[[int, int], object] | None = None
    detach_seconds = 0.0
    missed = 0

    def __init__(
        self, maps: dict[str, Map], accept: TaskFilter, action: ActionEmitter = RECORD_ACTION
    ) -> None:
        self._maps = maps | accept.maps
        self._accept = accept
        self._action = action
        self._code: list[Code] = []
        self._links: list[Link] = []
        self._programs: list[Program] = []  # of uprobes
        self._loaded: list[Program] = []  # for hooks of the kernel
        self._owned: list[Map] = []
        self.most_missed: list[tuple[str, int]] = []
        self.attach_log: list[str] = []

    def load_for_uprobes(
        self,
        cases: Sequence[ProgramVariant],
        attach_type: AttachType,
        *,
        sleepable: bool,
        note: str = "",
    ) -> Program:
        """Load a program for uprobes.

        Args:
            cases: the variants that it serves.
            attach_type: as :class:`usdt.bpf.program.ProgramSpec` has it.
            sleepable: whether it may take page faults.
            note: put before the word "program" in ``attach_log``.

        Raises:
            CodeTooLarge: too many variants for one program.
            SyscallError: the kernel refuses the program.
        """
        code = generate(cases, self._accept, sleepable=sleepable, action=self._action, uprobe=True)
        flags = BPF_F_SLEEPABLE if sleepable else 0
        spec = ProgramSpec(code, attach_type=attach_type, flags=flags, name="usdt")
        program = spec.load(self._maps)
        self._programs.append(program)
        self._code.append(code)
        self.attach_log.append(f"{note}program of {len(code)} instructions for {len(cases)} cases")
        return program

    def load(
        self,
        cases: Sequence[ProgramVariant],
        kind: ProgType,
        select: VariantDispatch | None = None,
        *,
        excluded: int = 0,
        attach_type: AttachType = AttachType.NONE,
        function: int = 0,
        module: int = 0,
    ) -> Program:
        """Load a program that never sleeps, for a target in the kernel.

        Args:
            cases: the variants that it serves.
            kind: the program type.
            select: how it finds the variant that was hit; None: by the attach cookie.
            excluded: a process that is not traced where all others are.
            attach_type: as :class:`usdt.bpf.program.ProgramSpec` has it.
            function: the same.
            module: the same.

        Raises:
            CodeTooLarge: too many variants for one program.
            SyscallError: the kernel refuses the program.
        """
        whom = self._accept
        accept = TaskFilter(whom.pids, whom.namespace, whom.followed, excluded)
        # If a program returns 0, the kernel hides the event from all other perf events, too.
        result = int(kind is ProgType.TRACEPOINT)
        # At an entry, 1 means that the return is not probed.
        skipped = 1 if attach_type is AttachType.TRACE_KPROBE_SESSION else None
        code = generate(
            cases,
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
        return self._load(code, spec, cases)

    def load_indexed(
        self,
        cases: Sequence[ProgramVariant],
        select: Callable[[Assembler], object] | None = None,
        *,
        excluded: int = 0,
        attach_type: AttachType = AttachType.NONE,
    ) -> Program | None:
        """Load a program on kprobes for any number of variants that differ only in their number.

        Arguments are those of :meth:`load`. Returns None if the variants differ in more.
        """
        write = self._action.indexed(cases)
        if write is None:
            return None
        whom = self._accept
        accept = TaskFilter(whom.pids, whom.namespace, whom.followed, excluded)
        code = generate_indexed(
            accept, count=write, find_variant=select, probe_index=cases[-1].probe_index
        )
        return self._load(code, ProgramSpec(code, attach_type=attach_type, name="usdt"), cases)

    def can_index(self, cases: Sequence[ProgramVariant]) -> bool:
        """Return whether :meth:`load_indexed` has a program for these variants."""
        return self._action.indexed(cases) is not None

    def _load(self, code: Code, spec: ProgramSpec, cases: Sequence[ProgramVariant]) -> Program:
        program = spec.load(self._maps)
        self._loaded.append(program)
        self._code.append(code)
        self.attach_log.append(f"program of {len(code)} instructions for {len(cases)} cases")
        return program

    @property
    def pids(self) -> tuple[int, ...]:
        """The only processes that are traced; empty: all, or a followed set."""
        return () if self._accept.followed is not None else self._accept.pids

    def add_link(self, link: Link) -> None:
        """Keep a link, which is closed with the others."""
        self._links.append(link)

    def own_map(self, made: Map) -> None:
        """Keep a map, which is closed with the programs."""
        self._owned.append(made)

    def add_maps(self, maps: dict[str, Map]) -> None:
        """Add maps, by name, for programs loaded from now on; the caller closes them."""
        self._maps |= maps

    def listings(self) -> list[str]:
        """Return the instructions of the loaded programs, one per line."""
        from usdt.bpf.asm.disasm import listing  # noqa: PLC0415 - only for people who look inside

        lines = []
        for number, code in enumerate(self._code, 1):
            lines += [f"program {number}:", *listing(code)]
        return lines

    def close(self) -> None:
        """Detach everything; links are closed side by side, as each waits for the kernel."""
        links, self._links = self._links, []
        if self._loaded:  # else there are no kprobes among them
            self.missed += sum(link.missed() for link in links)
            self.most_missed += [where for link in links for where in link.most_missed]
        places = sum(link.detach_steps for link in links)
        began = time.monotonic()
        close_links(links)
        if places >= _MANY:
            self.detach_seconds = time.monotonic() - began
        self.missed += sum(program.missed() for program in self._loaded)
        for made in (*self._programs, *self._loaded, *self._owned):
            made.close()
        self._owned.clear()
        self._loaded.clear()
        self._programs.clear()
