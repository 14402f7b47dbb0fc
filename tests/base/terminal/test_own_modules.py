"""Modules that the commands find in few steps are those that Python would find."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest

import kprobe
import usdt
from usdt.base.terminal.own_modules import _Finder

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

NAMES = ("usdt.base", "usdt.base.frozen", "usdt.engine.cli", "kprobe.cli", "click.core")


def spec_of(folder: Path, name: str) -> ModuleSpec:
    spec = _Finder.find_spec(f"usdt.{name}", [str(folder)])
    assert spec is not None
    return spec


def run(folder: Path, name: str = "one") -> Any:
    spec = spec_of(folder, name)
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", NAMES)
def test_specs_are_as_python_makes_them(name: str) -> None:
    places = importlib.import_module(name.rpartition(".")[0]).__path__
    found, usual = _Finder.find_spec(name, places), PathFinder.find_spec(name, places)
    assert found is not None
    assert usual is not None
    for attribute in ("name", "origin", "cached", "has_location", "submodule_search_locations"):
        assert getattr(found, attribute) == getattr(usual, attribute)
    assert isinstance(found.loader, SourceFileLoader)
    assert isinstance(usual.loader, SourceFileLoader)
    assert found.loader.get_code(name) == usual.loader.get_code(name)


def test_other_modules_are_left_to_python(tmp_path: Path) -> None:
    (tmp_path / "one.py").touch()
    assert _Finder.find_spec("usdt.two", [str(tmp_path)]) is None
    assert _Finder.find_spec("usdt.one", [str(tmp_path / "file.pyz")]) is None
    assert _Finder.find_spec("json.one", [str(tmp_path)]) is None
    assert _Finder.find_spec("usdt", None) is None
    assert _Finder.find_spec("usdt.one", [str(tmp_path)]) is not None


def test_bytecode_of_a_changed_source_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    source = tmp_path / "one.py"
    source.write_text("value = 1\n")
    assert run(tmp_path).value == 1
    assert [*(tmp_path / "__pycache__").iterdir()]
    status = source.stat()
    source.write_text("value = 2\n")  # of the same size
    os.utime(source, (status.st_atime, status.st_mtime))
    assert run(tmp_path).value == 1  # so it is the bytecode that was used
    os.utime(source, (status.st_atime, status.st_mtime + 1))
    assert run(tmp_path).value == 2
    source.write_text("value = 10\n")
    os.utime(source, (status.st_atime, status.st_mtime + 1))
    assert run(tmp_path).value == 10


def test_bytecode_names_the_source_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    before = tmp_path / "before"
    before.mkdir()
    (before / "one.py").write_text("def function(): pass\n")
    run(before)
    after = before.rename(tmp_path / "after")
    assert run(after).function.__code__.co_filename == str(after / "one.py")


def test_files_that_are_no_bytecode_are_not_used(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("value = 1\n")
    cached = Path(spec_of(tmp_path, "one").cached or "")
    cached.parent.mkdir()
    for data in (b"", b"\0" * 40):
        cached.write_bytes(data)
        assert run(tmp_path).value == 1


@pytest.mark.parametrize("command", ["usdt", "kprobe"])
@pytest.mark.parametrize("options", [[], ["-O"], ["-X", "pycache_prefix=/nowhere"]], ids=" ".join)
def test_commands_find_their_modules_so(command: str, options: list[str]) -> None:
    code = (
        f"import sys; sys.argv = ['x', '--help']; from {command}.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print(type(sys.modules['click.core'].__loader__).__name__, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-B", *options, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("Usage: ")
    assert done.stderr == ("SourceFileLoader\n" if options else "_Loader\n")


def test_the_packages_have_one_place() -> None:
    assert [len(package.__path__) for package in (click, kprobe, usdt)] == [1, 1, 1]
