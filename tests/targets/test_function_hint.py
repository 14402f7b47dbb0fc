"""Which function is meant by a name that no USDT probe has."""

from __future__ import annotations

from pathlib import Path

import pytest

from usdt.engine.language import parse_probe
from usdt.targets.function_hint import function_hint
from usdt.targets.search.libraries import find_library

_LIBC = "; malloc is a function: uprobe:libc:malloc"


def hint(text: str, *paths: str) -> str:
    return function_hint(parse_probe(text), [(path, path) for path in paths])


@pytest.fixture(scope="module")
def libc() -> str:
    return find_library("libc.so.6")[0]


def test_a_function_of_one_of_the_files(libc: str) -> None:
    assert hint("malloc", "/etc/passwd", "/no/such/file", libc) == _LIBC
    assert hint("malloc") == ""
    assert hint("no_such_function", libc) == ""
    assert hint("mallo*", libc) == ""


def test_a_provider_that_is_a_library(libc: str) -> None:
    assert hint("libc:malloc", libc) == _LIBC
    assert hint("libc:malloc") == _LIBC  # as the loader finds it
    assert hint("libc:no_such_function") == ""
    assert hint("no_such_library:malloc", libc) == ""


def test_functions_of_programs_and_libraries_are_found_where_they_are_defined(libc: str) -> None:
    python = str(Path("/usr/bin/python3.11").resolve())
    if not Path(python).is_file():
        pytest.skip("needs /usr/bin/python3.11")
    found = f"; PyObject_Init is a function: uprobe:{python}:PyObject_Init"
    assert hint("PyObject_Init", libc, python) == found
    assert hint("malloc", python, libc) == _LIBC  # which the program imports
