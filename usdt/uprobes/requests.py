"""What the tracer asks of a probe on functions: does a file have them, and where to attach."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bpf.errors import LanguageError, TracingError
from bpf.host import KERNEL
from tracing.attach import Point
from tracing.language.tree import names_in
from usdt.points import foreign_machine
from usdt.uprobes.arguments import (
    MAX_ARGUMENTS,
    arguments_of,
    call_stack,
)
from usdt.uprobes.functions import FunctionFile

if TYPE_CHECKING:
    from tracing.language.tree import ProbeText
    from tracing.values import Argument
    from usdt.uprobes.arguments import Parameters
    from usdt.uprobes.functions import Function

__all__ = ("FunctionRequest",)


class FunctionRequest:
    """One probe on functions, over all files it is looked for in.

    Args:
        text: the probe.
        parameters: what knows arguments by name, if anything does.

    Attributes:
        notes: what ``-v`` says of what was found.

    Raises:
        LanguageError: it names no file.
    """

    def __init__(self, text: ProbeText, parameters: Parameters | None = None) -> None:
        if text.path is None:
            name = text.name if ":" not in text.name else "FUNCTION"
            raise LanguageError(
                text.text,
                0,
                f"whose function? expected uprobe:TARGET:{name}, as in uprobe:libc:malloc",
            )
        self.text = text
        self.notes: list[str] = []
        self._parameters = parameters
        self._found: dict[str, list[Function]] = {}

    def functions(self, path: str, open_path: str, pid: int = 0) -> list[Function]:
        """The functions in a file; read once.

        Args:
            path: the file's name, as people know it.
            open_path: what to open.
            pid: the process whose file it is; 0: ours.

        Raises:
            ProbeNotFound: there is none; the message says why.
            ElfError: the file is no program.
        """
        if open_path not in self._found:
            roots = (f"/proc/{pid}/root", "") if pid else ("",)
            with FunctionFile(path, open_path, roots=roots) as file:
                found = file.find(self.text.name)
                elsewhere = foreign_machine(file.machine)
                if elsewhere is not None:
                    raise TracingError(f"{path}: {elsewhere}")
                found = self._check(file, found)
                self.notes += file.notes
            self._found[open_path] = found
        return self._found[open_path]

    def _check(self, file: FunctionFile, found: list[Function]) -> list[Function]:
        # Those that have what items ask for.
        names = {name for item in self.text.items for name in names_in(item.expression)}
        bad = [one for one in found if one.no_return] if "return" in names else []
        if bad and len(bad) == len(found):
            raise TracingError(f"{file.path}: no return probe on {bad[0].name}: {bad[0].no_return}")
        if bad:
            shown = ", ".join(one.name for one in bad[:4])
            file.notes.append(f"{file.path}: left out, as they have no return to probe: {shown}")
            found = [one for one in found if not one.no_return]
        inside = next((one for one in found if one.shift), None)
        if inside is None:
            return found
        arguments = [name for name in names if name.startswith("arg") and name[3:].isdigit()]
        if "return" in names or arguments:
            what = "return" if "return" in names else min(arguments)
            raise LanguageError(
                self.text.text,
                max(self.text.text.rfind(what), 0),
                f"{inside.place} is inside a function: arguments are known where it begins, and "
                "its return is found from there",
            )
        return found

    def points(self, path: str, open_path: str, pid: int = 0) -> list[Point]:
        """Where to attach in a file; ``pid``: in this one process."""
        found = self.functions(path, open_path, pid)
        return [
            Point(
                one.probe,
                path,
                open_path,
                one.offset,
                0,
                () if one.shift else self._arguments(one),
                pid,
                one.name,
                None if one.shift or one.no_return else call_stack(one.machine),
                types=None if self._parameters is None else self._parameters.types(one),
            )
            for one in found
        ]

    def _arguments(self, function: Function) -> tuple[Argument, ...]:
        numbered = arguments_of(function.machine, go=function.go, no_return=function.no_return)
        if self._parameters is None:
            return numbered
        named = self._parameters.arguments(function)
        taken = {one.name for one in named}
        return *named, *(one for one in numbered if one.name not in taken)

    @property
    def declared(self) -> int:
        """How many arguments there are at most."""
        return MAX_ARGUMENTS if arguments_of(KERNEL) else 0
