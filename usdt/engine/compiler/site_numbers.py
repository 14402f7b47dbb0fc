"""Numbers of sites: variants whose plans differ only in numbers share code.

The operands of a probe often differ from site to site in a constant or in a displacement. With a
program for each of them, ten thousand sites are half a million instructions, which the verifier
goes through one by one. Here, :class:`SharedCode` takes the numbers out of the plans. What is left
is equal for many sites, so that one body of code serves them. A body finds the numbers of the site
that was hit in a row of an array:

    0    u32   number of the variant
    4    u32   index of the probe's counters
    8    u32   index of the body
    16   u64   numbers, as :class:`usdt.arch.locations.SiteNumber` counts them
"""

from __future__ import annotations

import struct
from collections import Counter
from typing import TYPE_CHECKING

from usdt.arch.locations import Address, Constant, Memory, SiteNumber
from usdt.base.frozen import frozen, replace
from usdt.engine.compiler.ir import ArgumentValue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.arch.locations import Location
    from usdt.engine.compiler.codegen.model import ProgramVariant
    from usdt.engine.compiler.ir import Node
    from usdt.engine.compiler.outputs import Output
    from usdt.engine.compiler.plan import ProbePlan

__all__ = ("SharedCode", "SiteTable")

_MANY = 16  # fewer variants have their numbers in their code, which a hit finds a little sooner
_WORD = (1 << 64) - 1


@frozen
class SiteTable:
    """The bodies of a program, and the array that tells its sites apart.

    Attributes:
        bodies: what :func:`usdt.engine.compiler.codegen.program.generate` takes as variants.
        first: the number of the variant of row 0.
        rows: index of the row → its bytes, all of one length.
    """

    bodies: tuple[ProgramVariant, ...]
    first: int
    rows: dict[int, bytes]


class SharedCode:
    """What the code of some variants has in common; not for variants that keep entry state.

    Args:
        variants: all that may be in one program, or in several.
    """

    def __init__(self, variants: Sequence[ProgramVariant]) -> None:
        self._plans: list[ProbePlan] = []
        # Number of a variant → index of its plan, and its numbers.
        self._shared: dict[int, tuple[int, tuple[int, ...]]] = {}
        if len(variants) < _MANY or not all(map(_is_plain, variants)):
            return
        plans: dict[ProbePlan, int] = {}  # each is looked up once: that goes through all of it
        found = {}
        for one in variants:
            plan, numbers = _factored(one.plan)
            found[one.number] = plans.setdefault(plan, len(plans)), numbers
        counts = Counter(index for index, _ in found.values())
        self._plans = [*plans]
        self._shared = {number: one for number, one in found.items() if counts[one[0]] >= _MANY}

    def body_of(self, variant: ProgramVariant) -> int:
        """Return a number that is equal for variants that share a body."""
        shared = self._shared.get(variant.number)
        return variant.number if shared is None else -1 - shared[0]

    def table(self, variants: Sequence[ProgramVariant]) -> SiteTable | None:
        """Return the table of a program for some of the variants; None if they share nothing."""
        if not any(variant.number in self._shared for variant in variants):
            return None
        bodies: dict[int, ProgramVariant] = {}
        contents = []
        for variant in variants:
            index, numbers = self._shared.get(variant.number, (-1, ()))
            body = self.body_of(variant)
            if body not in bodies:
                plan = variant.plan if index < 0 else self._plans[index]
                bodies[body] = replace(variant, number=len(bodies), plan=plan, in_row=True)
            contents.append((variant, bodies[body].number, numbers))
        first = min(variant.number for variant in variants)
        row = struct.Struct(f"=IIII{max(len(numbers) for *_, numbers in contents)}Q")
        rows = {}
        for variant, index, numbers in contents:
            padded = (*numbers, *[0] * ((row.size - 16) // 8 - len(numbers)))
            rows[variant.number - first] = row.pack(
                variant.number, variant.probe_index, index, 0, *padded
            )
        return SiteTable(tuple(bodies.values()), first, rows)


def _is_plain(variant: ProgramVariant) -> bool:
    # Whether its action is a record of its plan.
    if variant.call is not None or variant.pair is not None or variant.condition is not None:
        return False
    return variant.plan.start is None and variant.plan.body is None


def _factored(plan: ProbePlan) -> tuple[ProbePlan, tuple[int, ...]]:
    # The plan without the numbers in its locations, and these.
    numbers = _Numbers()
    predicates = tuple(map(numbers.node, plan.predicates))
    outputs = tuple(map(numbers.output, plan.outputs))
    return replace(plan, predicates=predicates, outputs=outputs), tuple(numbers.found)


class _Numbers:
    """Takes the numbers out of locations; ``found`` has them, as u64."""

    def __init__(self) -> None:
        self.found: list[int] = []

    def output(self, output: Output) -> Output:
        length = None if output.length is None else self.node(output.length)
        return replace(output, node=self.node(output.node), length=length)

    def node(self, node: Node) -> Node:
        if isinstance(node, ArgumentValue):
            return ArgumentValue(self._location(node.fetch), node.type, node.type_id)
        from usdt.engine.compiler.entry_return import rebuilt  # noqa: PLC0415 - for many sites

        return rebuilt(node, self.node)

    def _location(self, fetch: Location) -> Location:
        match fetch:
            case Constant(value=value):
                return self._number(value)
            case Memory(displacement=value) if not fetch.kernel:
                return replace(fetch, displacement=0, of_site=self._number(value))
            case Address(displacement=value):
                return replace(fetch, displacement=0, of_site=self._number(value))
        return fetch

    def _number(self, value: int) -> SiteNumber:
        self.found.append(value & _WORD)
        return SiteNumber(len(self.found) - 1)
