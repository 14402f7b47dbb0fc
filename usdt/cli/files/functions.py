"""Functions, ``uprobe:[TARGET:]FUNCTION``, in ``usdt list``, ``usdt info`` and ``usdt check``."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import TYPE_CHECKING, Any

from usdt.arch.foreign_code import foreign_machine_reason
from usdt.arch.locations import AtFunctionReturn, Unreadable
from usdt.base.errors import ElfError, ProbeNotFound, TargetError, TracingError
from usdt.base.terminal import progress
from usdt.base.terminal.columns import cut
from usdt.base.terminal.look import look_of
from usdt.base.text import printable
from usdt.engine.cli.click_group import plural, say
from usdt.engine.compiler.ir import ArgumentValue
from usdt.engine.compiler.outputs import Output
from usdt.engine.compiler.plan import make_plan
from usdt.engine.compiler.record.columns import UnavailableColumn
from usdt.engine.language import parse_probe
from usdt.procfs.mapped_files import mapped_files
from usdt.procfs.process import thread_group
from usdt.targets.search.target_files import is_file_pattern, resolve_targets
from usdt.uprobes.arguments import GO_ARGUMENTS, arguments_of, location_text
from usdt.uprobes.debug_info import debug_of
from usdt.uprobes.debug_package_hint import missing_debug
from usdt.uprobes.functions import FunctionFile
from usdt.uprobes.name_patterns import shown_name
from usdt.uprobes.parameters import DebugParameters
from usdt.uprobes.provider import FunctionRequest
from usdt.uprobes.typed_arguments import problem_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from usdt.cli.files.selection import ListArguments
    from usdt.engine.language.tree import ProbeText
    from usdt.engine.runtime.attach.attach_points import AttachPoint
    from usdt.uprobes.functions import ProbeFunction
    from usdt.uprobes.parameters import Prototype

__all__ = ("check_functions", "describe_functions", "list_functions")

_SHOWN_ARGUMENTS = 8
_BEFORE_NAME = 32  # columns before the names of a table
_NAME = 16  # columns of a name, at least


def list_functions(arguments: ListArguments, pids: Sequence[int], *, as_json: bool) -> None:
    """Print the functions that match.

    Args:
        arguments: functions without a TARGET are searched in its targets; if there are none, in
            all files of ``pids``.
        pids: processes whose files are searched.
        as_json: True to print one JSON object per function.

    Raises:
        ProbeNotFound: nothing matches; the message says why.
        TargetError: there is no such file or process.
    """
    for number, (file, functions) in enumerate(_find(arguments, pids)):
        progress.clear()
        if as_json:
            sys.stdout.writelines(json.dumps(_to_json(one)) + "\n" for one in functions)
        else:
            sys.stdout.writelines(_table(file, functions, first=number == 0))


def describe_functions(arguments: ListArguments, pids: Sequence[int], *, as_json: bool) -> None:
    """Print the address, aliases, prototype and locations of arguments of each function.

    Args and Raises: as for :func:`list_functions`.
    """
    for file, functions in _find(arguments, pids, described=True):
        parameters, problem = _parameters_of(file)
        for function in functions:
            try:
                prototype = None if parameters is None else parameters.prototype(function)
                if parameters is not None and prototype is None:
                    problem = problem or parameters.missing_reason
            except TracingError as err:
                prototype, problem = None, str(err)
            progress.clear()
            if as_json:
                shown = _to_json(function, arguments=True)
                shown |= {} if prototype is None else prototype.to_json()
                sys.stdout.write(json.dumps(shown) + "\n")
            else:
                sys.stdout.writelines(_description(function, prototype, problem))


def check_functions(
    arguments: ListArguments, pids: Sequence[int]
) -> Iterator[tuple[str, list[tuple[str, list[str]]]]]:
    """Yield the functions of each file, with the problems of each.

    Args and Raises: as for :func:`list_functions`.
    """
    for word in arguments.functions:
        probe = parse_probe(word)
        for path, open_path, pid in _files_of(probe, arguments, pids):
            text = word if probe.path is not None else word.replace(":", f":{path}:", 1)
            request = FunctionRequest(parse_probe(text), described=True)
            try:
                points = request.points(path, open_path, pid)
            except TracingError as err:
                yield path, [(request.text.name, [str(err)])]
                continue
            yield path, [(_label(point), list(_problems(request, point))) for point in points]


def _label(point: AttachPoint) -> str:
    # A function; a source line may be in several.
    label = point.probe.split(":", 2)[2]
    return label if label.startswith(point.function) else f"{label} in {point.function}"


def _problems(request: FunctionRequest, point: AttachPoint) -> Iterator[str]:
    for argument in point.arguments if not request.text.items else ():
        problem = problem_of(argument)
        if problem and not argument.hidden:
            yield f"{argument.name} cannot be read: {problem}"
    try:
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
    except TracingError as err:
        yield str(err)
        return
    for output in plan.outputs if request.text.items else ():
        match output:
            case (
                Output(column=UnavailableColumn(reason=reason))
                | Output(
                    node=ArgumentValue(fetch=AtFunctionReturn(register=Unreadable(reason=reason)))
                )
            ):
                yield f"{output.key} cannot be read: {reason}"


def _parameters_of(file: FunctionFile) -> tuple[DebugParameters | None, str]:
    # Debug information, or the reason why there is none.
    try:
        debug = debug_of(file.path, file.open_path, file.roots)
    except TracingError as err:
        return None, str(err)
    if debug is None:
        return None, missing_debug(file.path, file.elf.build_id)
    return DebugParameters(debug), ""


def _find(
    arguments: ListArguments, pids: Sequence[int], *, described: bool = False
) -> Iterator[tuple[FunctionFile, list[ProbeFunction]]]:
    for request in map(parse_probe, arguments.functions):
        found, failure = False, None
        for path, open_path, pid in _files_of(request, arguments, pids):
            roots = (f"/proc/{pid}/root", "") if pid else ("",)
            try:
                with FunctionFile(path, open_path, roots=roots) as file:
                    file.described = described
                    yield file, file.find(request.name)
                    found = True
                    for note in file.notes:
                        say(note)
            except (ProbeNotFound, ElfError) as err:
                failure = failure or err
                named = [request.path] if request.path is not None else arguments.targets
                if named and not any(map(is_file_pattern, named)):
                    raise
        if not found:
            raise failure or ProbeNotFound(f"no file with a function {request.name}")


def _files_of(
    request: ProbeText, arguments: ListArguments, pids: Sequence[int]
) -> Iterator[tuple[str, str, int]]:
    # Yields the files to search for a function: path, path to open, process ID or 0.
    named = [request.path] if request.path is not None else arguments.targets
    if not named and not pids:
        raise TargetError(
            f"no target: give a file, a library or -p PID, as in: usdt list libc {request.text}"
        )
    for word in named:
        for pid in pids or (None,):
            for target in resolve_targets(word, pid=pid):
                yield target.path, target.open_path, pid or 0
    for pid in pids if not named else ():
        for mapped in mapped_files(thread_group(pid).pid):
            with contextlib.suppress(TargetError):
                if mapped.open_path is not None:
                    yield mapped.path, mapped.open_path, pid


def _to_json(function: ProbeFunction, *, arguments: bool = False) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "path": function.path,
        "function": function.name,
        "symbol": function.symbol or None,
        "machine": function.machine,
        "address": function.address,
        "offset": function.offset,
        "size": function.size,
        "aliases": [*function.aliases],
    }
    if arguments:
        shown["arguments"] = dict(_locations(function))
    return shown


def _table(file: FunctionFile, functions: Sequence[ProbeFunction], *, first: bool) -> Iterator[str]:
    if not first:
        yield "\n"
    look = look_of(sys.stdout)
    number = plural(len(functions), "function")
    yield f"{look.title}{printable(file.path)}{look.end}  ({file.machine}, {number})\n"
    yield f"  {look.title}{'ADDRESS':>18}  {'SIZE':>8}  FUNCTION{look.end}\n"
    for one in functions:
        also = f"  (also {', '.join(map(printable, one.aliases))})" if one.aliases else ""
        name = f"{look.probe}{printable(one.label)}{look.end}{also}"
        if look.width is not None:
            name = cut(name, max(_NAME, look.width - _BEFORE_NAME))
        yield f"  {f'{one.address:#x}':>18}  {one.size or '-':>8}  {name}\n"


def _description(
    function: ProbeFunction, prototype: Prototype | None, problem: str
) -> Iterator[str]:
    look = look_of(sys.stdout)
    name = f"{look.probe}{printable(function.label)}{look.end}"
    yield f"{name}  in {printable(function.path)}\n"
    size = plural(function.size, "byte") if function.size else "size unknown"
    if function.place is not None:
        size = f"in {printable(shown_name(function.place.outer))}"
        if function.place.inlined:
            size = f"{printable(function.name)} inlined {size}"
    at = f"address {function.address:#x}, file offset {function.offset:#x}"
    yield f"  {function.machine}, {at}, {size}\n"
    if function.symbol not in ("", function.name) and function.place is None:
        yield f"  symbol {printable(function.symbol)}\n"
    if function.aliases:
        yield f"  also {', '.join(map(printable, function.aliases))}\n"
    reason = foreign_machine_reason(function.machine)
    if reason is not None:
        yield f"  {look.warning}cannot be traced here: {reason}{look.end}\n"
    if prototype is not None and (function.place is None or not function.place.inlined):
        yield f"  {printable(prototype.declaration)}\n"
        if prototype.file:
            yield f"  {printable(prototype.file)}:{prototype.line}\n"
    if function.inside and (prototype is None or not prototype.parameters):
        yield "  inside the function: arguments and return are only known at its entry; reg(NAME)\n"
        yield "  reads a register\n"
    elif prototype is not None and not function.is_go:
        yield from _parameters(function, prototype)
    else:
        yield "  arguments, if they are integers or pointers (types are unknown):\n"
        for name, location in _locations(function):
            yield f"    {name:<7} {location}\n"
        if not function.is_go:
            yield f"  {printable(problem or 'its file was compiled without debug information')}\n"


def _parameters(function: ProbeFunction, prototype: Prototype) -> Iterator[str]:
    rows = [
        (printable(one.name), printable(one.type), printable(one.where))
        for one in prototype.parameters
    ]
    if prototype.returns is None and function.no_return and not function.inside:
        rows.append(("return", "", f"not readable: {function.no_return}"))
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(2)]
    for name, type_name, location in rows:
        yield f"    {name.ljust(widths[0])}  {type_name.ljust(widths[1])}  {location}\n"


def _locations(function: ProbeFunction) -> Iterator[tuple[str, str]]:
    if function.inside:
        return
    known = len(arguments_of(function.machine))
    if function.is_go:
        yield "arg0…", f"not readable: {GO_ARGUMENTS}"
    for number in range(0 if function.is_go else min(_SHOWN_ARGUMENTS, known)):
        yield f"arg{number}", location_text(function.machine, number)
    if function.no_return:
        yield "return", f"not readable: {function.no_return}"
    elif known:
        yield "return", location_text(function.machine, -1)
