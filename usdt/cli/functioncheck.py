"""Functions in ``usdt check``: check that ``uprobe:TARGET:FUNCTION(ITEMS)`` would attach."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from usdt.base.errors import TracingError
from usdt.base.text import printable
from usdt.cli.functions import files_of
from usdt.engine.compiler.plan import make_plan
from usdt.engine.compiler.record.columns import UnavailableColumn
from usdt.engine.language import parse_probe
from usdt.uprobes.parameters import problem_of
from usdt.uprobes.provider import FunctionRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from usdt.engine.runtime.attach.attach_points import AttachPoint

__all__ = ("check_functions",)


def check_functions(
    words: Sequence[str], targets: Sequence[str], pids: Sequence[int], *, as_json: bool
) -> int:
    """Print the problems of function probes; return 1 if there are any, otherwise 0.

    Args:
        words: arguments ``uprobe:…``.
        targets: files to search for arguments without a TARGET.
        pids: processes whose files are searched.
        as_json: True to print one JSON object per function.

    Raises:
        TargetError: there is no such file or process.
        LanguageError: an argument is not a valid probe.
    """
    worst = 0
    for word in words:
        probe = parse_probe(word)
        named = [probe.path] if probe.path is not None else [*targets]
        for path, open_path, pid in files_of(probe, named, pids):
            text = word if probe.path is not None else word.replace(":", f":{path}:", 1)
            request = FunctionRequest(parse_probe(text), described=True)
            results = dict(_results(request, path, open_path, pid))
            bad = sum(1 for problems in results.values() if problems)
            worst = worst or int(bool(bad))
            if as_json:
                _write_json(path, results)
            else:
                _write(path, results, bad)
    return worst


def _results(
    request: FunctionRequest, path: str, open_path: str, pid: int
) -> Iterator[tuple[str, list[str]]]:
    try:
        points = request.points(path, open_path, pid)
    except TracingError as err:
        yield request.text.name, [str(err)]
        return
    for point in points:
        yield point.function, list(_problems(request, point))


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
        )
    except TracingError as err:
        yield str(err)
        return
    for output in plan.outputs if request.text.items else ():
        if isinstance(output.column, UnavailableColumn):
            yield f"{output.key} cannot be read: {output.column.reason}"


def _write(path: str, results: dict[str, list[str]], bad: int) -> None:
    for name, problems in results.items():
        for problem in problems:
            sys.stdout.write(f"{printable(path)}: {printable(name)}: {printable(problem)}\n")
    number = len(results)
    verdict = "all would attach and decode" if not bad else f"{bad} with problems"
    sys.stdout.write(f"{printable(path)}: {number} function{'s' * (number != 1)}, {verdict}\n")


def _write_json(path: str, results: dict[str, list[str]]) -> None:
    for name, problems in results.items():
        shown = {"path": path, "function": name, "ok": not problems, "problems": problems}
        sys.stdout.write(json.dumps(shown) + "\n")
