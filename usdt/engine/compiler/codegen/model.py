"""The types that the parts of code generation share.

ProgramVariant   a plan at one probe; a program has one or several
TaskFilter       which processes are traced
HitCondition     decides beside the predicates whether a hit counts
ActionEmitter    emits what is done at a hit
VariantDispatch  emits how a program finds the variant that was hit
Labels           where the code for a hit may end
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
    "EXIT",
    "ActionEmitter",
    "HitCondition",
    "Labels",
    "ProgramVariant",
    "TaskFilter",
    "TaskSetMaps",
    "VariantDispatch",
)

EXIT = "exit"  # label of a program: the hit is done with
COUNTERS = "counters"  # array: probe index → u64 lost, u64 predicates that could not be read


@frozen
class ProgramVariant:
    """A plan at one probe; a program has one or several.

    Attributes:
        number: the attach cookie of its sites, and what its records say they are of; from 1.
        probe_index: the probe's index in the map ``COUNTERS``.
        plan: what is computed at a hit.
        call: the role of this variant, if a function is traced from entry to return.
        condition: what else decides whether a hit counts.
    """

    number: int
    probe_index: int
    plan: ProbePlan
    call: EntryReturnRole | None = None
    condition: HitCondition | None = None


class TaskSetMaps(Protocol):
    """A set of tasks that programs ask: :class:`usdt.engine.runtime.follow.TaskSet`."""

    @property
    def maps(self) -> Mapping[str, Map]:
        """The maps in which programs look tasks up, by name."""


@frozen
class TaskFilter:
    """Which processes are traced.

    Attributes:
        pids: process IDs as the tracer sees them; empty: all.
        namespace: (device, inode) of the tracer's PID namespace if that is not the initial one,
            for bpf_get_ns_current_pid_tgid (Linux 5.7, commit b4490c5c4e02); else None.
        followed: the set of tasks that are traced instead of ``pids``.
        excluded: a process that is not traced where all others are: the tracer itself, each of
            whose lines would otherwise cause the next.
    """

    pids: tuple[int, ...] = ()
    namespace: tuple[int, int] | None = None
    followed: TaskSetMaps | None = None
    excluded: int = 0

    @property
    def maps(self) -> dict[str, Map]:
        """The maps that programs with this filter refer to, by name."""
        return {} if self.followed is None else dict(self.followed.maps)


@frozen
class Labels:
    """The labels at which the code for a hit may end.

    Attributes:
        lost: the hit cannot be kept, as a buffer or map is full; it is counted as lost.
        undecided: something the hit depends on cannot be read; it is counted as undecided.
        exit: the hit is done with.
    """

    lost: str
    undecided: str
    exit: str = EXIT


class HitCondition(Protocol):
    """Decides, beside the predicates, whether a hit counts. Hashable."""

    @property
    def after_predicates(self) -> bool:
        """Whether it is asked only where the predicates hold; else it comes first."""

    def prepare(self, asm: Assembler) -> None:
        """Emit what must run before the predicates, whatever their outcome."""

    def emit(self, asm: Assembler, lost: str) -> None:
        """Emit code that falls through if the hit counts and else goes to ``EXIT``.

        It keeps r6 and r9. It goes to ``lost`` if it cannot decide because a map is full.
        """


class ActionEmitter(Protocol):
    """Emits what is done at a hit of a variant whose predicates hold.

    The code begins with the context in r6 and pid_tgid in r9. Every path through it ends in a
    ``goto`` to one of the labels it is given. Its own labels come from ``asm.new_label()``.
    """

    def emit(
        self, asm: Assembler, variant: ProgramVariant, labels: Labels, *, sleepable: bool
    ) -> None:
        """Emit the action; ``sleepable``: the program may take page faults, and may need to."""

    def indexed(
        self, variants: Iterable[ProgramVariant]
    ) -> Callable[[Assembler, str], None] | None:
        """Return what emits one action for any number of variants that differ only in number.

        It is called with the assembler and the label of lost hits; the code finds the variant's
        number less one in ``KEY_SLOT``. None: the variants differ in more than that.
        """
        del variants
        return None


class VariantDispatch(Protocol):
    """Finds the variant that was hit, if no attach cookie tells it."""

    @property
    def keys(self) -> Sequence[tuple[int, int]]:
        """Pairs of a key and the number of the variant that it stands for."""

    def emit(self, asm: Assembler) -> None:
        """Emit code that leaves a key in r0 or goes to ``EXIT``."""
