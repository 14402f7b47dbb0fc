"""Probes as event definitions: lines for the tracefs file ``uprobe_events``.

There is one definition per site. A definition fetches the values of the items, or all arguments.
For each item that an event cannot fetch, a note gives the reason.
"""

from __future__ import annotations

import re
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from usdt.arch.pt_regs import PT_REGS
from usdt.base.errors import TracingError
from usdt.base.frozen import frozen, replace
from usdt.base.machine import KERNEL_MACHINE, word_size
from usdt.engine.compiler.entry_return import needs_return
from usdt.engine.compiler.ir import Builtin, StringEquals
from usdt.engine.compiler.plan import make_plan
from usdt.engine.compiler.record.columns import FloatColumn, IntColumn, IntFormat
from usdt.engine.runtime.tracefs_backend.event_filter import kernel_filter
from usdt.engine.runtime.tracefs_backend.event_planner import COMM, EventPlanner
from usdt.engine.runtime.tracefs_backend.fetch_args import (
    FetchArg,
    FetchArgBuilder,
    UnsupportedFetch,
)
from usdt.engine.runtime.tracefs_backend.site_events import (
    PLAIN_PATH,
    attach_point_text,
    event_label,
)
from usdt.probes.sites import declared_arguments, foreign_reason, points_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.engine.compiler.ir import Node
    from usdt.engine.compiler.outputs import Output
    from usdt.engine.compiler.plan import ProbePlan
    from usdt.engine.language.tree import ProbeText
    from usdt.engine.runtime.attach.attach_points import AttachPoint
    from usdt.probes.probe import Probe
    from usdt.uprobes.provider import FunctionRequest

__all__ = ("GROUP", "SiteEvent", "function_events", "site_events")

GROUP = "usdt"
_HEADS = {"pid": "", "tid": "common_pid", "cpu": "the CPU of its buffer", "ts": "its time"}
_MAX_NAME = 32  # characters of an argument's name, MAX_ARG_NAME_LEN
_RESERVED = re.compile(r"common_|__probe_|arg\d+$")


@frozen
class SiteEvent:
    """An event definition for a site.

    Attributes:
        name: name of the event, without its group.
        text: the definition.
        filter: content of the event's ``filter`` file; "" for none.
        notes: what the definition cannot express, one line each.
    """

    name: str
    text: str
    filter: str
    notes: tuple[str, ...]


def site_events(
    probe: Probe, request: ProbeText, *, group: str = GROUP, taken: set[str] | None = None
) -> Iterator[SiteEvent]:
    """Yield a definition for each live site of a probe.

    Args:
        probe: the probe.
        request: the parsed probe with its items.
        group: group of the events.
        taken: names of other events; the new names are added.

    Raises:
        LanguageError: an item does not fit the probe.
        TracingError: the kernel's filter language cannot express a predicate, or a definition
            cannot name the file.
        ElfError: the file's symbols are needed and cannot be read.
    """
    path = _plain(probe.path)
    kernel = KERNEL_MACHINE if foreign_reason(probe) is None else _native(probe.machine)
    declared = declared_arguments([probe])
    taken = set() if taken is None else taken
    for number, point in enumerate(points_of(probe, probe.path, items=request.items)):
        plan = make_plan(
            request.items,
            point.arguments,
            text=request.text,
            probe=point.probe,
            declared=declared,
            registers=point.registers,
            types=point.types,
        )
        fetching = FetchArgBuilder(point.offset, word_size(probe.machine), kernel)
        name = _free(f"{event_label(point.probe)}_site{number}", taken)
        taken.add(name)
        yield _SiteWriter(plan, fetching, point).event(group, name, path)


def function_events(
    request: FunctionRequest,
    path: str,
    open_path: str,
    *,
    group: str = GROUP,
    taken: set[str] | None = None,
) -> Iterator[SiteEvent]:
    """Yield definitions for the entries of functions, and for their returns if items need them.

    Args:
        request: the functions and items.
        path: the file.
        open_path: the path to open.
        group: group of the events.
        taken: names of other events; the new names are added.

    Raises:
        LanguageError: an item does not fit a function.
        TracingError: as of :func:`site_events`.
    """
    path = _plain(path)
    taken = set() if taken is None else taken
    words = {word_size(one.machine) for one in request.functions(path, open_path)}
    for point in request.points(path, open_path):
        plan = make_plan(
            request.text.items,
            point.arguments,
            text=request.text.text,
            probe=point.probe,
            declared=request.declared,
            function=point.function,
            types=point.types,
            registers=point.registers,
        )
        late = tuple(output for output in plan.outputs if needs_return(output.node))
        late_predicates = tuple(node for node in plan.predicates if needs_return(node))
        soon = tuple(output for output in plan.outputs if output not in late)
        predicates = tuple(node for node in plan.predicates if node not in late_predicates)
        for returns in (False, True):
            if not (late or late_predicates if returns else soon or predicates or not late):
                continue
            ends = (late, late_predicates) if returns else (soon, predicates)
            part = replace(plan, outputs=ends[0], predicates=ends[1])
            name = _free(event_label(point.probe) + ("_return" if returns else ""), taken)
            taken.add(name)
            fetching = FetchArgBuilder(point.offset, min(words), returns=returns)
            writer = _SiteWriter(part, fetching, point, "r" if returns else "p")
            if returns and predicates:
                writer.notes.append("predicates on the entry do not filter returns")
            yield writer.event(group, name, path)


def _plain(path: str) -> str:
    found = str(Path(path).absolute())
    if not PLAIN_PATH.fullmatch(found):
        raise TracingError(
            f"{found}: an event definition cannot name this file, because of blanks, # or the like"
        )
    return found


def _free(name: str, taken: set[str]) -> str:
    # Different probe names may become the same event name.
    if name not in taken:
        return name
    return next(other for n in count(2) if (other := f"{name}_{n}") not in taken)


def _native(machine: str) -> str:
    return machine if machine in PT_REGS else f"{machine}x"  # s390 programs run on s390x


class _SiteWriter(EventPlanner):
    # Names the fields like their items, in characters that the kernel accepts.
    def __init__(
        self, plan: ProbePlan, fetching: FetchArgBuilder, point: AttachPoint, kind: str = "p"
    ) -> None:
        super().__init__(fetching)
        self.plan = plan
        self.kind = kind
        self.point = point
        self.notes: list[str] = []

    def event(self, group: str, name: str, path: str) -> SiteEvent:
        for output in self.plan.outputs:
            try:
                self.output(output)
            except UnsupportedFetch as err:
                self.notes.append(f"{output.key}: {err}")
        attach_point = attach_point_text(path, self.point.offset, self.point.ref_ctr_offset)
        event_filter = self._filter()
        words = [f"{key}={field.text}" for key, field in self.fields.items()]
        line = " ".join([f"{self.kind}:{group}/{name}", attach_point, *words])
        return SiteEvent(name, line, event_filter, tuple(self.notes))

    def _filter(self) -> str:
        for predicate in self.plan.predicates:
            try:
                self.expression(predicate)
            except UnsupportedFetch as err:
                raise TracingError(
                    f"{self.point.probe}: an event cannot fetch a value of a predicate: {err}"
                ) from err
        found = kernel_filter(self.plan.predicates, self.field_name)
        if not found.exact:
            raise TracingError(
                f"{self.point.probe}: a filter of the kernel cannot express a predicate: it only "
                "compares one field with one constant, joined by &&, || and !"
            )
        return found.text

    def leaf(self, leaf: Node) -> None:
        if isinstance(leaf, StringEquals):
            raise UnsupportedFetch("two strings")
        if not isinstance(leaf, Builtin) and leaf not in self.numbers:
            self.numbers[leaf] = self.keep("value", self.fetching.number(leaf))

    def comm(self) -> None:
        self.fields[COMM] = FetchArg("$comm:string", "I")

    def number(self, output: Output) -> None:
        node, key, column = output.node, output.key, output.column
        if isinstance(node, Builtin) and _HEADS.get(node.name):
            self.notes.append(f"{key}: in every record: {_HEADS[node.name]}")
            return
        field = self.fetching.number(node)
        is_float = isinstance(column, FloatColumn)
        decimal = isinstance(column, IntColumn) and column.format is IntFormat.DECIMAL
        if not (decimal or is_float):
            head, colon, kind = field.text.rpartition(":")
            if kind[0] in "us" and kind[1:].isdigit():
                field = replace(field, text=f"{head}{colon}x{kind[1:]}")
        name = self.keep(key, field)
        unsigned = node.type.signed and (field.code.isupper() or not decimal)
        if not unsigned:  # else a filter would compare it as what it is not
            self.numbers[node] = name
        if is_float:
            self.notes.append(f"{key}: the bits of a float")
        elif unsigned and decimal:
            self.notes.append(f"{key}: without its sign, as the bits of a part of a register")

    def keep(self, key: str, field: FetchArg) -> str:
        base = re.sub(r"\W+", "_", key, flags=re.ASCII).strip("_")[: _MAX_NAME - 4] or "value"
        if base[0].isdigit() or (_RESERVED.match(base) and base != key):
            base = f"_{base}"
        name, number = base, 1
        while name in self.fields:
            number += 1
            name = f"{base}_{number}"
        self.fields[name] = field
        return name
