"""Functions in ``usdt list`` and ``usdt info``: ``uprobe:[TARGET:]FUNCTION``."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import TYPE_CHECKING, Any

import click

from usdt.arch.foreign_code import foreign_machine_reason
from usdt.base.errors import ElfError, ProbeNotFound, TargetError, TracingError
from usdt.base.text import printable
from usdt.engine.language import parse_probe
from usdt.procfs.mapped_files import mapped_files
from usdt.procfs.process import thread_group
from usdt.targets.target_files import resolve_target
from usdt.uprobes.arguments import GO_ARGUMENTS, arguments_of, place_of
from usdt.uprobes.debug_info import debug_of
from usdt.uprobes.debug_package_hint import missing_debug
from usdt.uprobes.functions import FunctionFile
from usdt.uprobes.parameters import DebugParameters

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from usdt.engine.language.tree import ProbeText
    from usdt.uprobes.functions import ProbeFunction
    from usdt.uprobes.parameters import Prototype

__all__ = ("describe_functions", "files_of", "list_functions")

_SHOWN_ARGUMENTS = 8


def list_functions(
    words: Sequence[str], targets: Sequence[str], pids: Sequence[int], *, as_json: bool
) -> None:
    """Print the functions that match.

    Args:
        words: arguments ``uprobe:…``.
        targets: files to search for arguments without a TARGET; if empty, all files of ``pids``.
        pids: processes whose files are searched.
        as_json: True to print one JSON object per function.

    Raises:
        ProbeNotFound: nothing matches; the message says why.
        TargetError: there is no such file or process.
    """
    for number, (file, found) in enumerate(_found(words, targets, pids)):
        if as_json:
            sys.stdout.writelines(json.dumps(_to_json(one)) + "\n" for one in found)
        else:
            sys.stdout.writelines(_table(file, found, first=number == 0))


def describe_functions(
    words: Sequence[str], targets: Sequence[str], pids: Sequence[int], *, as_json: bool
) -> None:
    """Print the address, aliases, prototype and locations of arguments of each function.

    Args and Raises: as for :func:`list_functions`.
    """
    for file, found in _found(words, targets, pids, described=True):
        parameters, problem = _parameters_of(file)
        for one in found:
            try:
                known = None if parameters is None else parameters.prototype(one)
                if parameters is not None and known is None:
                    problem = problem or parameters.missing_reason
            except TracingError as err:
                known, problem = None, str(err)
            if as_json:
                shown = _to_json(one, arguments=True) | ({} if known is None else known.to_json())
                sys.stdout.write(json.dumps(shown) + "\n")
            else:
                sys.stdout.writelines(_description(one, known, problem))


def _parameters_of(file: FunctionFile) -> tuple[DebugParameters | None, str]:
    # Debug information, or the reason why there is none.
    try:
        debug = debug_of(file.path, file.open_path, file.roots)
    except TracingError as err:
        return None, str(err)
    if debug is None:
        return None, missing_debug(file.path, file.elf.build_id)
    return DebugParameters(debug), ""


def _found(
    words: Sequence[str], targets: Sequence[str], pids: Sequence[int], *, described: bool = False
) -> Iterator[tuple[FunctionFile, list[ProbeFunction]]]:
    for request in map(parse_probe, words):
        some, failure = False, None
        named = [request.path] if request.path is not None else [*targets]
        for path, open_path, pid in files_of(request, named, pids):
            roots = (f"/proc/{pid}/root", "") if pid else ("",)
            try:
                with FunctionFile(path, open_path, roots=roots) as file:
                    file.described = described
                    yield file, file.find(request.name)
                    some = True
                    for note in file.notes:
                        click.echo(printable(note), err=True)
            except (ProbeNotFound, ElfError) as err:
                failure = failure or err
                if named:
                    raise
        if not some:
            raise failure or ProbeNotFound(f"no file with a function {request.name}")


def files_of(
    request: ProbeText, named: Sequence[str], pids: Sequence[int]
) -> Iterator[tuple[str, str, int]]:
    """Yield the files of a function probe: path, path to open, process ID or 0.

    Raises:
        TargetError: there is no such file or process, or no target is given.
    """
    if not named and not pids:
        raise TargetError(
            f"no target: give a file, a library or -p PID, as in: usdt list libc {request.text}"
        )
    for word in named:
        for pid in pids or (None,):
            target = resolve_target(word, pid=pid)
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
        "address": function.start + function.offset_in_function,
        "offset": function.offset,
        "size": function.size,
        "aliases": [*function.aliases],
    }
    if arguments:
        shown["arguments"] = dict(_places(function))
    return shown


def _table(file: FunctionFile, found: Sequence[ProbeFunction], *, first: bool) -> Iterator[str]:
    if not first:
        yield "\n"
    number = len(found)
    yield f"{printable(file.path)}  ({file.machine}, {number} function{'s' * (number != 1)})\n"
    yield f"  {'ADDRESS':>18}  {'SIZE':>8}  FUNCTION\n"
    for one in found:
        also = f"  (also {', '.join(map(printable, one.aliases))})" if one.aliases else ""
        address = f"{one.start + one.offset_in_function:#x}"
        yield f"  {address:>18}  {one.size or '-':>8}  {printable(one.label)}{also}\n"


def _description(function: ProbeFunction, known: Prototype | None, problem: str) -> Iterator[str]:
    yield f"{printable(function.label)}  in {printable(function.path)}\n"
    size = f"{function.size} bytes" if function.size else "size unknown"
    address = function.start + function.offset_in_function
    yield f"  {function.machine}, address {address:#x}, file offset {function.offset:#x}, {size}\n"
    if function.symbol not in ("", function.name):
        yield f"  symbol {printable(function.symbol)}\n"
    if function.aliases:
        yield f"  also {', '.join(map(printable, function.aliases))}\n"
    reason = foreign_machine_reason(function.machine)
    if reason is not None:
        yield f"  cannot be traced here: {reason}\n"
    if known is not None:
        yield from _prototype(known)
    if function.offset_in_function:
        yield "  inside the function: arguments and return are only known at its entry\n"
    elif known is not None and not function.is_go:
        yield from _parameters(function, known)
    else:
        yield "  arguments, if they are integers or pointers (types are unknown):\n"
        for name, place in _places(function):
            yield f"    {name:<7} {place}\n"
        if not function.is_go:
            yield f"  {printable(problem or 'its file was compiled without debug information')}\n"


def _prototype(known: Prototype) -> Iterator[str]:
    yield f"  {printable(known.declaration)}\n"
    if known.file:
        yield f"  {printable(known.file)}:{known.line}\n"


def _parameters(function: ProbeFunction, known: Prototype) -> Iterator[str]:
    rows = [
        (printable(one.name), printable(one.type), printable(one.where)) for one in known.parameters
    ]
    if known.returns is None and function.no_return:
        rows.append(("return", "", f"not readable: {function.no_return}"))
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(2)]
    for name, kind, where in rows:
        yield f"    {name.ljust(widths[0])}  {kind.ljust(widths[1])}  {where}\n"


def _places(function: ProbeFunction) -> Iterator[tuple[str, str]]:
    if function.offset_in_function:
        return
    known = len(arguments_of(function.machine))
    if function.is_go:
        yield "arg0…", f"not readable: {GO_ARGUMENTS}"
    for number in range(0 if function.is_go else min(_SHOWN_ARGUMENTS, known)):
        yield f"arg{number}", place_of(function.machine, number)
    if function.no_return:
        yield "return", f"not readable: {function.no_return}"
    elif known:
        yield "return", place_of(function.machine, -1)
