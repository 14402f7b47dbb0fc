"""The types that the parts of code generation share.

ProgramVariant   a plan at one probe; a program has one or several
TaskFilter       which processes are traced
HitCondition     decides, in addition to the predicates, whether a hit counts
ActionEmitter    emits the action of a hit: a record, or an update of an aggregate
VariantDispatch  emits the code that finds the variant that was hit
Labels           where the code for a hit may end
stack_flags      the flags with which the kernel records a kind of stack
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, assert_never

from usdt.base.frozen import frozen
from usdt.bpf.rings.groups import ONE_RING
from usdt.engine.language.tree import StackKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from usdt.bpf.asm.assembler import Assembler
    from usdt.bpf.maps import Map
    from usdt.bpf.rings.groups import RingGroups
    from usdt.engine.compiler.entry_return import EntryReturnRole
    from usdt.engine.compiler.plan import ProbePlan

__all__ = (
    "COUNTERS",
    "EXIT",
    "LEFT",
    "SITE_ROWS",
    "UNPAIRED",
    "ActionEmitter",
    "CgroupSetMaps",
    "HitCondition",
    "Labels",
    "PairRole",
    "ProgramVariant",
    "TaskFilter",
    "TaskSetMaps",
    "VariantDispatch",
    "stack_flags",
)

EXIT = "exit"  # label of a program: the end of the code for a hit
UNPAIRED = "odd"  # array of one entry: u64 ends without a start, then others of the session
LEFT = 16  # offset in UNPAIRED: u64 starts of spans that an exception or longjmp() has left
COUNTERS = "counters"  # array: probe index → u64 lost hits, u64 hits with an unreadable predicate
SITE_ROWS = "sites"  # array of rows of :mod:`usdt.engine.compiler.site_numbers`
_USER_STACK = 1 << 8  # BPF_F_USER_STACK


def stack_flags(kind: StackKind) -> int:
    """Return the flags of ``bpf_get_stack`` and ``bpf_get_stackid`` for a kind of stack."""
    match kind:
        case StackKind.USER:
            return _USER_STACK
        case StackKind.KERNEL:
            return 0
        case StackKind.PYTHON:
            raise TypeError("the kernel records no Python stacks")
        case _:
            assert_never(kind)


@frozen
class ProgramVariant:
    """A plan at one probe; a program has one or several.

    Attributes:
        number: from 1; the attach cookie of its sites, and the number in its records.
        probe_index: the probe's index in the map ``COUNTERS``.
        plan: the predicates and outputs of a hit.
        call: the role of this variant, if a function is traced from entry to return.
        condition: decides, in addition to the predicates, whether a hit counts; or None.
        pair: the role of this variant, if it is an end of a pair of probes.
        in_row: whether ``number`` is that of a body of code (``compiler.site_numbers``); the
            number in its records, its probe and its numbers are in the row of the site.
    """

    number: int
    probe_index: int
    plan: ProbePlan
    call: EntryReturnRole | None = None
    condition: HitCondition | None = None
    pair: PairRole | None = None
    in_row: bool = False

    @property
    def at_entry(self) -> bool:
        """Whether it creates entry state."""
        role = self.pair or self.call
        return role is not None and role.entry

    @property
    def at_end(self) -> bool:
        """Whether it takes entry state."""
        role = self.pair or self.call
        return role is not None and not role.entry

    @property
    def same_thread(self) -> bool:
        """Whether the entry state is taken in the thread that creates it."""
        if self.pair is not None:
            return self.pair.same_thread
        return self.call is not None and self.call.stack.same_thread

    @property
    def faultable(self) -> bool:
        """Whether a value may be unreadable, for example because a page is absent."""
        image = None if self.call is None else self.call.start
        return (
            self.plan.faultable
            or (image is not None and image.faultable)
            or (self.pair is not None and self.pair.faultable)
        )


class PairRole(Protocol):
    """The role of a variant that is the start or the end of a pair of probes. Hashable.

    Its entry state is found by the pair's key. The address is in ``ENTRY_STATE_SLOT``, or 0.
    """

    @property
    def entry(self) -> bool:
        """True for the start, which creates entry state; False for the end."""

    @property
    def faultable(self) -> bool:
        """Whether a part of the key may be unreadable."""

    @property
    def same_thread(self) -> bool:
        """Whether the key is the thread."""

    def emit_start(
        self, asm: Assembler, variant: ProgramVariant, labels: Labels, *, sleepable: bool
    ) -> None:
        """Emit the action of a start: create the entry state and fill it."""

    def emit_refuse(self, asm: Assembler, labels: Labels, after: str, *, sleepable: bool) -> None:
        """Emit code for a start that does not count, so that its end finds no other start.

        The code continues at ``after``.
        """

    def emit_find(self, asm: Assembler, labels: Labels, missing: str, *, sleepable: bool) -> None:
        """Emit code that finds the entry state at an end; it goes to ``missing`` without one."""

    def emit_remove(self, asm: Assembler, missing: str) -> None:
        """Emit code that removes the entry state that was found; to ``missing`` if none was."""


class TaskSetMaps(Protocol):
    """A set of tasks that programs look up: :class:`usdt.engine.runtime.follow.TaskSet`."""

    @property
    def maps(self) -> Mapping[str, Map]:
        """The maps in which programs look tasks up, by name."""


class CgroupSetMaps(Protocol):
    """Cgroups that programs look up: :class:`usdt.engine.runtime.cgroup_set.CgroupSet`."""

    @property
    def levels(self) -> Sequence[int]:
        """The levels below the root at which they are."""

    @property
    def more_levels(self) -> Sequence[int]:
        """Those at which cgroups that are added later may be."""

    @property
    def maps(self) -> Mapping[str, Map]:
        """The map in which programs look cgroups up, by name."""


@frozen
class TaskFilter:
    """Which processes are traced.

    Attributes:
        pids: process IDs as the tracer sees them; empty: all.
        namespace: (device, inode) of the tracer's PID namespace if that is not the initial one,
            for bpf_get_ns_current_pid_tgid (Linux 5.7, commit b4490c5c4e02); else None.
        followed: the set of tasks that are traced instead of ``pids``.
        excluded: if all processes are traced, the ID of one that is not: the tracer, whose output
            would otherwise cause more hits. 0: none.
        cgroups: the cgroups in which, or below which, tasks must be in addition; None: any.
        since: nanoseconds of CLOCK_MONOTONIC: hits before do not count.
        outsiders: if all processes are traced, whether those without an ID in ``namespace`` are,
            too, with the ID 0.
    """

    pids: tuple[int, ...] = ()
    namespace: tuple[int, int] | None = None
    followed: TaskSetMaps | None = None
    excluded: int = 0
    cgroups: CgroupSetMaps | None = None
    since: int = 0
    outsiders: bool = False

    @property
    def maps(self) -> dict[str, Map]:
        """The maps that programs with this filter refer to, by name."""
        sets = (self.followed, self.cgroups)
        return {name: one for found in sets if found for name, one in found.maps.items()}


@frozen
class Labels:
    """The labels at which the code for a hit may end.

    Attributes:
        lost: a buffer or map is full, so the hit is counted as lost.
        undecided: a value that decides about the hit is unreadable; the hit is counted as
            undecided.
        exit: the end of the code for a hit.
    """

    lost: str
    undecided: str
    exit: str = EXIT


class HitCondition(Protocol):
    """Decides, in addition to the predicates, whether a hit counts. Hashable."""

    @property
    def after_predicates(self) -> bool:
        """True if it is evaluated only when the predicates hold; False if before them."""

    def prepare(self, asm: Assembler) -> None:
        """Emit code that runs before the predicates, whether they hold or not."""

    def emit(self, asm: Assembler, lost: str) -> None:
        """Emit code that falls through if the hit counts, and otherwise goes to ``EXIT``.

        The code preserves r6 and r9. It goes to ``lost`` if it cannot decide because a map is full.
        """


class ActionEmitter(Protocol):
    """Emits the action of a variant, which runs at a hit whose predicates hold.

    The code finds the context in r6 and pid_tgid in r9. Every path through it ends with a
    ``goto`` to one of the given labels. Its own labels come from ``asm.new_label()``.

    Attributes:
        shares_code: whether it emits the action of a variant with ``in_row``.
        writes_to_arrays: whether it writes to ring buffers in an array where the kernel can that.
    """

    shares_code: bool = False
    writes_to_arrays: bool = False

    def emit(
        self, asm: Assembler, variant: ProgramVariant, labels: Labels, *, sleepable: bool
    ) -> None:
        """Emit the action; ``sleepable``: the program may sleep, so it may handle page faults."""

    @property
    def groups(self) -> RingGroups:
        """How the CPUs share the ring buffers that the action writes to."""
        return ONE_RING

    def into(self, groups: RingGroups) -> ActionEmitter:
        """Return the action that writes to ring buffers in an array."""
        del groups
        return self

    def indexed(
        self, variants: Iterable[ProgramVariant]
    ) -> Callable[[Assembler, str], None] | None:
        """Return a function that emits one action for variants that differ only in their number.

        Its arguments are the assembler and the label of lost hits. The code that it emits finds
        the variant's number minus one in ``KEY_SLOT``. None if there is no such action.
        """
        del variants
        return None


class VariantDispatch(Protocol):
    """Finds the variant that was hit if the attach cookie does not identify it."""

    @property
    def keys(self) -> Sequence[tuple[int, int]]:
        """Pairs of a key and the number of its variant."""

    def emit(self, asm: Assembler) -> None:
        """Emit code that leaves a key in r0 or goes to ``EXIT``."""
