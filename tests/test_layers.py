"""Who may use libc and click, and what an import may cost. Arrows: see pyproject.toml."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from house import PACKAGES, ROOT, Module, library

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Who may talk to libc: the system calls, and the loader of a Provider's object.
_LIBC = {"usdt/bpf/_syscall.py", "usdt/bpf/_uapi.py", "usdt/provider/loading.py"}

#: The engine behind the commands: the modules that build and load.
_ENGINE = (
    "usdt.bpf.program",
    "usdt.bpf.link",
    "usdt.bpf.maps",
    "usdt.engine.compiler.codegen.program",
    "usdt.engine.runtime.session",
    "ctypes",
)


def imports(module: Module) -> Iterator[tuple[str, int]]:
    """Every name imported anywhere in the file, also inside functions; and its line."""
    for node in module.nodes:
        yield from imports_of(node)


def imports_of(node: ast.AST) -> Iterator[tuple[str, int]]:
    """What one statement imports."""
    if isinstance(node, ast.Import):
        yield from ((alias.name, node.lineno) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert not node.level, f"line {node.lineno}: a relative import hides its room"
        yield node.module or "", node.lineno


def _top(name: str) -> str:
    return name.partition(".")[0]


def test_only_these_modules_talk_to_libc() -> None:
    users = {
        module.path
        for module in library()
        if any(_top(name) in {"ctypes", "_ctypes", "cffi"} for name, _ in imports(module))
    }
    assert "usdt/bpf/_syscall.py" in users
    assert users <= _LIBC


def test_only_commands_use_click() -> None:
    users = {
        module.path
        for module in library()
        if any(_top(name) == "click" for name, _ in imports(module)) and not module.is_command
    }
    assert not users


def test_pyelftools_is_never_imported_with_a_module() -> None:
    eager = [
        f"{module.path}:{node.lineno}"
        for module in library()
        for node in module.tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
        )
        if name and _top(name) == "elftools"
    ]
    assert not eager


#: Who may name a module by a string: the registry of probe kinds, the packages and groups of
#: commands that import on demand, and the table of CPUs.
_NAMING = re.compile(
    r"usdt/engine/run/registry\.py|usdt/arch/operands/__init__\.py"
    r"|(usdt|kprobe)/(\w+/)*__init__\.py|(usdt|kprobe)/cli/(group|event)\.py"
)


def _strings(module: Module) -> Iterator[str]:
    docstrings = {
        id(node.value)
        for node in module.nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    texts = [node for node in module.nodes if isinstance(node, ast.Constant)]
    for node in texts:
        if isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value.partition(":")[0]


def test_modules_are_named_by_strings_only_in_the_registry_and_where_names_are_lazy() -> None:
    known = {module.path.removesuffix(".py").replace("/", ".") for module in library()}
    users = {module.path for module in library() if not known.isdisjoint(_strings(module))}
    assert "usdt/engine/run/registry.py" in users
    assert {path for path in users if not _NAMING.fullmatch(path)} == set()


@functools.cache
def loaded_by(statement: str) -> frozenset[str]:
    """Modules that ``statement`` loads in a fresh interpreter, beyond what that starts with."""
    script = (
        "import json, sys; before = set(sys.modules)\n"
        f"{statement}\n"
        "json.dump(sorted(set(sys.modules) - before), sys.__stdout__)"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert not result.returncode, result.stderr
    return frozenset(json.loads(result.stdout[result.stdout.rindex("[") :]))


@pytest.mark.parametrize("room", [*PACKAGES, "usdt.bpf"])
def test_importing_a_package_is_cheap(room: str) -> None:
    loaded = loaded_by(f"import {room}")
    assert room in loaded
    heavy = {
        "click",
        "elftools",
        "asyncio",
        "email",
        "http",
        "inspect",
        "unittest",
        "multiprocessing",
    }
    assert not heavy & {_top(name) for name in loaded}
    assert not set(_ENGINE) & loaded


@pytest.mark.parametrize("command", ["usdt", "kprobe"])
def test_help_does_not_pay_for_the_engine(command: str) -> None:
    loaded = loaded_by(
        "import contextlib, io\n"
        f"from {command}.cli import main\n"
        f"sys.argv = ['{command}', '--help']\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()): main()"
    )
    assert "click" in loaded
    assert "elftools" not in {_top(name) for name in loaded}
    assert not set(_ENGINE) & loaded


def test_no_lazy_name_is_that_of_a_module_beside_it() -> None:
    # Whoever imports such a module first has it for the name.
    checked = 0
    for path in [path for package in PACKAGES for path in (ROOT / package).rglob("__init__.py")]:
        if "lazy_exports(" not in path.read_text():
            continue
        package = importlib.import_module(".".join(path.parent.relative_to(ROOT).parts))
        sources = inspect.getclosurevars(package.__getattr__).nonlocals["sources"]
        names = {name for name, (_, attribute) in sources.items() if attribute}
        assert not names & {one.stem for one in path.parent.iterdir()}, path
        checked += 1
    assert checked > 3
