"""The house rules: sizes, openings, sorted exports, silence, no path of anybody's machine."""

from __future__ import annotations

import ast
import re
import statistics
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from house import ROOT, Module, library, modules, text_files

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_FILE = 500
_MAX_FUNCTION = 60
_MAX_MODULES = 13  # of a folder: about a dozen
_SHORT_FUNCTION = 25

_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


def functions(module: Module) -> Iterator[tuple[str, int]]:
    """Every function of a file, and how many lines it has without its docstring."""
    for node in module.nodes:
        if isinstance(node, _FUNCTION):
            docstring = _docstring_lines(node)
            yield f"{module.path}:{node.lineno} {node.name}", _lines(node) - docstring


def _lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _docstring_lines(node: _FUNCTION) -> int:
    return _lines(node.body[0]) if ast.get_docstring(node, clean=False) is not None else 0


def _exports(module: Module) -> list[str] | None:
    for node in module.tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets
        ):
            names = ast.literal_eval(node.value)
            return list(names)
    return None


def _export_order(name: str) -> tuple[int, list[str | int]]:
    # As the linter sorts: CONSTANTS, Classes, functions; R2 before R10.
    group = 0 if name.isupper() else 1 if name[:1].isupper() else 2
    parts = re.split(r"(\d+)", name)
    return group, [int(part) if part.isdigit() else part for part in parts]


def _public(module: Module) -> set[str]:
    return {
        node.name
        for node in module.tree.body
        if isinstance(node, ast.ClassDef | _FUNCTION) and not node.name.startswith("_")
    }


def test_files_are_short() -> None:
    lines = {module.path: module.text.count("\n") for module in modules()}
    assert not {path: count for path, count in lines.items() if count > _MAX_FILE}


def test_functions_are_short() -> None:
    lengths = dict(pair for module in modules() for pair in functions(module))
    assert not {name: count for name, count in lengths.items() if count > _MAX_FUNCTION}


def test_nine_library_functions_of_ten_fit_in_25_lines() -> None:
    lengths = [length for module in library() for _, length in functions(module)]
    tenth = statistics.quantiles(lengths, n=10)[-1]
    assert tenth <= _SHORT_FUNCTION


def test_a_folder_of_the_library_has_about_a_dozen_modules() -> None:
    folders = Counter(
        folder
        for folder, _, name in (module.path.rpartition("/") for module in library())
        if name != "__init__.py"
    )
    assert not {folder: count for folder, count in folders.items() if count > _MAX_MODULES}


def test_every_module_opens_with_a_docstring() -> None:
    assert not [module.path for module in modules() if not ast.get_docstring(module.tree)]


def test_exports_are_sorted_and_exist() -> None:
    wrong = []
    for module in library():
        names = _exports(module)
        if names is None:
            continue
        defined = {node.id for node in module.nodes if isinstance(node, ast.Name)}
        defined |= {alias.asname or alias.name for alias in _aliases(module)} | _public(module)
        wrong += [f"{module.path}: not sorted"] if names != sorted(names, key=_export_order) else []
        wrong += [f"{module.path}: no {name}" for name in names if name not in defined]
    assert not wrong


def _aliases(module: Module) -> list[ast.alias]:
    return [
        alias
        for node in module.nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    ]


def test_the_library_never_prints_or_exits() -> None:
    banned = {"print", "sys.exit", "exit", "quit", "sys.stderr.write", "warnings.warn"}
    last = {name.rpartition(".")[2] for name in banned}
    wrong = [
        f"{module.path}:{node.lineno} {ast.unparse(node.func)}()"
        for module in library()
        if not module.is_command
        for node in module.nodes
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", getattr(node.func, "id", "")) in last
        and ast.unparse(node.func) in banned
    ]
    assert not wrong


def test_errors_are_named() -> None:
    wrong = []
    for module in library():
        for node in module.nodes:
            if isinstance(node, ast.ExceptHandler) and node.type is None:
                wrong.append(f"{module.path}:{node.lineno} bare except")
            if isinstance(node, ast.Raise) and node.exc is not None:
                what = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
                if ast.unparse(what) in {"Exception", "BaseException"}:
                    wrong.append(f"{module.path}:{node.lineno} raises {ast.unparse(what)}")
    assert not wrong


# Homes, and folders that only a build machine has; not /proc/PID/root/.
_HOMES = re.compile(r"(?<![\w}])/(?:root|home/\w+|Users/\w+|workspace)/")


def _machine_paths(text: str) -> Iterator[str]:
    needles = {str(ROOT)} if len(ROOT.parts) > 2 else set()
    for number, line in enumerate(text.splitlines(), 1):
        found = _HOMES.search(line)
        if found or any(needle in line for needle in needles):
            yield f"{number}: {line.strip()[:80]}"


def test_nothing_names_a_path_of_the_machine_it_was_written_on() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{found}"
        for path in text_files()
        for found in _machine_paths(path.read_text())
    ]
    assert not wrong


_NAME, _SUPERUSER = "someone", "root"  # so that the text below is no such path itself


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(f"open('/home/{_NAME}/x')", 1, id="a home directory"),
        pytest.param(f"/{_SUPERUSER}/.cache", 1, id="root's home"),
        pytest.param("/proc/1/root/usr/lib, /proc/{pid}/root/x", 0, id="the root of a process"),
        pytest.param(f"cd {ROOT}/bpf", 1, id="this checkout"),
        pytest.param("/usr/lib/libc.so.6\n/home\n/tmp", 0, id="paths that every system has"),
    ],
)
def test_machine_paths_are_found(text: str, expected: int) -> None:
    assert len(list(_machine_paths(text))) == expected


def test_text_files_are_found() -> None:
    names = {str(path.relative_to(ROOT)) for path in text_files()}
    assert {"Makefile", ".ci/run", "pyproject.toml", "usdt/base/errors.py"} <= names
    assert all(Path(name).parts[0] not in {".git", ".venv"} for name in names)
