"""The tests of the wheel with every Python that can be had: ``make test-pythons``.

Pythons are those of the system, of pyenv, and of newer suites of Debian (tests/support/pythons.py).
The tests that need no root run against the installed wheel, not the checkout.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import nox
import pytest

_ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_ROOT / "tests/support"), str(_ROOT)]

from pythons import OTHERS, interpreter  # type: ignore[import-not-found]  # noqa: E402 - the path first

_CHECKERS = {"build", "import-linter", "mypy", "nox", "ruff", "setuptools"}
#: Extras have compiled parts, and a new Python has none of them for a while.
_COMPILED = {"capstone", "duckdb", "isal", "numpy", "pyarrow"}
#: Kernels, peers and what is built; and the contracts, which are those of the checkout.
_LEFT_OUT = ("live", "peers", "release", "vm", "test_contracts.py")

_VERSION = re.compile(r"python(3\.\d+)")

nox.options.default_venv_backend = "virtualenv"
nox.options.stop_on_first_error = False
nox.options.envdir = str(_ROOT / "build/nox")


def _available() -> list[str]:
    found = []
    for name in OTHERS:
        try:
            found.append(str(interpreter(name)))
        except pytest.skip.Exception as err:
            print(f"test-pythons: {name} is left out: {err}")
    return found


def _requirements() -> list[str]:
    with (_ROOT / "pyproject.toml").open("rb") as file:
        return list(tomllib.load(file)["project"]["optional-dependencies"]["dev"])


def _name(requirement: str) -> str:
    return requirement.partition(">")[0]


def tests(session: nox.Session) -> None:
    """Install the wheel that ``make dist`` has made, and test it."""
    session.chdir(_ROOT)
    (wheel,) = (_ROOT / "dist").glob("*.whl")
    needed = [one for one in _requirements() if _name(one) not in _CHECKERS]
    session.install(str(wheel), *(one for one in needed if _name(one) not in _COMPILED))
    for one in needed:
        if _name(one) in _COMPILED:
            session.install("--only-binary=:all:", one, success_codes=[0, 1])
    session.run(
        *("pytest", "-q", "-n", "2", "--dist", "loadfile", "-m", "not root"),
        *("-o", "pythonpath=tests tests/support tests/live", "-o", "hang_timeout=0"),
        *("-p", "no:cacheprovider", *(f"--ignore=tests/{name}" for name in _LEFT_OUT)),
        *session.posargs,
        env={"PYTHONSAFEPATH": "1"},
    )


for _python in _available():
    nox.session(python=_python, name=f"tests-{_VERSION.findall(_python)[-1]}")(tests)
