"""Which way the arrows point, and what an import may cost: bpf ← tracing ← usdt, kprobe."""

from __future__ import annotations

import ast
import functools
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from house import ROOMS, ROOT, Module, library

if TYPE_CHECKING:
    from collections.abc import Iterator

#: What each room may import of the others.
_ALLOWED = {
    "bpf": {"bpf"},
    "tracing": {"bpf", "tracing"},
    "usdt": {"bpf", "tracing", "usdt"},
    "kprobe": {"bpf", "tracing", "kprobe"},
}

#: Who may talk to libc: the system calls, and the loader of a Provider's object.
_LIBC = {"bpf/_syscall.py", "bpf/_uapi.py", "usdt/provider/loading.py"}

#: The engine behind the commands: the modules of ``tracing`` and ``bpf`` that build and load.
_ENGINE = (
    "bpf.program",
    "bpf.link",
    "bpf.maps",
    "tracing.codegen.program",
    "tracing.session",
    "ctypes",
)


def imports(module: Module) -> Iterator[tuple[str, int]]:
    """Every name imported anywhere in the file, also inside functions; and its line."""
    for node in ast.walk(module.tree):
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


@pytest.mark.parametrize("room", ROOMS)
def test_arrows_point_one_way(room: str) -> None:
    wrong = [
        f"{module.path}:{line} imports {name}"
        for module in library()
        if module.room == room
        for name, line in imports(module)
        if _top(name) in set(ROOMS) - _ALLOWED[room]
    ]
    assert not wrong


def test_every_room_has_modules() -> None:
    assert {module.room for module in library()} == set(ROOMS)


def test_only_these_modules_talk_to_libc() -> None:
    users = {
        module.path
        for module in library()
        if any(_top(name) in {"ctypes", "_ctypes", "cffi"} for name, _ in imports(module))
    }
    assert "bpf/_syscall.py" in users
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


@pytest.mark.parametrize(
    ("room", "banned"),
    [
        pytest.param("bpf", {"usdt", "kprobe", "tracing"}, id="bpf knows nothing above it"),
        pytest.param("tracing", {"usdt", "kprobe"}, id="tracing knows neither front"),
        pytest.param("usdt", {"kprobe"}, id="usdt does not know kprobe"),
        pytest.param("kprobe", {"usdt"}, id="kprobe does not know usdt"),
    ],
)
def test_importing_every_module_of_a_room_loads_none_above(room: str, banned: set[str]) -> None:
    names = [
        module.name
        for module in library()
        if module.room == room and not module.path.endswith("__main__.py")
    ]
    loaded = {_top(name) for name in loaded_by("; ".join(f"import {name}" for name in names))}
    assert not banned & loaded
    assert "elftools" not in loaded


@pytest.mark.parametrize("room", ROOMS)
def test_importing_a_room_is_cheap(room: str) -> None:
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
