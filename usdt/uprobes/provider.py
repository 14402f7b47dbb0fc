"""Probes on functions: find the functions in files and their attach points."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.context_registers import ContextRegisters
from usdt.arch.foreign_code import foreign_machine_reason
from usdt.arch.locations import Unreadable
from usdt.base.errors import LanguageError, TracingError
from usdt.base.frozen import replace
from usdt.base.machine import KERNEL_MACHINE
from usdt.engine.compiler.arguments import known_names
from usdt.engine.language.needs_types import needs_members, needs_types, untyped_names
from usdt.engine.language.pattern import source_line
from usdt.engine.language.tree import ALL_ARGUMENTS, Name, names_in, walk
from usdt.engine.runtime.attach.attach_points import AttachPoint
from usdt.uprobes.arguments import (
    MAX_ARGUMENTS,
    arguments_of,
    call_stack,
)
from usdt.uprobes.functions import FunctionFile
from usdt.uprobes.places.probe_function import INLINED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.engine.compiler.arguments import Argument
    from usdt.engine.language.tree import Item, ProbeText
    from usdt.engine.runtime.session import BpfSession
    from usdt.uprobes.functions import ProbeFunction
    from usdt.uprobes.parameters import DebugParameters
    from usdt.uprobes.variables import FileVariables

_MAX_TYPED = 200  # look up result types for patterns with up to this many functions
_MAX_NAMED = 4  # functions that a message names

__all__ = ("FunctionRequest",)


class FunctionRequest:
    """One probe on functions, for all files that it is searched in.

    Args:
        text: the parsed probe.
        keys: items of ``--by`` and ``--key``.
        described: True to look up parameters even if no item needs them.

    Attributes:
        notes: messages for ``-v`` about the functions found.
        notices: messages for the user about them.

    Raises:
        LanguageError: the probe names no file.
    """

    def __init__(
        self,
        text: ProbeText,
        *,
        keys: Sequence[Item] = (),
        described: bool = False,
    ) -> None:
        if text.path is None:
            name = text.name if ":" not in text.name else "FUNCTION"
            name = "SOURCE:LINE" if source_line(text.name) else name
            raise LanguageError(
                text.text,
                0,
                f"the probe names no file; expected uprobe:TARGET:{name}, as in uprobe:libc:malloc",
            )
        self.text = text
        self.notes: list[str] = []
        self.notices: list[str] = []
        self._items = (*text.items, *keys)
        self._described = described
        self._found: dict[str, list[ProbeFunction]] = {}
        self._debug: dict[str, DebugParameters | None] = {}

    def functions(self, path: str, open_path: str, pid: int = 0) -> list[ProbeFunction]:
        """Return the matching functions of a file; each file is read once.

        Args:
            path: the file's name, for messages.
            open_path: the path to open.
            pid: the process whose mount namespace contains the file; 0 for this process.

        Raises:
            ProbeNotFound: no function matches; the message says why.
            ElfError: the file is not an ELF program or library.
        """
        if open_path not in self._found:
            from usdt.uprobes.parameters import DebugParameters  # noqa: PLC0415 - not for arg0… alone

            with FunctionFile(path, open_path, roots=_roots(pid)) as file:
                found = file.find(self.text.name)
                elsewhere = foreign_machine_reason(file.machine)
                if elsewhere is not None:
                    raise TracingError(f"{path}: {elsewhere}")
                found = self._check(file, found)
                self._report_inlined(file)
                self.notes += file.notes
                if file.debug is not None:
                    self._debug.setdefault(open_path, DebugParameters(file.debug))
            self._found[open_path] = found
        return self._found[open_path]

    def _report_inlined(self, file: FunctionFile) -> None:
        # Calls of inlined copies are no calls of the function: say that they are not seen.
        name = self.text.name
        if INLINED in name or source_line(name) or "+" in name or name.startswith("0x"):
            return
        try:
            copies = file.inlined_copies(name)
        except TracingError as err:
            self.notes.append(str(err))
            return
        total = sum(copies.values())
        if total:
            shown = ", ".join(sorted(copies)[:_MAX_NAMED]) + (", …" * (len(copies) > _MAX_NAMED))
            what = "1 inlined copy of" if total == 1 else f"{total} inlined copies of"
            are = "is" if total == 1 else "are"
            self.notices.append(
                f"{file.path}: {what} {shown} {are} not probed; {name}{INLINED} probes these, too"
            )

    def _check(self, file: FunctionFile, found: list[ProbeFunction]) -> list[ProbeFunction]:
        # The functions that have all values that the items need.
        names = {name for item in self.text.items for name in names_in(item.expression)}
        ends = sorted(names & {"duration", "return"})
        if ends and self.text.name.endswith(INLINED):
            raise LanguageError(
                self.text.text,
                max(self.text.text.rfind(ends[0]), 0),
                f"an inlined copy has no {ends[0]}: trace {self.text.name.removesuffix(INLINED)} "
                f"for the {ends[0]} of its calls",
            )
        bad = [one for one in found if one.no_return] if ends else []
        if bad and len(bad) == len(found):
            raise TracingError(
                f"{file.path}: no return probe on {bad[0].label}: {bad[0].no_return}"
            )
        if bad:
            shown = ", ".join(one.name for one in bad[:4])
            file.notes.append(
                f"{file.path}: left out, because their return cannot be probed: {shown}"
            )
            found = [one for one in found if not one.no_return]
        inside = next((one for one in found if one.inside), None)
        if inside is None:
            return found
        arguments = [name for name in names if name.startswith("arg") and name[3:].isdigit()]
        if ends or arguments:
            what = min(ends or arguments)
            raise LanguageError(
                self.text.text,
                max(self.text.text.rfind(what), 0),
                f"{inside.label} is inside a function: arguments by number and the return are "
                "only known at a function's entry; name a parameter or a variable; "
                "reg(NAME) reads a register",
            )
        return found

    def points(self, path: str, open_path: str, pid: int = 0) -> list[AttachPoint]:
        """Return the attach points in a file; with ``pid`` for this process only.

        Raises:
            LanguageError: items need something unknown about these functions.
            TracingError: the debug information is damaged.
        """
        found = self.functions(path, open_path, pid)
        parameters = self._parameters_of(path, open_path, found, pid)
        arguments = {one: self._arguments(one, parameters) for one in found}
        if needs_types(self._items):
            with self._variables(path, open_path, pid) as variables:
                self._add_variables(arguments, variables)
                _add_hidden_names(arguments)
                found = self._with_names(arguments, parameters, variables)
        return [
            AttachPoint(
                one.probe,
                path,
                open_path,
                one.offset,
                0,
                arguments[one],
                pid,
                one.name,
                None if one.inside or one.no_return else call_stack(one.machine),
                types=None if parameters is None else parameters.types(one),
                registers=ContextRegisters(one.machine, entry=not one.inside),
            )
            for one in found
        ]

    def fitting(self, points: list[AttachPoint], session: BpfSession) -> list[AttachPoint]:
        """Drop points whose functions do not have the names in keys; keep at least one point."""
        if len(points) < 2 or len(self._items) == len(self.text.items):
            return points
        found = [point for point in points if session.check_items(self.text, point) is None]
        return found or points[:1]

    def _parameters_of(
        self, path: str, open_path: str, found: list[ProbeFunction], pid: int
    ) -> DebugParameters | None:
        # Debug information is read if items need it, or for the type of the result.
        names = {name for item in self._items for name in names_in(item.expression)}
        needed = needs_types(self._items)
        if not (needed or self._described or "return" in names):
            return None
        if not needed and len(found) > _MAX_TYPED:
            return None
        if open_path not in self._debug:
            self._debug[open_path] = self._open(path, open_path, pid, needed=needed)
        return self._debug[open_path]

    def _open(self, path: str, open_path: str, pid: int, *, needed: bool) -> DebugParameters | None:
        from usdt.uprobes.debug_info import debug_of  # noqa: PLC0415
        from usdt.uprobes.parameters import DebugParameters  # noqa: PLC0415

        try:
            debug = debug_of(path, open_path, _roots(pid))
        except TracingError as err:
            if needed:
                raise
            self.notes.append(f"the type of the result is unknown: {err}")
            return None
        return None if debug is None else DebugParameters(debug)

    # ------------------------------------------------------------ names in items

    def _variables(self, path: str, open_path: str, pid: int) -> FileVariables:
        from usdt.uprobes.variables import FileVariables  # noqa: PLC0415 - only for names

        known = self._debug.get(open_path)
        debug = None if known is None else known.debug
        return FileVariables(path, open_path, debug, roots=_roots(pid))

    def _add_variables(
        self, arguments: dict[ProbeFunction, tuple[Argument, ...]], variables: FileVariables
    ) -> None:
        # Parameters precede variables of the same name.
        names = untyped_names(self._items)
        for one, known in arguments.items():
            taken = known_names(known)
            lacking = [name for name in names if name not in taken]
            code = variables.address_of(one.offset)
            arguments[one] = (*variables.arguments(lacking, code), *known)

    def _with_names(
        self,
        arguments: dict[ProbeFunction, tuple[Argument, ...]],
        parameters: DebugParameters | None,
        variables: FileVariables,
    ) -> list[ProbeFunction]:
        # The functions of a pattern that have everything named in items.
        wanted = untyped_names(self.text.items)
        known = {one: known_names(has) for one, has in arguments.items()}
        if self._wants_all:
            wanted.append(ALL_ARGUMENTS)
            for one in arguments:
                described = parameters is not None and parameters.described(one) is not None
                known[one] |= {ALL_ARGUMENTS} if described else set()
        lacking = [one for one in arguments if not known[one].issuperset(wanted)]
        if lacking and len(lacking) == len(arguments):
            name = next(name for name in wanted if name not in known[lacking[0]])
            if lacking[0].inside:
                missing = "" if parameters else variables.missing_debug
                reason = _inside(lacking[0], arguments[lacking[0]], missing)
            elif parameters is None:
                reason = variables.missing_debug
            else:
                reason = _other_names(lacking[0], arguments[lacking[0]], parameters)
            reason += "" if name == ALL_ARGUMENTS else variables.path_hint(name)
            raise self._unknown(name, reason, variables.near(name))
        if parameters is None and needs_members(self._items):
            start = self.text.items[0].expression.start if self.text.items else 0
            raise LanguageError(self.text.text, start, variables.missing_debug)
        if lacking:
            shown = ", ".join(one.name for one in lacking[:_MAX_NAMED])
            names = ", ".join(wanted)
            number = f"{len(lacking)} functions are" if len(lacking) > 1 else "a function is"
            path = lacking[0].path
            self.notes.append(f"{path}: {number} left out, without parameters {names}: {shown}")
        without = set(lacking)
        return [one for one in arguments if one not in without]

    @property
    def _wants_all(self) -> bool:
        return any(item.text == ALL_ARGUMENTS for item in self.text.items)

    def _unknown(self, name: str, reason: str, near: str) -> LanguageError:
        positions = (
            node.start
            for item in self.text.items
            for node in walk(item.expression)
            if isinstance(node, Name) and node.name == name
        )
        what = "args" if name == ALL_ARGUMENTS else f"unknown name {name!r}"
        hint = f"; did you mean the variable {near}?" if near and name != ALL_ARGUMENTS else ""
        return LanguageError(self.text.text, next(positions, 0), f"{what}: {reason}{hint}")

    def _arguments(
        self, function: ProbeFunction, parameters: DebugParameters | None
    ) -> tuple[Argument, ...]:
        if function.inside:
            return self._variables_at(function, parameters)
        numbered = arguments_of(
            function.machine, is_go=function.is_go, no_return=function.no_return
        )
        if parameters is None:
            return numbered
        named = parameters.arguments(function)
        if not (self._described or needs_types(self._items)):
            # If items use only arg0… and return, debug information may change only the size and
            # sign of a number, so that output does not depend on its presence.
            named = tuple(
                one for one in named if one.name == "return" and parameters.typed.is_number(one)
            )
        taken = {one.name for one in named}
        return *named, *(one for one in numbered if one.name not in taken)

    def _variables_at(
        self, function: ProbeFunction, parameters: DebugParameters | None
    ) -> tuple[Argument, ...]:
        if parameters is None or not (self._described or needs_types(self._items)):
            return ()
        found = parameters.parameters(function)
        return tuple(replace(one.argument, hidden=one.local) for one in found)

    @property
    def declared(self) -> int:
        """The maximum number of numbered arguments."""
        return MAX_ARGUMENTS if arguments_of(KERNEL_MACHINE) else 0


def _other_names(
    function: ProbeFunction, arguments: tuple[Argument, ...], parameters: DebugParameters
) -> str:
    names = [one.name for one in arguments if not one.hidden and one.name != "return"]
    if names:
        return f"{function.name} has the parameters {', '.join(names)}"
    unknown = parameters.unknown_reason(function)
    if unknown:
        return f"no parameters of {function.name} are known: {unknown}"
    return f"{function.name} has no parameters"


def _roots(pid: int) -> tuple[str, ...]:
    # Where debug files are searched.
    return (f"/proc/{pid}/root", "") if pid else ("",)


def _add_hidden_names(arguments: dict[ProbeFunction, tuple[Argument, ...]]) -> None:
    # Of the places of one probe, some may be in code that belongs to another scope.
    known: dict[str, dict[str, Argument]] = {}
    for one, has in arguments.items():
        if one.written:
            named = (each for each in has if each.type_ref or isinstance(each.fetch, Unreadable))
            known.setdefault(one.written, {}).update({each.name: each for each in named})
            known[one.written].pop("return", None)
    for one, has in arguments.items():
        lacking = known.get(one.written, {}).keys() - {each.name for each in has}
        hidden = (known[one.written][name] for name in sorted(lacking))
        lost = Unreadable("not in scope here")
        arguments[one] = (*(replace(each, fetch=lost, hidden=True) for each in hidden), *has)


def _inside(function: ProbeFunction, arguments: tuple[Argument, ...], lacking: str) -> str:
    names = ", ".join(one.name for one in arguments)
    if names:
        return f"{function.label} has {names} in scope"
    if lacking:
        return f"{function.label} is inside a function, whose variables are not known: {lacking}"
    return f"{function.label} has no parameters and variables in scope"
