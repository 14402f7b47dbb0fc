"""What the parts of code generation share: variants, filters, and the protocols of what emits code.

Case      a plan at one probe; a program has one or several
Filter    which processes count
Gate      what decides beside the predicates whether a hit counts
Body      emits what is done at a hit
Selector  emits how a program finds out which case was hit
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from usdt.bpf.asm.assembler import Assembler
    from usdt.bpf.maps import Map
    from usdt.engine.compiler.entry_return import EntryReturnRole
    from usdt.engine.compiler.plan import ProbePlan

__all__ = (
    "COUNTERS",
    "ActionEmitter",
    "HitCondition",
    "ProgramVariant",
    "TaskFilter",
    "TaskSetMaps",
    "VariantDispatch",
    "lost_label",
    "unread_label",
)

COUNTERS = "counters"  # array: probe index → u64 lost, u64 predicates that could not be read


@frozen
class ProgramVariant:
    """A plan at one probe.

    Attributes:
        number: its cookie, which stands in its records.
        probe: the probe's index.
        plan: what is done.
        call: of a function that is followed from entry to return, which of the two this is.
        gate: what else decides whether a hit counts.
    """

    number: int
    probe: int
    plan: ProbePlan
    call: EntryReturnRole | None = None
    gate: HitCondition | None = None


class TaskSetMaps(Protocol):
    """A set of tasks that programs ask: :class:`usdt.engine.runtime.follow.TaskSet`."""

    @property
    def maps(self) -> Mapping[str, Map]:
        """The maps in which programs look tasks up, by name."""


@frozen
class TaskFilter:
    """Which processes count.

    Attributes:
        pids: process IDs as the tracer sees them; empty: all.
        namespace: (device, inode) of the tracer's PID namespace where that is not the initial
            one, for bpf_get_ns_current_pid_tgid (Linux 5.7, commit b4490c5c4e02); else None.
        followed: the set of tasks that count instead of ``pids``.
        excluded: a process that does not count where all others do: the tracer itself, whose
            every line would be the cause of another.
    """

    pids: tuple[int, ...] = ()
    namespace: tuple[int, int] | None = None
    followed: TaskSetMaps | None = None
    excluded: int = 0

    @property
    def maps(self) -> dict[str, Map]:
        """What programs of this filter refer to by name."""
        return {} if self.followed is None else dict(self.followed.maps)


class HitCondition(Protocol):
    """Decides whether a hit counts, beside the predicates. Hashable."""

    @property
    def entry(self) -> bool:
        """Whether it comes behind the predicates, which then decide whether it is asked."""

    def settle(self, asm: Assembler) -> None:
        """Write what is to be done before the predicates, and whatever they say."""

    def write(self, asm: Assembler, lost: str) -> None:
        """Fall through if the hit counts, else go to ``exit``; r6 and r9 stay.

        ``lost`` is the label of hits that cannot be decided for want of room.
        """


class ActionEmitter(Protocol):
    """Writes what is done at a hit of a case whose predicates hold.

    The code begins with r6 and r9 as said above. Every way through it ends in a ``goto``: to
    ``exit`` when all is done, or to :func:`lost_label` when the hit found no room. Its own labels
    come from ``asm.new_label()`` or carry the case's number.
    """

    def emit(self, asm: Assembler, case: ProgramVariant, *, sleepable: bool) -> None:
        """Write it; ``sleepable``: the program may take page faults, and this case may need to."""

    def indexed(self, cases: Iterable[ProgramVariant]) -> Callable[[Assembler, str], None] | None:
        """One body for any number of cases, or None if they differ in more than their number.

        It is given the assembler and where to go with a hit that finds no room, and finds the
        case's number less one in ``KEY_SLOT``.
        """
        del cases
        return None


def lost_label(case: ProgramVariant) -> str:
    """Where a body goes with a hit that it cannot keep: it is counted as lost."""
    return f"lost.{case.number}"


def unread_label(case: ProgramVariant) -> str:
    """Where a body goes with a hit of which it needs what cannot be read: it is counted."""
    return f"unread.{case.number}"


class VariantDispatch(Protocol):
    """How a program finds out which case was hit, where no cookie says it."""

    @property
    def keys(self) -> Sequence[tuple[int, int]]:
        """Numbers and the numbers of the cases they stand for."""

    def write(self, asm: Assembler) -> None:
        """Leave the number in r0, or go to ``exit``."""
