"""Attaching plans: programs are written, loaded and linked, the newest way the kernel has.

One program serves all cases of one attachment; where they do not fit one program (its jumps
reach 32,767 instructions), several do. One link serves all sites of one file in one process,
which matters when it is closed: the kernel waits tens of milliseconds for each link.
"""

from __future__ import annotations

import contextlib
import errno
import time
from itertools import groupby
from typing import TYPE_CHECKING

from usdt.base.closeable import allow_descriptors
from usdt.base.errors import NotSupported, SyscallError, TracingError
from usdt.base.frozen import frozen
from usdt.bpf import features
from usdt.bpf._uapi import BPF_F_SLEEPABLE, AttachType, ProgType
from usdt.bpf.asm.assembler import CodeTooLarge
from usdt.bpf.link import (
    Link,
    UprobeMethod,
    UprobeSite,
    attach_uprobe_ioctl,
    attach_uprobe_multi,
    attach_uprobe_perf,
    close_links,
)
from usdt.bpf.nmissed import missed_runs
from usdt.bpf.program import Program, ProgramSpec
from usdt.engine.compiler.codegen.program import Case, Filter, generate, generate_alike
from usdt.engine.compiler.codegen.record import write_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from usdt.bpf.asm.assembler import Assembler, Code
    from usdt.bpf.maps import Map
    from usdt.engine.compiler.arguments import Argument
    from usdt.engine.compiler.codegen.program import Body, Selector
    from usdt.engine.compiler.entry_return import CallStack
    from usdt.engine.compiler.resolve import Types
    from usdt.engine.runtime.attach.attach_points import Hook

__all__ = ("Attacher", "Failure", "Placed", "Point", "too_large")

_CASES = 256  # in one program at most: the verifier's work grows with each
_MANY = 256  # links whose end takes so long that people want to know


@frozen
class Point:
    """One call site to attach to, as a front describes it.

    Attributes:
        probe: name to show, ``provider:name``.
        path: file as people know it.
        open_path: what the kernel opens for it.
        offset: of the instruction in the file.
        ref_ctr_offset: of the semaphore in the file; 0: none.
        arguments: how this site passes each.
        pid: the one process to attach in; 0: every process that maps the file.
        function: what ``func`` is; by default the probe's name.
        call: of a function's first instruction: how its return is found.
        hook: of the kernel, instead of a place in a file.
        types: what knows members of its arguments, if anything does.
    """

    probe: str
    path: str
    open_path: str
    offset: int
    ref_ctr_offset: int
    arguments: tuple[Argument, ...]
    pid: int = 0
    function: str = ""
    call: CallStack | None = None
    hook: Hook | None = None
    types: Types | None = None


@frozen
class Placed:
    """A point and the case that runs there; ``returns``: where the function of it returns."""

    point: Point
    case: Case
    returns: bool = False


@frozen
class Failure:
    """Points that could not be attached, and why."""

    points: tuple[Point, ...]
    error: TracingError


class Attacher:
    """Loads programs and keeps the links of one session.

    Args:
        maps: what programs refer to by name.
        accept: which processes count.
        via: how to attach; None asks the kernel for its newest way.
        body: writes what is done at a hit.
        may_sleep: whether programs may take page faults, where the kernel lets them.

    Attributes:
        ways: notes on what was attached by which kernel path, for ``-v``.
        progress: called now and then while many functions are attached, with how many are done
            and how many there are.
        took: seconds that detaching took, where it was worth telling.
        missed: hits of which the kernel told no program, as far as it says.
        worst: functions at which most of them were, and how many, as far as it says.
    """

    progress: Callable[[int, int], object] | None = None
    took = 0.0
    missed = 0

    def __init__(
        self,
        maps: dict[str, Map],
        accept: Filter,
        via: UprobeMethod | None = None,
        body: Body = write_record,
        *,
        may_sleep: bool = True,
    ) -> None:
        self._maps = maps | accept.maps
        self._accept = accept
        self._via = via
        self._body = body
        self._may_sleep = may_sleep
        self._code: list[Code] = []
        self._links: list[Link] = []
        self._loaded: list[Program] = []  # for hooks of the kernel
        self._owned: list[Map] = []
        self.worst: list[tuple[str, int]] = []
        self._programs: dict[tuple[Case, ...], Program] = {}
        self.ways: list[str] = []

    def attach(self, placed: Sequence[Placed]) -> list[Failure]:
        """Attach every point; what fails is reported and does not keep the rest from it.

        Raises:
            SyscallError: no program could be loaded at all (no privilege, above all).
        """
        failures: list[Failure] = []
        if any(item.point.hook is not None for item in placed):
            from usdt.engine.runtime.attach.kernel_events import attach_hooked  # noqa: PLC0415 - not for files

            failures += attach_hooked(self, [one for one in placed if one.point.hook is not None])
            placed = [item for item in placed if item.point.hook is None]
            if not placed:
                return failures
        if self._via is None:
            self._via = features.best_uprobe_method()
        # Without cookies a program cannot know which site was hit: each case has its own.
        limit = 1 if self._via is UprobeMethod.PERF_EVENT else _CASES
        ordered = sorted(placed, key=_file if limit > 1 else _case)
        for _, group in groupby(ordered, key=_file):
            for part in _parts(list(group), limit):
                failures += self._attach_part(part)
        return failures

    def load(
        self,
        cases: Sequence[Case],
        kind: ProgType,
        select: Selector | None = None,
        *,
        excluded: int = 0,
        attach_type: AttachType = AttachType.NONE,
        function: int = 0,
        module: int = 0,
    ) -> Program:
        """Load a program that never sleeps, of a kind that hooks of the kernel take.

        Args:
            cases: that it serves.
            kind: of program.
            select: how it finds out which case was hit; None: by the cookie.
            excluded: a process that does not count where all others do.
            attach_type: as :class:`usdt.bpf.program.ProgramSpec` has it.
            function: the same.
            module: the same.

        Raises:
            CodeTooLarge: too many cases.
            SyscallError: the kernel's word.
        """
        whom = self._accept
        accept = Filter(whom.pids, whom.namespace, whom.followed, excluded)
        # An event whose program returns 0 is kept from everybody else's perf events, too.
        result = int(kind is ProgType.TRACEPOINT)
        # At an entry: whether its return is left out.
        skipped = 1 if attach_type is AttachType.TRACE_KPROBE_SESSION else None
        code = generate(
            cases,
            accept,
            sleepable=False,
            body=self._body,
            select=select,
            result=result,
            skipped=skipped,
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

    def load_alike(
        self,
        cases: Sequence[Case],
        select: Callable[[Assembler], object] | None = None,
        *,
        excluded: int = 0,
        attach_type: AttachType = AttachType.NONE,
    ) -> Program | None:
        """Load a program on kprobes for any number of cases that differ in their number alone.

        As :meth:`load`; None: they differ in something else, too.
        """
        from usdt.engine.aggregate.codegen.bulk_counters import row_writer  # noqa: PLC0415 - only for patterns

        write = row_writer(self._body, cases)
        if write is None:
            return None
        whom = self._accept
        accept = Filter(whom.pids, whom.namespace, whom.followed, excluded)
        code = generate_alike(accept, count=write, select=select, probe=cases[-1].probe)
        return self._load(code, ProgramSpec(code, attach_type=attach_type, name="usdt"), cases)

    def are_alike(self, cases: Sequence[Case]) -> bool:
        """Whether :meth:`load_alike` has a program for them."""
        from usdt.engine.aggregate.codegen.bulk_counters import row_writer  # noqa: PLC0415 - only for patterns

        return row_writer(self._body, cases) is not None

    def _load(self, code: Code, spec: ProgramSpec, cases: Sequence[Case]) -> Program:
        program = spec.load(self._maps)
        self._loaded.append(program)
        self._code.append(code)
        self.ways.append(f"program of {len(code)} instructions for {len(cases)} cases")
        return program

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes that alone count; empty: all, or children as well."""
        return () if self._accept.followed is not None else self._accept.pids

    def keep(self, link: Link) -> None:
        """Close a link with the others."""
        self._links.append(link)

    def own(self, made: Map) -> None:
        """Close a map with the programs."""
        self._owned.append(made)

    def add_map(self, name: str, made: Map) -> None:
        """Give programs that are loaded from now on another map."""
        self._maps[name] = made

    def listings(self) -> list[str]:
        """The instructions of the programs loaded, one a line."""
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
            self.worst += [where for link in links for where in link.worst]
        places = sum(link.places for link in links)
        began = time.monotonic()
        close_links(links)
        if places >= _MANY:
            self.took = time.monotonic() - began
        self.missed += sum(missed_runs(program.fd) for program in self._loaded)
        for made in (*self._programs.values(), *self._loaded, *self._owned):
            made.close()
        self._owned.clear()
        self._loaded.clear()
        self._programs.clear()

    def _attach_part(self, placed: list[Placed]) -> list[Failure]:
        cases = tuple(dict.fromkeys(item.case for item in placed))
        try:
            program = self._program(cases)
        except CodeTooLarge as err:
            if len(placed) == 1:
                raise too_large(placed[0]) from err
            return self._halves(placed)
        try:
            self._link(program, placed)
        except (SyscallError, NotSupported) as err:
            if isinstance(err, SyscallError) and err.errno in (errno.EPERM, errno.EACCES):
                raise
            if len(placed) > 1 and not (isinstance(err, OSError) and err.errno == errno.ESRCH):
                return self._halves(placed)
            return [Failure(tuple(item.point for item in placed), _explained(err, placed[0].point))]
        return []

    def _halves(self, placed: list[Placed]) -> list[Failure]:
        middle = len(placed) // 2
        return self._attach_part(placed[:middle]) + self._attach_part(placed[middle:])

    def _program(self, cases: tuple[Case, ...]) -> Program:
        if cases not in self._programs:
            faultable = any(case.plan.faultable for case in cases)
            sleepable = faultable and self._may_sleep and features.have_sleepable_uprobes()
            code = generate(cases, self._accept, sleepable=sleepable, body=self._body, uprobe=True)
            multi = self._via is UprobeMethod.UPROBE_MULTI
            spec = ProgramSpec(
                code,
                attach_type=AttachType.TRACE_UPROBE_MULTI if multi else AttachType.NONE,
                flags=BPF_F_SLEEPABLE if sleepable else 0,
                name="usdt",
            )
            self._programs[cases] = spec.load(self._maps)
            self._code.append(code)
            kind = "sleepable " if sleepable else ""
            if faultable and not sleepable:
                kind = "non-sleepable (memory not paged in will be unreadable) "
            self.ways.append(f"{kind}program of {len(code)} instructions for {len(cases)} cases")
        return self._programs[cases]

    def _link(self, program: Program, placed: list[Placed]) -> None:
        point = placed[0].point
        sites = list(dict.fromkeys(_site(item) for item in placed))
        on_return = placed[0].returns
        what = f"{len(sites)} {'returns' if on_return else 'sites'}"
        where = f"{what} of {point.path}" + (f" in {point.pid}" if point.pid else "")
        if self._via is UprobeMethod.UPROBE_MULTI:
            link = attach_uprobe_multi(
                program, point.open_path, sites, pid=point.pid, on_return=on_return
            )
            self._links.append(link)
            self.ways.append(f"{where}: one uprobe_multi link")
            return
        allow_descriptors(2 * len(sites))
        attach = attach_uprobe_perf if self._via is UprobeMethod.PERF_LINK else attach_uprobe_ioctl
        with contextlib.ExitStack() as stack:  # closes what was made, if one fails
            made = [
                stack.enter_context(
                    attach(program, point.open_path, site, pid=point.pid, on_return=on_return)
                )
                for site in sites
            ]
            stack.pop_all()
        self._links += made
        kind = (
            "with links and cookies" if self._via is UprobeMethod.PERF_LINK else "without cookies"
        )
        self.ways.append(f"{where}: {len(sites)} perf events {kind}")


def too_large(item: Placed) -> TracingError:
    """What to say of a point whose program is larger than the kernel takes."""
    return TracingError(
        f"{item.point.probe}: its items make a program too large for the kernel; show fewer, "
        "or name the probe twice with some of them each"
    )


def _file(item: Placed) -> tuple[str, int, bool, int]:
    # Returns first: so no entry is followed whose return would be missed.
    frame = 0 if item.case.call is None else item.case.call.size
    return item.point.open_path, item.point.pid, not item.returns, frame


def _case(item: Placed) -> tuple[str, int, bool, int, int]:
    return *_file(item), item.case.number


def _site(item: Placed) -> UprobeSite:
    return UprobeSite(item.point.offset, item.point.ref_ctr_offset, item.case.number)


def _parts(placed: list[Placed], limit: int) -> Iterator[list[Placed]]:
    # Split so that no part has more cases than one program should.
    part: list[Placed] = []
    cases: set[int] = set()
    for item in placed:
        if item.case.number not in cases and len(cases) == limit:
            yield part
            part, cases = [], set()
        cases.add(item.case.number)
        part.append(item)
    if part:
        yield part


def _explained(err: TracingError, point: Point) -> TracingError:
    where = f"{point.probe} in {point.path} at offset {point.offset:#x}"
    if not isinstance(err, SyscallError):
        return TracingError(f"{where}: {err}")
    number = err.errno or 0
    if number == errno.EINVAL and point.ref_ctr_offset:
        hint = (
            "another tracer may hold this place with a different semaphore, or none, as bcc's "
            "USDT class does: stop it and try again"
        )
    elif number == errno.EINVAL:
        hint = "another tracer may hold this place with a semaphore, or it is no instruction"
    elif number == errno.ESRCH:
        hint = f"process {point.pid} has ended"
    else:
        hint = err.hint
    return SyscallError(number, f"attach to {where}", hint)
