"""Cells that no mirror gives: which runs stand without them, and what is told at the end."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from house import ROOT
from vm.matrix import CELLS
from vm.report import Tally, block, shortfalls

if TYPE_CHECKING:
    from pathlib import Path

_QUICK = [cell.name for cell in CELLS if cell.often]
_OTHERS, _DID = "of the other CPUs selected", "have to run, and"
_SIX = "arm64, armhf, i386, ppc64el, riscv64, s390x"
_AMD64 = "every kernel of amd64 has to run, and these did not: "


def tally(selected: list[str], missing: str) -> Tally:
    """A run of some cells, of which some could not be had."""
    chosen = {cell for cell in CELLS if cell.name in selected}
    absent = {cell: f"why {cell.name}" for cell in chosen if cell.name in missing.split()}
    return Tally(chosen, chosen - set(absent), absent)


@pytest.mark.parametrize(
    ("selected", "missing", "wrong"),
    [
        pytest.param(_QUICK, "", [], id="all ran"),
        pytest.param(_QUICK, "riscv64-6.12", [], id="one other CPU is missing"),
        pytest.param(_QUICK, "riscv64-6.12 s390x-6.12 i386-6.1", [], id="three others ran"),
        pytest.param(
            _QUICK,
            "riscv64-6.12 s390x-6.12 i386-6.1 armhf-6.1",
            [f"3 {_OTHERS} ({_SIX}) {_DID} 2 did: arm64, ppc64el"],
            id="two others ran",
        ),
        pytest.param(
            _QUICK, "amd64-5.10", [f"{_AMD64}amd64-5.10"], id="a kernel of amd64 is missing"
        ),
        pytest.param(
            ["amd64-5.10", "amd64-6.1"],
            "amd64-6.1 amd64-5.10",
            [f"{_AMD64}amd64-5.10, amd64-6.1"],
            id="only amd64 is selected",
        ),
        pytest.param(
            ["riscv64-6.12"],
            "riscv64-6.12",
            [f"1 {_OTHERS} (riscv64) {_DID} 0 did"],
            id="one is selected and it is missing",
        ),
        pytest.param(
            ["arm64-6.1", "s390x-6.1", "riscv64-6.12", "riscv64-sid"],
            "riscv64-sid",
            [],
            id="another kernel of the CPU ran",
        ),
        pytest.param(
            ["arm64-6.1", "s390x-6.1", "riscv64-sid"],
            "riscv64-sid",
            [f"3 {_OTHERS} (arm64, riscv64, s390x) {_DID} 2 did: arm64, s390x"],
            id="three are selected and two ran",
        ),
        pytest.param(
            ["amd64-6.1+bcc", *_QUICK],
            "amd64-6.1+bcc",
            [f"{_AMD64}amd64-6.1+bcc"],
            id="every cell of amd64 counts",
        ),
    ],
)
def test_a_run_stands_if_enough_ran(selected: list[str], missing: str, wrong: list[str]) -> None:
    assert shortfalls(tally(selected, missing)) == wrong


def test_a_cell_that_this_machine_cannot_start_is_not_asked_for() -> None:
    # There is no QEMU for the other CPUs here: one of amd64 is missing, and only that is said.
    assert shortfalls(tally(["amd64-6.1", "amd64-sid"], "amd64-sid")) == [f"{_AMD64}amd64-sid"]


def test_the_block_names_each_with_its_reason() -> None:
    *lines, last = block(tally(_QUICK, "riscv64-6.12 i386-6.1"))
    assert sorted(lines) == ["i386-6.1: why i386-6.1", "riscv64-6.12: why riscv64-6.12"]
    assert last == "The run stands without: enough of the other cells ran."
    assert block(tally(_QUICK, "amd64-6.1")) == [
        "amd64-6.1: why amd64-6.1",
        f"This fails the run: {_AMD64}amd64-6.1.",
    ]


_RUN = """
import pytest
from vm.matrix import CELLS
from vm.report import TALLY, Tally

CHOSEN = [cell for cell in CELLS if cell.often]

@pytest.mark.parametrize("cell", CHOSEN, ids=lambda cell: cell.name)
def test_it(cell, pytestconfig):
    tally = pytestconfig.stash.setdefault(TALLY, Tally(selected=set(CHOSEN)))
    if cell.name in {missing}:
        tally.missing[cell] = "the mirror says 404"
        pytest.skip("told at the end")
    tally.ran.add(cell)
    assert cell.name not in {failing}
"""


@pytest.mark.parametrize("ci", ["true", ""])
@pytest.mark.parametrize(
    ("missing", "failing", "code"),
    [
        pytest.param([], [], 0, id="nothing is missing"),
        pytest.param(["riscv64-6.12", "s390x-6.12"], [], 0, id="enough ran"),
        pytest.param(["riscv64-6.12"], ["i386-6.1"], 1, id="one that ran failed"),
        pytest.param(["amd64-6.12"], [], 1, id="a kernel of amd64 is missing"),
    ],
)
def test_the_end_of_a_run(
    missing: list[str], failing: list[str], code: int, ci: str, tmp_path: Path
) -> None:
    text = _RUN.replace("{missing}", repr(missing)).replace("{failing}", repr(failing))
    (tmp_path / "test_it.py").write_text(text)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "CI": ci,
    }
    words = ["-p", "vm.report", "-p", "no:cacheprovider", "-q", "test_it.py"]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == code, result.stdout + result.stderr
    assert result.stdout.count("= cells that no mirror gives =") == bool(missing)
    for name in missing:
        assert f"\n{name}: the mirror says 404\n" in result.stdout
    too_much = "This fails the run: every kernel of amd64" in result.stdout
    assert too_much == ("amd64-6.12" in missing)
