"""The contracts of import-linter in pyproject.toml: each of them is seen to fail."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
from house import ROOT

_LINT = Path(sysconfig.get_path("scripts"), "lint-imports")


def _lint(folder: Path) -> str:
    done = subprocess.run(
        [_LINT, "--no-cache", "--no-logo"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The two packages and their contracts, to spoil."""
    folder = tmp_path_factory.mktemp("copy")
    shutil.copy(ROOT / "pyproject.toml", folder)
    for package in ("usdt", "kprobe"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, folder / package, ignore=ignored)
    return folder


def test_the_contracts_hold(copy: Path) -> None:
    assert " 0 broken." in _lint(copy)


@pytest.mark.parametrize(
    ("module", "statement", "contract"),
    [
        pytest.param(
            "usdt/btf/reader.py",
            "import usdt.bpf.maps",
            "A folder imports only folders below it",
            id="an import of a layer above",
        ),
        pytest.param(
            "usdt/engine/language/tree.py",
            "import usdt.engine.compiler.plan",
            "The stages of the engine, from top to bottom",
            id="an import of a later stage",
        ),
        pytest.param(
            "kprobe/api.py",
            "def lazily() -> None:\n    import usdt.elf.file",
            "kprobe knows nothing of user-space probes",
            id="a lazy import of the other side",
        ),
        pytest.param(
            "usdt/btf/types.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import usdt.btf.reader",
            "No circles of files or folders",
            id="a circle for the type checker alone",
        ),
    ],
)
def test_a_forbidden_import_is_reported(
    copy: Path, module: str, statement: str, contract: str
) -> None:
    path = copy / module
    before = path.read_text()
    path.write_text(f"{before}\n\n{statement}\n")
    try:
        assert f"{contract} BROKEN" in _lint(copy)
    finally:
        path.write_text(before)


def test_no_contract_has_an_exception() -> None:
    # An ignored import would be an arrow up that nobody sees.
    text = (ROOT / "pyproject.toml").read_text()
    assert "ignore_imports" not in text
    assert "exclude_type_checking_imports" not in text
